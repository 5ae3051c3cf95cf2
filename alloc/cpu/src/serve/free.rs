//! Where a block goes that is freed: to its heap, to another's, to the central cache, the sampler, or the page heap.

use core::sync::atomic::Ordering;

use crate::layout::arena;
use crate::layout::block::{Batch, BlockPtr};
use crate::layout::misuse;
use crate::layout::slab::{Slab, owner};
use crate::sampler;
use crate::serve::{large, reentrant};
use crate::sync::reasons;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;
use crate::tiers::{give_back, transfer_cache};

/// Frees a block wherever it belongs, in the slow path of the thread that has `heap`, or of one that has none.
pub fn free(slow: SlowPath, heap: Option<&'static Heap>, block: BlockPtr) {
    let Some(slab) = slab_of(block) else { return };
    match slab.owner.load(Ordering::Acquire) {
        owner::NONE => misuse::invalid(block.address()),
        owner::SAMPLED => sampler::free_block(slow, slab, block),
        owner::LARGE => large::free(slow, slab, block.address()),
        tag => {
            misuse::check_start(slab, block);
            match heap {
                Some(heap) if tag != owner::CENTRAL && tag != heap.tag() => heap.free_remote(slow, slab, block),
                _ => free_here(slow, heap, slab, block, tag),
            }
        }
    }
}

/// Frees a block of a slab that is the thread's own or the central cache's, or for a thread without a heap.
#[inline(always)]
fn free_here(slow: SlowPath, heap: Option<&'static Heap>, slab: &'static Slab, block: BlockPtr, tag: usize) {
    if let Some(heap) = heap
        && tag == owner::CENTRAL
    {
        heap.take_over(slow, slab);
    }
    if let Some(heap) = heap
        && tag == heap.tag()
        && reasons::is_counting()
    {
        heap.check_free(slab, block);
        let class = slab.class.get();
        if class.is_medium() {
            return heap.free_medium(slow, class, block);
        }
    }
    give_back::batch(slow, heap, Batch::of(block));
}

/// Frees what signal handlers left behind.
#[inline]
pub fn take_in_waiting(slow: SlowPath, heap: &'static Heap) {
    if reentrant::WAITING.has_some() {
        take_in_now(slow, heap);
    }
}

#[cold]
#[inline(never)]
fn take_in_now(slow: SlowPath, heap: &'static Heap) {
    for batch in reentrant::WAITING.take() {
        transfer_cache::count_returned(Some(heap), batch);
        if !give_back::batch(slow, Some(heap), batch) {
            // A single block: a handler leaves no others of such slabs.
            free(slow, Some(heap), batch.first);
        }
    }
}

/// The slab of a block; `None` if the block was a mapping of its own, which is gone now.
fn slab_of(block: BlockPtr) -> Option<&'static Slab> {
    let p = block.address();
    let Some(page) = arena::page_of(p) else {
        if !reentrant::free_mapping(p) {
            misuse::invalid(p);
        }
        return None;
    };
    Some(page.head())
}
