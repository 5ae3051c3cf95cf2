//! What nobody uses goes back at once: to the kernel, or to a request that finds no memory otherwise.

use crate::collector;
use crate::pages::page_heap;
use crate::sampler;
use crate::segment::publish;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;

/// Gives the memory back that no block is in, for a thread that is in the slow path (see `release_unused`). Returns the
/// bytes that went from the page heap.
pub fn release(slow: SlowPath, heap: &'static Heap) -> usize {
    heap.retire_all(slow);
    collector::collect_sleeping(slow);
    sampler::release_empty(slow);
    let bytes = page_heap::release_all(slow);
    publish::publish_tiers();
    bytes
}
