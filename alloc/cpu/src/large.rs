//! Large blocks: over 256 KiB, or aligned to more than a page of the arena. Each has a span of its own.

use core::sync::atomic::Ordering;

use crate::arena::PAGE;
use crate::size_class::SizeClass;
use crate::slab::{NO_SLOT, Slab, owner};
use crate::spin_lock::SlowPath;
use crate::stats::{self, TierCounter};
use crate::thread_cache::Heap;
use crate::{page_heap, sampler};

/// Allocates `size` bytes at a multiple of `align`; the second value tells whether they read as zero. `None` without
/// memory.
#[cold]
pub fn alloc(slow: SlowPath, heap: &'static Heap, size: usize, align: usize) -> Option<(*mut u8, bool)> {
    if size > isize::MAX as usize - PAGE {
        return None;
    }
    let pages = size.div_ceil(PAGE).max(1);
    let span = page_heap::alloc(slow, u32::try_from(pages).ok()? as usize, (align / PAGE).max(1))?;
    span.class.set(SizeClass(0));
    span.aux.set(size);
    span.live_slot().set(NO_SLOT);
    span.owner.store(owner::LARGE, Ordering::Release);
    stats::add(TierCounter::LargeBytes, span.bytes() as u64);
    stats::add(TierCounter::LargeObjects, 1);
    stats::add(TierCounter::LargeAllocs, 1);
    let left = heap.large_budget.get() - span.bytes() as i64;
    heap.large_budget.set(left);
    if (left <= 0 || sampler::records_all(heap)) && !heap.in_sampler.get() {
        heap.large_budget.set(sampler::draw(heap));
        span.live_slot().set(sampler::sample_large(slow, heap, span.address(), size, span.bytes()));
    }
    sampler::publish_tiers();
    Some((span.address(), span.is_zero()))
}

/// Frees a large block.
pub fn free(slow: SlowPath, span: &'static Slab) {
    let slot = span.live_slot().replace(NO_SLOT);
    if slot != NO_SLOT {
        sampler::free_large(slow, slot);
    }
    stats::sub(TierCounter::LargeBytes, span.bytes() as u64);
    stats::sub(TierCounter::LargeObjects, 1);
    stats::add(TierCounter::LargeFrees, 1);
    span.end_large();
    page_heap::free(slow, span);
    sampler::publish_tiers();
}

/// Notes a new size of a block that stays where it is.
pub fn resize(slow: SlowPath, span: &'static Slab, size: usize) {
    span.aux.set(size);
    if span.live_slot().get() != NO_SLOT {
        sampler::resize_large(slow, span.live_slot().get(), size);
    }
}
