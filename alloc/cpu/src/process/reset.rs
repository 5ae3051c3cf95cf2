//! Giving back everything that nobody uses, at once.

use crate::entry::registry::{self, Entry};
use crate::pages::page_heap;
use crate::process::scavenger;
use crate::sampler;
use crate::segment::counters;
use crate::segment::publish;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;

/// Gives all memory back to the kernel that no block is in: the calling thread's cache, those of threads that sleep in
/// a system call (Linux on x86-64), empty slabs of sampled blocks, and all free spans. Returns the bytes that went from
/// the page heap. What threads hold that run at this moment stays theirs.
pub fn release_unused() -> usize {
    let Entry::Heap(entered) = registry::enter() else { return 0 };
    release(entered.slow, entered.heap)
}

/// What [`release_unused`] does, for a thread that is in the slow path already.
pub fn release(slow: SlowPath, heap: &'static Heap) -> usize {
    heap.retire_all(slow);
    scavenger::collect_sleeping(slow);
    sampler::release_empty(slow);
    let bytes = page_heap::release_all(slow);
    publish::publish_tiers();
    bytes
}

/// [`release_unused`], and counts anew: what ran before is in no counter any more. Gauges (bytes and objects that are
/// there) stay, and so do the profile's samples. Returns the bytes given back.
pub fn reset() -> usize {
    let Entry::Heap(entered) = registry::enter() else { return 0 };
    let bytes = release(entered.slow, entered.heap);
    registry::for_each_heap(|heap| {
        if core::ptr::eq(heap, entered.heap) || registry::has_no_thread(heap) {
            heap.count_anew();
        }
    });
    counters::count_anew();
    bytes
}
