//! Hooks: functions of the program's that see every allocation and every free, before and after it.
//!
//! There may be any number, each with a context of its own; each can go while other threads allocate. While there is
//! one, every call takes the slow path ([`crate::threads::detour`]); without one, the fast path has no instruction for
//! it. A hook may allocate and free: what it does so itself is reported to nobody. It must not unwind.
//!
//! A `realloc` is reported as the allocation of the new block and the free of the old one, also where it stays in
//! place. Not reported are what the pool needs for itself, what a signal handler does that interrupted the pool, and
//! what the last destructors of a thread do after the pool's own has run.

mod place;

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use place::Place;
pub use poolscope_wire::Moment;

use crate::entry::{self, Entry};
use crate::kernel::os;
use crate::sync::reasons::{self, Reason};
use crate::sync::spin_lock::SpinLock;
use crate::threads::detour;
use crate::threads::thread_pointer;
use crate::tiers::static_heaps::{DYING, EMPTY};
use crate::tiers::thread_cache::Heap;

/// What a hook is told.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// When this is.
    pub moment: Moment,
    /// The block; null before an allocation, and after one that found no memory.
    pub block: *mut u8,
    /// Allocations: bytes asked for. Frees: bytes that the block holds.
    pub size: usize,
    /// Allocations: the alignment asked for, at least 16. Frees: 0.
    pub align: usize,
}

/// A hook: called with the event and its context, on the thread that allocates or frees.
pub type Hook = extern "C" fn(event: &Event, context: *mut c_void);

/// Names a hook, for its removal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HookId(pub u64);

const PLACES: usize = 128;

/// Some places, and where there are more. Places are never given back; free ones are used again.
struct Chunk {
    places: [Place; PLACES],
    next: AtomicPtr<Chunk>,
}

static FIRST: Chunk = Chunk { places: [const { Place::new() }; PLACES], next: AtomicPtr::new(core::ptr::null_mut()) };

/// Hooks that there are. Held by who adds or removes one.
static COUNT: SpinLock<usize> = SpinLock::new(0);

fn chunks() -> impl Iterator<Item = &'static Chunk> {
    // SAFETY: chunks are never unmapped.
    core::iter::successors(Some(&FIRST), |chunk| unsafe { chunk.next.load(Ordering::Acquire).as_ref() })
}

fn places() -> impl Iterator<Item = (u64, &'static Place)> {
    chunks().flat_map(|chunk| &chunk.places).enumerate().map(|(at, place)| (at as u64, place))
}

/// Adds a hook; it sees what begins from now on, on every thread. `None` without memory, or in a signal handler that
/// interrupted the pool.
pub fn add_hook(hook: Hook, context: *mut c_void) -> Option<HookId> {
    let Entry::Heap(entered) = entry::enter() else { return None };
    let mut count = COUNT.lock(entered.slow);
    let put = || places().find_map(|(at, place)| Some((at, place.put(hook as usize, context.expose_provenance())?)));
    let (at, number) = put().or_else(|| if add_chunk() { put() } else { None })?;
    *count += 1;
    detour::turn_on(entered.slow, Reason::Hooks);
    Some(HookId(at << 32 | u64::from(number)))
}

fn add_chunk() -> bool {
    let memory = os::map(size_of::<Chunk>()).cast::<Chunk>();
    // A zeroed chunk is one of free places.
    let last = chunks().last().filter(|_| !memory.is_null());
    last.is_some_and(|last| {
        last.next.store(memory, Ordering::Release);
        true
    })
}

/// Removes a hook. When this returns, no thread is in it and none will be, unless it was called from a hook: then only
/// the second holds. False if there is no such hook.
pub fn remove_hook(id: HookId) -> bool {
    let Some((_, place)) = places().find(|(at, _)| *at == id.0 >> 32) else { return false };
    {
        let Entry::Heap(entered) = entry::enter() else { return false };
        let mut count = COUNT.lock(entered.slow);
        if !place.take(id.0 as u32) {
            return false;
        }
        *count -= 1;
        if *count == 0 {
            detour::turn_off(Reason::Hooks);
        }
    }
    let in_hook = this_heap().is_some_and(|heap| heap.calls.in_hook.get());
    let mut tries = 0;
    while !in_hook && place.is_in_use() {
        tries += 1;
        os::give_way(tries);
    }
    true
}

/// Whether the calling thread's calls are to be reported now.
#[inline]
pub fn are_on() -> bool {
    reasons::is_on_for(Reason::Hooks)
}

/// The calling thread's heap, unless its time has not come or is over.
fn this_heap() -> Option<&'static Heap> {
    let home = thread_pointer::home().cast_const();
    let is_static = home == &raw const EMPTY || home == &raw const DYING;
    // SAFETY: any other value is the heap of this thread.
    (!is_static).then(|| unsafe { &*home })
}

/// While it lives, the thread's calls are reported to nobody.
struct Quiet(&'static Cell<bool>);

impl Quiet {
    /// `None` if that is so already, or the thread has no heap.
    fn begin() -> Option<Quiet> {
        let heap = match this_heap() {
            Some(heap) => heap,
            // A thread's first call.
            None => {
                drop(entry::enter());
                this_heap()?
            }
        };
        (!heap.calls.in_hook.replace(true)).then(|| Quiet(&heap.calls.in_hook))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

fn call(event: &Event) {
    for (_, place) in places() {
        place.call(|hook, context| {
            // SAFETY: `add_hook` put a function of this type there.
            let hook = unsafe { core::mem::transmute::<usize, Hook>(hook) };
            hook(event, core::ptr::with_exposed_provenance_mut(context));
        });
    }
}

/// An allocation with its reports.
pub fn around_alloc<T>(size: usize, align: usize, allocate: impl FnOnce() -> T, block_of: impl Fn(&T) -> *mut u8) -> T {
    let Some(_quiet) = Quiet::begin() else { return allocate() };
    let event = Event { moment: Moment::BeforeAlloc, block: core::ptr::null_mut(), size, align: align.max(16) };
    call(&event);
    let result = allocate();
    call(&Event { moment: Moment::AfterAlloc, block: block_of(&result), ..event });
    result
}

/// A free with its reports; `size` is what the block holds.
pub fn around_free(block: *mut u8, size: impl FnOnce() -> usize, free: impl FnOnce()) {
    let Some(_quiet) = Quiet::begin() else { return free() };
    let event = Event { moment: Moment::BeforeFree, block, size: size(), align: 0 };
    call(&event);
    free();
    call(&Event { moment: Moment::AfterFree, ..event });
}

/// A `realloc` with its reports: `held` is what the old block holds.
pub fn around_realloc(
    block: *mut u8,
    held: usize,
    size: usize,
    align: usize,
    realloc: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let Some(_quiet) = Quiet::begin() else { return realloc() };
    let alloc = Event { moment: Moment::BeforeAlloc, block: core::ptr::null_mut(), size, align: align.max(16) };
    let free = Event { moment: Moment::BeforeFree, block, size: held, align: 0 };
    call(&alloc);
    call(&free);
    let new = realloc();
    // Without memory, the old block stays what it was: nothing was freed.
    if !new.is_null() {
        call(&Event { moment: Moment::AfterFree, ..free });
    }
    call(&Event { moment: Moment::AfterAlloc, block: new, ..alloc });
    new
}
