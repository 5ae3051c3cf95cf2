//! Detours: how threads are kept off their fast paths, at no cost while nobody asks for it.
//!
//! A thread whose first word ([`crate::thread_pointer`]) points at [`DETOUR`] finds empty lists and owns no slab: every
//! `malloc` and `free` of it takes the slow path, and there its own heap. Who wants to see every call (hooks, the
//! hardened mode) turns the detour on for all threads; the garbage collector closes the one thread whose cache it is
//! about to take away.
//!
//! Another thread's word is changed by compare-and-exchange, its owner changes it by plain stores in the slow path. A
//! thread that leaves the slow path therefore looks at [`is_on`] after its store, and who turns the detour on makes
//! all running threads pass a memory barrier (`membarrier`) before looking at their words: so one of the two sees the
//! other.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::os;
use crate::registry;
use crate::spin_lock::SlowPath;
use crate::thread_cache::{DETOUR, Heap};
use crate::thread_pointer;

/// Who wants to see every call.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Reason {
    /// There are hooks.
    Hooks = 1,
    /// The hardened mode is on.
    #[allow(dead_code, reason = "the hardened mode is about to come")]
    Hardened = 2,
}

/// Reasons that hold, as bits.
static REASONS: AtomicU32 = AtomicU32::new(0);

/// Whether all threads are to take the slow path.
#[inline]
pub fn is_on() -> bool {
    REASONS.load(Ordering::Relaxed) != 0
}

/// Whether a reason holds.
#[inline]
pub fn is_on_for(reason: Reason) -> bool {
    REASONS.load(Ordering::Relaxed) & reason as u32 != 0
}

/// Leads all threads through the slow path from now on. Those in the middle of a fast path finish it.
pub fn turn_on(slow: SlowPath, reason: Reason) {
    if REASONS.fetch_or(reason as u32, Ordering::SeqCst) & reason as u32 != 0 {
        return;
    }
    os::barrier_on_all_threads();
    registry::for_each_heap(|heap| {
        let _closed = heap.closing.lock(slow);
        close(heap);
    });
}

/// Ends it. Each thread is back on its fast path after its next call.
pub fn turn_off(reason: Reason) {
    REASONS.fetch_and(!(reason as u32), Ordering::SeqCst);
}

/// Closes the fast path of the thread that has `heap`, if it is open. The caller holds [`Heap::closing`].
pub fn close(heap: &'static Heap) -> bool {
    exchange(heap, heap, &DETOUR)
}

/// Takes [`close`] back.
pub fn open(heap: &'static Heap) {
    exchange(heap, &DETOUR, heap);
}

/// Whether the thread that has `heap` will take the slow path at its next call, and is not in it. The caller holds
/// [`Heap::closing`].
pub fn is_closed(heap: &'static Heap) -> bool {
    word_of(heap).is_some_and(|word| core::ptr::eq(word.load(Ordering::SeqCst), &raw const DETOUR))
}

fn word_of(heap: &'static Heap) -> Option<&'static AtomicPtr<Heap>> {
    let word = heap.thread_word.load(Ordering::Acquire);
    // SAFETY: a thread clears `thread_word` under `closing` before its word goes; an aligned pointer is an AtomicPtr.
    (!word.is_null()).then(|| unsafe { AtomicPtr::from_ptr(word) })
}

fn exchange(heap: &'static Heap, from: &Heap, to: &Heap) -> bool {
    let (from, to) = ((&raw const *from).cast_mut(), (&raw const *to).cast_mut());
    word_of(heap).is_some_and(|word| word.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok())
}

/// Ends the calling thread's slow path: `heap` is its own.
#[inline]
pub fn leave(heap: &'static Heap) {
    thread_pointer::set((&raw const *heap).cast_mut());
    if is_on() {
        thread_pointer::set((&raw const DETOUR).cast_mut());
    }
}
