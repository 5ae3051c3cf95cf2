//! The full trace: every allocation and every free, for one recorder in another process.
//!
//! A recorder asks for it by a word in the segment's header. Whoever is in the slow path and sees the word changed
//! ([`poll`]) answers it: it makes the trace's file ([`session`]) and closes the fast path of all threads
//! ([`crate::threads::detour`]). From then on each call comes by `calls/traced.rs`, which serve it from the
//! thread's own lists as the fast path would, and write an event to the thread's ring ([`ring`]). While nobody records,
//! the fast path has no instruction for it.
//!
//! Threads share nothing: a stack is known by a slot of the thread's own table ([`thread`]), and its return addresses
//! are sent through the ring when the slot gets a new one.
//!
//! A free is traced before the block is free, an allocation after it was made: what another thread does with the block
//! in between can't come first. A `realloc` is traced as the allocation of the new block and the free of the old one,
//! after it happened. Blocks of a device's memory come from pools of their own, which hear of a trace by [`add_pool`]
//! and tell of their blocks by [`device`]. Not traced is what the pool allocates for its own captures, what a signal
//! handler does that interrupted the pool, and what a forked child does: it has its own segment, and is recorded by itself
//! if the recorder asked for that ([`session::join`]) or comes for it.
//!
//! The program never depends on the recorder: a full ring is counted (or waited for, for a bounded time, if that was
//! asked for), and when the recorder is gone, recording ends by itself.

pub mod device_pools;
pub mod handshake;
mod mappings;
pub mod ring;
mod room;
mod scripts;
pub mod session;
pub mod thread;

use poolscope_capture::Caller;
use poolscope_wire::trace::DeviceEvent;

use crate::sync::reasons::{self, Reason};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;

pub use session::{add_pool, forget, fork_lock, poll, remove_pool, wait_for_recorder};

/// Whether calls are to be traced.
#[inline(always)]
pub fn is_on() -> bool {
    reasons::is_on_for(Reason::Trace)
}

/// Whether a call of the thread that has `heap` is traced: not what capture allocates, nor the parts of a `realloc`.
#[inline(always)]
pub fn is_traced(heap: &Heap) -> bool {
    !heap.sampling.in_sampler.get() && !heap.calls.in_realloc.get()
}

/// A block of a device's memory is allocated or freed by another pool of the process.
pub fn device(heap: &'static Heap, slow: SlowPath, event: DeviceEvent) {
    if is_on() && is_traced(heap) {
        thread::note_device(heap, slow, event, Caller::here());
    }
}
