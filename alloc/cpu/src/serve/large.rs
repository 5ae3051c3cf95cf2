//! Large blocks with their samples: what [`crate::tiers::large`] has no idea of.

use poolscope_capture::Caller;

use crate::layout::misuse;
use crate::layout::slab::{NO_SLOT, Slab};
use crate::sampler;
use crate::sampling::budget::Budget;
use crate::segment::publish::publish_tiers;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::large;
use crate::tiers::publish::publish_uncached;
use crate::tiers::thread_cache::Heap;

/// Allocates `size` bytes at a multiple of `align`, for the program's call at `caller`; the second value tells whether
/// they read as zero. `None` without memory.
#[cold]
pub fn alloc(
    slow: SlowPath,
    heap: &'static Heap,
    size: usize,
    align: usize,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    if sampler::is_refused(slow, heap) {
        return None;
    }
    let span = large::alloc(slow, size, align)?;
    Some(begin(slow, heap, span, size, caller))
}

/// Allocates `size` bytes that are likely to become more, and whether they read as zero. `None` without memory.
#[cold]
pub fn alloc_growing(slow: SlowPath, heap: &'static Heap, size: usize) -> Option<(*mut u8, bool)> {
    if sampler::is_refused(slow, heap) {
        return None;
    }
    let span = large::alloc_growing(slow, size)?;
    Some(begin(slow, heap, span, size, &Caller::here()))
}

/// Samples a new block, if that is due. The block, and whether it reads as zero.
fn begin(slow: SlowPath, heap: &'static Heap, span: &'static Slab, size: usize, caller: &Caller) -> (*mut u8, bool) {
    let budget = heap.large_budget(size, (caller.pc, caller.sp));
    let due = heap.large_is_due(budget, span.bytes());
    heap.uncached.count(1, span.bytes());
    expose(budget, span);
    if due {
        sample(slow, heap, budget, span, caller);
    }
    publish_tiers();
    publish_uncached(heap);
    (span.address(), span.is_zero())
}

/// Notes that the budget has seen the block's new bytes.
fn expose(budget: &Budget, span: &'static Slab) {
    span.expose(budget.exposure(span.unexposed()));
}

fn sample(slow: SlowPath, heap: &'static Heap, budget: &Budget, span: &'static Slab, caller: &Caller) {
    let drawn = (budget, span.exposure().into());
    let slot = sampler::sample_large(slow, heap, span.address(), span.aux.get(), drawn, caller);
    span.set_live_slot(slot);
}

/// Frees the large block at `p`.
pub fn free(slow: SlowPath, span: &'static Slab, p: *mut u8) {
    if p != span.address() {
        misuse::not_a_start(p, p as usize - span.address() as usize, span.bytes());
    }
    forget(slow, span);
    large::free(slow, span);
}

/// Takes the record of a block that ends out.
fn forget(slow: SlowPath, span: &'static Slab) {
    let slot = span.live_slot();
    span.set_live_slot(NO_SLOT);
    if slot != NO_SLOT {
        sampler::free_large(slow, slot);
    }
}

/// Changes a large block's size in place. False if there is no room behind it.
pub fn resize_in_place(slow: SlowPath, heap: &'static Heap, span: &'static Slab, size: usize) -> bool {
    let (before, bytes) = (span.aux.get(), span.bytes());
    if !large::resize_in_place(slow, span, size) {
        return false;
    }
    heap.uncached.count(0, span.bytes().saturating_sub(bytes));
    // In a scope of the leak checker, all that is allocated is recorded; what only grows there was allocated elsewhere.
    let more = span.unexposed();
    if more > 0 && heap.sampling.scope.get() == 0 {
        // Each buffer that grows is a place of its own.
        let budget = heap.large_budget(size, (span.address() as usize, 0));
        let due = span.live_slot() == NO_SLOT && heap.large_is_due(budget, more);
        expose(budget, span);
        if due {
            sample(slow, heap, budget, span, &Caller::here());
            return true;
        }
    }
    resized(slow, heap, span, before);
    true
}

/// Moves a large block's memory to a new, larger block without copying it. The new block; `None` if the kernel can't,
/// and the block is as it was.
pub fn move_to_larger(slow: SlowPath, heap: &'static Heap, span: &'static Slab, size: usize) -> Option<*mut u8> {
    let new = large::move_to_larger(slow, span, size)?;
    let (p, _) = begin(slow, heap, new, size, &Caller::here());
    forget(slow, span);
    large::end_moved(slow, span);
    Some(p)
}

/// Notes a new size of a block that stays where it is.
pub fn resize(slow: SlowPath, heap: &'static Heap, span: &'static Slab, size: usize) {
    let before = span.aux.replace(size);
    resized(slow, heap, span, before);
}

fn resized(slow: SlowPath, heap: &'static Heap, span: &'static Slab, before: usize) {
    if span.live_slot() != NO_SLOT {
        sampler::resize_large(slow, heap, span, before);
    }
}
