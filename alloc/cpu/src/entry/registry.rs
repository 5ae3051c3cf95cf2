//! Threads and their heaps: from the first allocation to the exit.
//!
//! The slow path begins with [`enter`]. It finds the thread's heap, makes one for a new thread, and puts [`BUSY`] in
//! its place until the slow path is left: a signal handler that allocates meanwhile is then served without locks.
//!
//! A thread's exit runs a `pthread_key` destructor, which takes its heap away and leaves it [`DYING`]: what later
//! destructors allocate comes from one shared heap, the limbo, under a lock. A thread that went on making heaps
//! instead would leave one behind for each of its destructors.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use poolscope_wire::thread_state;

use crate::census;
use crate::entry::capture;
use crate::hardened;
use crate::kernel::os;
use crate::kernel::raw_thread;
use crate::layout::lean;
use crate::process::fork;
use crate::sampler;
use crate::segment::counters::{self, TierCounter};
use crate::segment::publish;
use crate::settings;
use crate::sync::spin_lock::{Guard, SlowPath, SpinLock};
use crate::threads::detour;
use crate::threads::thread_pointer;
use crate::tiers::thread_cache::{BUSY, DETOUR, DYING, EMPTY, Heap};
use crate::tiers::transfer_cache;
use crate::tracer;

struct Registry {
    /// Heaps without a thread, linked through [`Heap::next_unused`].
    unused: Cell<Option<&'static Heap>>,
    count: Cell<u32>,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for Registry {}

static REGISTRY: SpinLock<Registry> = SpinLock::new(Registry { unused: Cell::new(None), count: Cell::new(0) });
static LIMBO: SpinLock<Limbo> = SpinLock::new(Limbo(None));
static STARTED: AtomicBool = AtomicBool::new(false);
static EXIT_KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// The newest heap; the others follow through [`Heap::next_heap`].
static ALL: AtomicPtr<Heap> = AtomicPtr::new(core::ptr::null_mut());

struct Limbo(Option<&'static Heap>);

/// How the calling thread is to be served.
pub enum Entry {
    /// From a heap, which is the caller's until this is dropped.
    Heap(Entered),
    /// It is in the slow path already: a signal handler.
    Reentrant,
    /// There is no memory for a heap.
    NoMemory(Homeless),
}

/// The calling thread is in the slow path without a heap.
pub struct Homeless {
    /// Proof of it.
    pub slow: SlowPath,
    leave_with: &'static Heap,
}

impl Drop for Homeless {
    fn drop(&mut self) {
        set_thread(self.leave_with);
    }
}

/// The calling thread is in the slow path, with a heap of its own or, dying, with the limbo's.
pub struct Entered {
    /// The heap to use.
    pub heap: &'static Heap,
    /// Proof that the thread is in the slow path.
    pub slow: SlowPath,
    leave_with: &'static Heap,
    limbo: Option<Guard<'static, Limbo>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if core::ptr::eq(self.leave_with, &raw const DYING) {
            if census::is_counting() {
                census::counted_call(self.slow, self.heap);
            }
            // The lock first: a signal handler that finds the thread dying would wait for it.
            self.limbo = None;
            set_thread(self.leave_with);
        } else if census::is_counting() {
            leave_counted(self.slow, self.leave_with);
        } else {
            detour::leave(self.leave_with);
        }
    }
}

fn set_thread(heap: &'static Heap) {
    thread_pointer::set((&raw const *heap).cast_mut());
}

/// Puts [`BUSY`] in the place of the calling thread's heap.
fn go_slow() -> SlowPath {
    set_thread(&BUSY);
    // SAFETY: that is what it asks for; every caller ends the slow path where it puts another heap back.
    unsafe { SlowPath::entered() }
}

/// The calling thread is in the slow path, with a heap of its own.
pub struct Own {
    /// The heap.
    pub heap: &'static Heap,
    /// Proof that the thread is in the slow path.
    pub slow: SlowPath,
}

