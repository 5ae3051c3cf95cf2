//! The heartbeat: what the pool does beside serving, and when.
//!
//! The fast path does nothing but serve. All that has to happen again and again hangs on the moments when a thread is
//! in the slow path anyway: each allocation there ([`poll`]), and each refill ([`refill`]).

use crate::census;
use crate::layout::size_class::SizeClass;
use crate::pages::keeper;
use crate::segment::publish::publish_tiers;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::publish::publish_class;
use crate::tiers::thread_cache::Heap;
use crate::tracer;

/// At each allocation of the slow path: whether a recorder asks for something.
#[inline(always)]
pub fn poll(slow: SlowPath) {
    tracer::poll(slow);
}

/// Makes blocks of `class` ready in the thread's heap, or the next one due to be sampled. False without memory.
///
/// Before it, what other threads freed comes in: it may be what is missing. After it, who gives idle memory back is
/// told how much the thread keeps, and the counters are published. A function of its own: what it needs of the heap is
/// not looked up for a sample.
#[inline(never)]
pub fn refill(slow: SlowPath, heap: &'static Heap, class: SizeClass) -> bool {
    heap.drain(slow);
    let refilled = heap.refill(slow, class);
    if heap.calls.took_slab.take() {
        tracer::thread::note_time(heap);
        publish_tiers();
    }
    tracer::thread::note_taken_in(heap);
    if refilled {
        keeper::notice(slow, heap.medium.reserved());
        publish_class(heap, class);
        census::watch_again(slow);
    }
    refilled
}
