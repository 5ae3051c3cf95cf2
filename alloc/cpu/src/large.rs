//! Large blocks: over 256 KiB, or aligned to more than a page of the arena. Each has a span of its own.

use core::sync::atomic::Ordering;

use crate::arena::PAGE;
use crate::size_class::SizeClass;
use crate::slab::{NO_SLOT, Slab, owner};
use crate::spin_lock::SlowPath;
use crate::stats::{self, TierCounter};
use crate::thread_cache::Heap;
use crate::{os, page_heap, sampler};

/// Pages for a block of `size` bytes; `None` if no span can be so long.
fn pages_for(size: usize) -> Option<usize> {
    let pages = size.div_ceil(PAGE).max(1);
    (size <= isize::MAX as usize - PAGE && u32::try_from(pages).is_ok()).then_some(pages)
}

/// Allocates `size` bytes at a multiple of `align`; the second value tells whether they read as zero. `None` without
/// memory.
#[cold]
pub fn alloc(slow: SlowPath, heap: &'static Heap, size: usize, align: usize) -> Option<(*mut u8, bool)> {
    let span = page_heap::alloc(slow, pages_for(size)?, (align / PAGE).max(1))?;
    Some(begin(slow, heap, span, size))
}

/// Allocates `size` bytes that are likely to become more. `None` without memory.
#[cold]
pub fn alloc_growing(slow: SlowPath, heap: &'static Heap, size: usize) -> Option<*mut u8> {
    let span = page_heap::alloc_with_room(slow, pages_for(size)?)?;
    Some(begin(slow, heap, span, size).0)
}

/// Makes a span one block.
fn begin(slow: SlowPath, heap: &'static Heap, span: &'static Slab, size: usize) -> (*mut u8, bool) {
    span.class.set(SizeClass(0));
    span.aux.set(size);
    span.live_slot().set(NO_SLOT);
    span.owner.store(owner::LARGE, Ordering::Release);
    stats::add(TierCounter::LargeBytes, span.bytes() as u64);
    stats::add(TierCounter::LargeObjects, 1);
    stats::add(TierCounter::LargeAllocs, 1);
    if sampler::large_is_due(heap, span.bytes()) {
        span.live_slot().set(sampler::sample_large(slow, heap, span.address(), size, span.bytes()));
    }
    sampler::publish_tiers_sometimes(heap);
    (span.address(), span.is_zero())
}

/// Frees the large block at `p`.
pub fn free(slow: SlowPath, span: &'static Slab, p: *mut u8) {
    if p != span.address() {
        crate::free::not_a_start(p, p as usize - span.address() as usize, span.bytes());
    }
    forget(slow, span);
    page_heap::free(slow, span);
}

/// Takes a block that ends out of all books.
fn forget(slow: SlowPath, span: &'static Slab) {
    let slot = span.live_slot().replace(NO_SLOT);
    if slot != NO_SLOT {
        sampler::free_large(slow, slot);
    }
    stats::sub(TierCounter::LargeBytes, span.bytes() as u64);
    stats::sub(TierCounter::LargeObjects, 1);
    stats::add(TierCounter::LargeFrees, 1);
    span.end_large();
}

/// Changes a large block's size in place. False if there is no room behind it.
pub fn resize_in_place(slow: SlowPath, span: &'static Slab, size: usize) -> bool {
    let Some(pages) = pages_for(size) else { return false };
    let before = span.bytes();
    if !page_heap::resize(slow, span, pages) {
        return false;
    }
    stats::add(TierCounter::LargeBytes, span.bytes() as u64);
    stats::sub(TierCounter::LargeBytes, before as u64);
    resize(slow, span, size);
    true
}

/// Moves a large block's memory to a new, larger block without copying it. The new block; `None` if the kernel can't,
/// and everything is as it was.
pub fn move_to_larger(slow: SlowPath, heap: &'static Heap, span: &'static Slab, size: usize) -> Option<*mut u8> {
    // A block that grows will grow again: with room behind it, in place.
    let new = page_heap::alloc_with_room(slow, pages_for(size)?)?;
    let (p, _) = begin(slow, heap, new, size);
    // SAFETY: both spans are in use and apart, of memory of one kind; the new one holds nothing yet.
    if !page_heap::can_move(span, new) || !unsafe { os::move_pages(span.address(), p, span.bytes()) } {
        free(slow, new, p);
        return None;
    }
    forget(slow, span);
    page_heap::free_zeroed(slow, span);
    Some(p)
}

/// Notes a new size of a block that stays where it is.
pub fn resize(slow: SlowPath, span: &'static Slab, size: usize) {
    span.aux.set(size);
    if span.live_slot().get() != NO_SLOT {
        sampler::resize_large(slow, span.live_slot().get(), size);
    }
}