impl Own {
    /// The same as any other thread's.
    #[inline(always)]
    fn into_entered(self) -> Entered {
        let (heap, slow) = (self.heap, self.slow);
        // It is left by the other one.
        core::mem::forget(self);
        Entered { heap, slow, leave_with: heap, limbo: None }
    }
}

impl Drop for Own {
    #[inline(always)]
    fn drop(&mut self) {
        if census::is_counting() {
            return leave_counted(self.slow, self.heap);
        }
        detour::leave(self.heap);
    }
}

/// Counts the call of a thread that has a heap of its own, and ends its slow path.
#[cold]
#[inline(never)]
fn leave_counted(slow: SlowPath, heap: &'static Heap) {
    census::counted_call(slow, heap);
    detour::leave(heap);
}

/// Enters the slow path if this thread has a heap, and its fast path is open: what [`enter`] does in most cases.
#[inline(always)]
pub fn enter_own() -> Option<Own> {
    // SAFETY: the thread pointer is always a heap.
    let heap = unsafe { &*thread_pointer::get() };
    if !heap.is_a_threads.get() {
        return None;
    }
    heap.visit();
    Some(Own { heap, slow: go_slow() })
}

/// Makes ready what the process has once, if that is still to be done.
#[inline]
pub fn start_process() {
    if !STARTED.load(Ordering::Relaxed) {
        drop(enter());
    }
}

/// Enters the slow path if this thread has a heap, and its fast path is closed.
#[inline(always)]
pub fn enter_detoured() -> Option<Own> {
    if thread_pointer::get().cast_const() != &raw const DETOUR {
        return None;
    }
    let slow = go_slow();
    // SAFETY: the home of a thread that is detoured is its heap, and heaps are never unmapped.
    let heap = unsafe { &*thread_pointer::home().cast_const() };
    // Until the garbage collector has done with it. One that begins after this asks the kernel whether the thread
    // sleeps, and sees then that it is in the slow path.
    heap.closing.pass(slow);
    heap.visit();
    Some(Own { heap, slow })
}

/// Enters the slow path.
#[inline]
pub fn enter() -> Entry {
    match enter_own() {
        Some(own) => Entry::Heap(own.into_entered()),
        None => enter_otherwise(),
    }
}

/// Enters the slow path of a thread whose fast path is not open.
#[cold]
#[inline(never)]
fn enter_otherwise() -> Entry {
    let current = thread_pointer::get().cast_const();
    if current == &raw const BUSY {
        return Entry::Reentrant;
    }
    if current == &raw const EMPTY {
        return match start_thread() {
            Some(heap) => Entry::Heap(Entered { heap, slow: go_slow(), leave_with: heap, limbo: None }),
            None => Entry::NoMemory(Homeless { slow: go_slow(), leave_with: &EMPTY }),
        };
    }
    if let Some(own) = enter_detoured() {
        return Entry::Heap(own.into_entered());
    }
    if current == &raw const DYING {
        let slow = go_slow();
        let mut limbo = LIMBO.lock(slow);
        if limbo.0.is_none() {
            limbo.0 = new_heap(slow);
        }
        let Some(heap) = limbo.0 else { return Entry::NoMemory(Homeless { slow, leave_with: &DYING }) };
        heap.thread_id.set(os::thread_id());
        heap.visit();
        return Entry::Heap(Entered { heap, slow, leave_with: &DYING, limbo: Some(limbo) });
    }
    // Any other value is a heap of this thread's, and opened since it was looked at: by a handler that came between.
    enter()
}

