//! Giving back everything that nobody uses, at once.

use crate::entry::{self, Entry};
use crate::segment::counters;
use crate::serve::reclaim;
use crate::threads::heaps;

/// Gives all memory back to the kernel that no block is in: the calling thread's cache, those of threads that sleep in
/// a system call (Linux on x86-64), empty slabs of sampled blocks, and all free spans. Returns the bytes that went from
/// the page heap. What threads hold that run at this moment stays theirs.
pub fn release_unused() -> usize {
    let Entry::Heap(entered) = entry::enter() else { return 0 };
    reclaim::release(entered.slow, entered.heap)
}

/// [`release_unused`], and counts anew: what ran before is in no counter any more. Gauges (bytes and objects that are
/// there) stay, and so do the profile's samples. Returns the bytes given back.
pub fn reset() -> usize {
    let Entry::Heap(entered) = entry::enter() else { return 0 };
    let bytes = reclaim::release(entered.slow, entered.heap);
    heaps::for_each_heap(|heap| {
        if core::ptr::eq(heap, entered.heap) || heaps::has_no_thread(heap) {
            heap.count_anew();
        }
    });
    counters::count_anew();
    bytes
}
