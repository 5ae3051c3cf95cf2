//! How a thread enters the slow path, and with which heap.
//!
//! The slow path begins with [`enter`]. It finds the thread's heap, makes one for a new thread, and puts [`BUSY`] in
//! its place until the slow path is left: a signal handler that allocates meanwhile is then served without locks.
//!
//! A thread's exit runs a `pthread_key` destructor, which takes its heap away and leaves it [`DYING`]: what later
//! destructors allocate comes from one shared heap, the limbo, under a lock. A thread that went on making heaps
//! instead would leave one behind for each of its destructors.
//!
//! One call goes up from here, to `process/start.rs`: the first call of a thread makes what the thread needs, and that
//! of the first thread what the process does.

pub mod capture;

use core::sync::atomic::{AtomicBool, Ordering};

use crate::census;
use crate::kernel::os;
use crate::process::start::start_thread;
use crate::sync::reasons;
use crate::sync::spin_lock::{ForkLock, Guard, SlowPath, SpinLock};
use crate::threads::heaps::new_heap;
use crate::threads::{detour, thread_pointer};
use crate::tiers::static_heaps::{BUSY, DETOUR, DYING, EMPTY};
use crate::tiers::thread_cache::Heap;

static LIMBO: SpinLock<Limbo> = SpinLock::new(Limbo(None));
/// A thread has begun to start the process.
pub static STARTED: AtomicBool = AtomicBool::new(false);

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
            if reasons::is_counting() {
                census::counted_call(self.slow, self.heap);
            }
            // The lock first: a signal handler that finds the thread dying would wait for it.
            self.limbo = None;
            set_thread(self.leave_with);
        } else if reasons::is_counting() {
            leave_counted(self.slow, self.leave_with);
        } else {
            detour::leave(self.leave_with);
        }
    }
}

/// Puts a heap in the place of the one that the calling thread's fast path uses.
pub fn set_thread(heap: &'static Heap) {
    thread_pointer::set((&raw const *heap).cast_mut());
}

/// Puts [`BUSY`] in the place of the calling thread's heap.
pub fn go_slow() -> SlowPath {
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
        if reasons::is_counting() {
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
    if !heap.path.belongs_to_a_thread.get() {
        return None;
    }
    heap.visit();
    Some(Own { heap, slow: go_slow() })
}

/// Makes ready what the process has once, if that is still to be done.
#[inline]
pub fn start_process() {
    if !STARTED.load(Ordering::Relaxed) {
        start_now();
    }
}

#[cold]
#[inline(never)]
fn start_now() {
    drop(enter());
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
    heap.path.closing.pass(slow);
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
        heap.registration.thread_id.set(os::thread_id());
        heap.visit();
        return Entry::Heap(Entered { heap, slow, leave_with: &DYING, limbo: Some(limbo) });
    }
    // Any other value is a heap of this thread's, and opened since it was looked at: by a handler that came between.
    enter()
}

/// Calls `f` with the heap of what dying threads allocate, if there is one and nobody has it now.
pub fn with_limbo(slow: SlowPath, f: impl FnOnce(&'static Heap)) {
    if let Some(limbo) = LIMBO.try_lock(slow)
        && let Some(heap) = limbo.0
    {
        f(heap);
    }
}

/// The limbo's lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &LIMBO
}