/// Calls `f` with every heap that there ever was.
pub fn for_each_heap(mut f: impl FnMut(&'static Heap)) {
    // SAFETY: the list only grows, at its start, and heaps are never unmapped.
    let mut next = unsafe { ALL.load(Ordering::Acquire).as_ref() };
    while let Some(heap) = next {
        f(heap);
        next = heap.next_heap.get();
    }
}

/// Whether a heap waits for a thread to take it over.
pub fn has_no_thread(heap: &Heap) -> bool {
    !heap.inbox.is_open()
}

/// Whether a thread of this process has the heap for its own, which the kernel can be asked after. Others wait for one,
/// are the limbo's, or were those of threads that a forked child does not have.
pub fn is_a_threads_own(heap: &Heap) -> bool {
    !has_no_thread(heap) && !heap.thread_word.load(Ordering::Relaxed).is_null() && !heap.began_in_child.get()
}

/// Does what a thread does at its exit, for one that ended without: by the bare system call. False if it is there, or
/// ends by itself. The caller holds [`Heap::closing`].
pub fn end_if_gone(slow: SlowPath, heap: &'static Heap) -> bool {
    if raw_thread::is_of_another_process() || os::thread_exists(os::process_id(), heap.thread_id.get()) {
        return false;
    }
    let word = heap.thread_word.swap(core::ptr::null_mut(), Ordering::Relaxed);
    if word.is_null() {
        return false;
    }
    let mut last = [0];
    let was_busy = os::read_own_memory(word.addr(), &mut last) == 1 && last == [(&raw const BUSY).addr()];
    // A handler may have ended it in the middle of the slow path: then nobody knows what its heap is like.
    if !was_busy && !heap.pinned.get() {
        end_thread(slow, heap);
    }
    true
}

/// Calls `f` with the heap of what dying threads allocate, if there is one and nobody has it now.
pub fn with_limbo(slow: SlowPath, f: impl FnOnce(&'static Heap)) {
    if let Some(limbo) = LIMBO.try_lock(slow)
        && let Some(heap) = limbo.0
    {
        f(heap);
    }
}

/// Gives the calling thread a heap.
#[cold]
fn start_thread() -> Option<&'static Heap> {
    // What a signal handler allocates from here on must not start the same thread again.
    let slow = go_slow();
    let first = !STARTED.swap(true, Ordering::AcqRel);
    if first {
        settings::start();
        lean::start();
        raw_thread::begin(thread_pointer::address().addr(), (&raw const BUSY).addr());
        sampler::start(slow);
        hardened::start(slow);
        tracer::wait_for_recorder(slow);
    }
    let Some(heap) = adopt_heap(slow).or_else(|| new_heap(slow)) else {
        set_thread(&EMPTY);
        return None;
    };
    heap.thread_id.set(os::thread_id());
    heap.began_in_child.set(raw_thread::is_of_another_process());
    heap.uses.set(heap.uses.get() + 1);
    heap.inbox.open();
    census::forget(heap);
    counters::add(TierCounter::ThreadsLive, 1);
    counters::add(TierCounter::ThreadsStarted, 1);
    sampler::add_thread(slow, heap);
    publish::publish_tiers();
    thread_pointer::set_home((&raw const *heap).cast_mut());
    // From here on the thread can allocate; the calls below do.
    heap.pinned.set(true);
    heap.thread_word.store(thread_pointer::address().cast(), Ordering::Release);
    set_thread(heap);
    os::keep_errno(|| {
        if first {
            let mut key = 0;
            // SAFETY: registers functions that stay as long as this library, which is never unloaded.
            unsafe {
                if libc::pthread_key_create(&raw mut key, Some(on_thread_exit)) == 0 {
                    EXIT_KEY.store(key, Ordering::Release);
                }
                // Registered first, so it runs after what the program registers.
                __cxa_atexit(at_exit, core::ptr::null_mut(), core::ptr::null_mut());
            }
            fork::register();
        }
        let key = EXIT_KEY.load(Ordering::Acquire);
        if key != NO_KEY {
            // SAFETY: the key exists; the value is only compared and passed back.
            unsafe { libc::pthread_setspecific(key, (&raw const *heap).cast::<c_void>()) };
        }
    });
    heap.pinned.set(false);
    Some(heap)
}

unsafe extern "C" {
    /// `atexit` itself is not in the shared C library (Itanium C++ ABI, 3.3.6.3).
    fn __cxa_atexit(f: extern "C" fn(*mut c_void), argument: *mut c_void, dso: *mut c_void) -> i32;
}

extern "C" fn at_exit(_: *mut c_void) {
    crate::finish();
}

fn adopt_heap(slow: SlowPath) -> Option<&'static Heap> {
    let registry = REGISTRY.lock(slow);
    let heap = registry.unused.get()?;
    registry.unused.set(heap.next_unused.take());
    Some(heap)
}

