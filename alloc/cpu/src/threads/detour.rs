//! Detours: how threads are kept off their fast paths, at no cost while nobody asks for it.
//!
//! A thread whose first word ([`crate::threads::thread_pointer`]) points at [`DETOUR`] finds empty lists and owns no
//! slab: every `malloc` and `free` of it takes the slow path, and there its own heap. Who wants to see every call
//! (hooks, the hardened mode) turns the detour on for all threads; the garbage collector closes the one thread whose
//! cache it is about to take away.
//!
//! Another thread's word is changed by compare-and-exchange, its owner changes it by plain stores in the slow path. A
//! thread that leaves the slow path therefore looks at [`REASONS`] after its store, and who turns the detour on makes
//! all running threads pass a memory barrier (`membarrier`) before looking at their words: so one of the two sees the
//! other.

mod gate;

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::reasons::{REASONS, Reason};

use gate::Gate;

use crate::kernel::os;
use crate::sync::spin_lock::SlowPath;
use crate::threads::heaps::for_each_heap;
use crate::threads::thread_pointer;
use crate::tiers::static_heaps::DETOUR;
use crate::tiers::thread_cache::Heap;

/// Leads all threads through the slow path from now on. Those in the middle of a fast path finish it.
pub fn turn_on(slow: SlowPath, reason: Reason) {
    if !gate::add_reason(&REASONS, reason as usize, os::barrier_on_all_threads) {
        return;
    }
    for_each_heap(|heap| {
        let _closing = heap.path.closing.lock(slow);
        if let Some(gate) = gate_of(heap) {
            gate.close();
        }
    });
}

/// The same for the only thread of a process, which is in the slow path.
pub fn turn_on_alone(reason: Reason) {
    REASONS.fetch_or(reason as usize, Ordering::SeqCst);
}

/// Ends it. Each thread is back on its fast path after its next call.
pub fn turn_off(reason: Reason) {
    REASONS.fetch_and(!(reason as usize), Ordering::SeqCst);
}

/// Calls `take` with the fast path of the thread that has `heap` closed, if `sleeps` says that the thread sleeps; it
/// stays closed if `take` says so. The caller holds [`closing`](crate::tiers::notes::Path::closing).
pub fn take_from_sleeper(heap: &'static Heap, sleeps: impl FnOnce() -> bool, take: impl FnOnce() -> bool) -> bool {
    gate_of(heap).is_some_and(|gate| gate.take_from_sleeper(&REASONS, sleeps, take))
}

fn gate_of(heap: &'static Heap) -> Option<Gate<'static>> {
    let word = heap.path.thread_word.load(Ordering::Acquire);
    // A thread that ended by the bare system call cleared nothing, and its stack may be gone.
    if word.is_null() || !os::is_readable(word.addr()) {
        return None;
    }
    // SAFETY: a thread clears `thread_word` under `closing` before its word goes; one that does not was just looked
    // for. An aligned pointer is an AtomicUsize.
    let word = unsafe { AtomicUsize::from_ptr(word.cast()) };
    Some(Gate { word, open: (&raw const *heap).addr(), closed: (&raw const DETOUR).addr() })
}

/// Ends the calling thread's slow path: `heap` is its own.
#[inline]
pub fn leave(heap: &'static Heap) {
    let (open, closed) = ((&raw const *heap).expose_provenance(), (&raw const DETOUR).expose_provenance());
    gate::leave(&REASONS, open, closed, |value| thread_pointer::set(core::ptr::with_exposed_provenance_mut(value)));
}
