//! The way back: blocks to the heap or the central cache that has their slab, and spans to the page heap.

use core::sync::atomic::Ordering;

use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::block::Batch;
use crate::layout::slab::{Slab, owner};
use crate::pages::{keeper, page_heap};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::{Heap, heap_of};
use crate::tiers::{central_cache, transfer_cache};

/// Frees a batch of blocks of one slab, for the heap that the calling thread has, if any. False if the slab is none of
/// a heap or of the central cache: then nothing is done.
pub fn batch(slow: SlowPath, heap: Option<&'static Heap>, batch: Batch) -> bool {
    let Some(page) = arena::page_of(batch.first.address()) else { return false };
    let slab = page.head();
    loop {
        match slab.owner.load(Ordering::Acquire) {
            owner::NONE | owner::SAMPLED | owner::LARGE => return false,
            // A thread may take the slab over before its lock is had: then it has another owner.
            owner::CENTRAL if central_cache::free(slow, slab, batch) => return true,
            owner::CENTRAL => {}
            tag => {
                // SAFETY: any other tag is a heap's.
                let heap_of_slab = unsafe { heap_of(tag) };
                match heap {
                    Some(heap) if core::ptr::eq(heap, heap_of_slab) => own_batch(slow, heap, slab, batch),
                    _ => transfer_cache::deliver(slow, heap, heap_of_slab, batch),
                }
                return true;
            }
        }
    }
}

/// Frees a batch of blocks of a slab of the heap's own.
fn own_batch(slow: SlowPath, heap: &'static Heap, slab: &'static Slab, batch: Batch) {
    let class = slab.class.get();
    if class.is_medium() && !batch.counted {
        heap.medium.count_frees(class, batch.count);
    }
    // SAFETY: the slab is this heap's.
    let due = unsafe { slab.push_batch(batch) };
    if batch.counted && !class.is_medium() {
        slab.set_counted(slab.counted() + batch.count);
    } else {
        heap.count_freed(slab, batch.count);
    }
    if due {
        heap.on_countdown(slow, slab);
    }
}

/// Gives the span of a slab that has ended back to the page heap: pages that have no memory as what they are.
pub fn slab(slow: SlowPath, slab: &'static Slab) {
    let bytes = if slab.has_holes() { slab.bytes() } else { slab.touched_bytes() };
    let touched = bytes.div_ceil(ARENA_PAGE).max(1);
    keeper::notice(slow, page_heap::free_touched(slow, slab, touched));
}

/// Gives a span back to the page heap, and says what is free there.
pub fn span(slow: SlowPath, span: &'static Slab) {
    keeper::notice(slow, page_heap::free(slow, span));
}