fn new_heap(slow: SlowPath) -> Option<&'static Heap> {
    let memory = os::map(size_of::<Heap>());
    if memory.is_null() {
        return None;
    }
    // SAFETY: zeroed memory of the right size, aligned to a page, is an empty heap; it is never unmapped.
    let heap = unsafe { &*memory.cast::<Heap>() };
    heap.inbox.open();
    heap.is_a_threads.set(true);
    counters::add(TierCounter::MetadataBytes, size_of::<Heap>() as u64);
    {
        let registry = REGISTRY.lock(slow);
        heap.index.set(registry.count.get());
        registry.count.set(registry.count.get() + 1);
        // SAFETY: as in `for_each_heap`.
        heap.next_heap.set(unsafe { ALL.load(Ordering::Relaxed).as_ref() });
        ALL.store((&raw const *heap).cast_mut(), Ordering::Release);
    }
    sampler::start_heap(heap);
    Some(heap)
}

/// Runs at a thread's exit, with the heap that it had.
unsafe extern "C" fn on_thread_exit(heap: *mut c_void) {
    let slow = go_slow();
    // SAFETY: the value that `start_thread` stored.
    let heap = unsafe { &*heap.cast::<Heap>() };
    {
        // Who closes threads looks at their words under this lock; this thread's goes away.
        let _closing = heap.closing.lock(slow);
        heap.thread_word.store(core::ptr::null_mut(), Ordering::Release);
    }
    end_thread(slow, heap);
    thread_pointer::set_home((&raw const DYING).cast_mut());
    set_thread(&DYING);
}

/// Gives up what a thread had, whose word is nobody's any more.
fn end_thread(slow: SlowPath, heap: &'static Heap) {
    heap.in_hook.set(false);
    heap.in_realloc.set(false);
    heap.scope.set(0);
    heap.retire_all(slow);
    transfer_cache::take_in(slow, Some(heap), heap.inbox.close());
    heap.empty_outbox(slow);
    capture::release(heap);
    counters::sub(TierCounter::ThreadsLive, 1);
    publish::publish_thread(heap, thread_state::EXITED);
    tracer::thread::thread_ends(heap);
    publish::publish_tiers();
    {
        let registry = REGISTRY.lock(slow);
        heap.next_unused.set(registry.unused.replace(Some(heap)));
    }
}

/// For `fork`: takes the locks.
pub fn lock_for_fork(is_over: impl Fn() -> bool) -> bool {
    LIMBO.lock_for_fork(&is_over) && REGISTRY.lock_for_fork(is_over)
}

/// For `fork`: lets them go, in parent and child.
pub fn unlock_after_fork() {
    REGISTRY.unlock_after_fork();
    LIMBO.unlock_after_fork();
}

/// In a forked child: the other threads are not there. Their heaps stay as they were in the middle of whatever they
/// did; they are not used again, and what the child frees of their blocks waits in their mailboxes.
pub fn forget_other_threads() {
    let home = thread_pointer::home().cast_const();
    for_each_heap(|heap| {
        if &raw const *heap == home {
            heap.thread_id.set(os::thread_id());
            heap.began_in_child.set(false);
        } else if !heap.thread_word.swap(core::ptr::null_mut(), Ordering::Relaxed).is_null() {
            counters::sub(TierCounter::ThreadsLive, 1);
        }
        // Who held it is not there any more.
        heap.closing.unlock_raw();
    });
}
