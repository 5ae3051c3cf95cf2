//! Large blocks: over 256 KiB, or aligned to more than a page of the arena. Each has a span of its own.

use crate::layout::arena::ARENA_PAGE;
use crate::layout::lean;
use crate::layout::slab::Slab;
use crate::pages::keeper;
use crate::pages::page_heap;
use crate::pages::remap::{self, Moved};
use crate::pages::system::Kernel;
use crate::segment::counters::{self, TierCounter};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::give_back;

/// Pages for a block of `size` bytes; `None` if no span can be so long.
fn pages_for(size: usize) -> Option<usize> {
    let pages = size.div_ceil(ARENA_PAGE).max(1);
    (size <= isize::MAX as usize - ARENA_PAGE && u32::try_from(pages).is_ok()).then_some(pages)
}

/// Allocates `size` bytes at a multiple of `align`. `None` without memory.
#[cold]
pub fn alloc(slow: SlowPath, size: usize, align: usize) -> Option<&'static Slab> {
    let pages = pages_for(size)?;
    let span = if align <= ARENA_PAGE && !lean::is_on() {
        page_heap::alloc_large(slow, pages)?
    } else {
        page_heap::alloc(slow, pages, (align / ARENA_PAGE).max(1))?
    };
    let span = opened(slow, span, size)?;
    begin(span, size);
    Some(span)
}

/// Allocates `size` bytes that are likely to become more. `None` without memory.
#[cold]
pub fn alloc_growing(slow: SlowPath, size: usize) -> Option<&'static Slab> {
    let span = opened(slow, page_heap::alloc_with_room(slow, pages_for(size)?)?, size)?;
    begin(span, size);
    Some(span)
}

/// A span with `size` usable bytes. `None` without memory: it goes back.
fn opened(slow: SlowPath, span: &'static Slab, size: usize) -> Option<&'static Slab> {
    if lean::is_on() && !lean::open(span, 0, lean::pages_of(size)) {
        give_back::span(slow, span);
        return None;
    }
    Some(span)
}

/// Bytes of a large block that may be used.
pub fn usable(span: &Slab) -> usize {
    if lean::is_on() { lean::pages_of(span.aux.get()) } else { span.bytes() }
}

/// Makes a span one block, which is not sampled.
fn begin(span: &'static Slab, size: usize) {
    span.begin_large(size);
    counters::add(TierCounter::LargeBytes, span.bytes() as u64);
    counters::add(TierCounter::LargeObjects, 1);
    counters::add(TierCounter::LargeAllocs, 1);
}

/// Frees a large block that no record is of any more.
pub fn free(slow: SlowPath, span: &'static Slab) {
    end(span);
    give_up(slow, span);
}

/// Takes a block that ends out of all books.
fn end(span: &'static Slab) {
    counters::sub(TierCounter::LargeBytes, span.bytes() as u64);
    counters::sub(TierCounter::LargeObjects, 1);
    counters::add(TierCounter::LargeFrees, 1);
    span.end_large();
}

/// Gives a span back that is no block any more. One that memory was moved to becomes like others first, if it has to.
fn give_up(slow: SlowPath, span: &'static Slab) {
    match span.moved().replace(0) {
        mappings if mappings > 0 && remap::is_crowded() => {
            keeper::notice(slow, page_heap::free_renewed(slow, span, mappings));
        }
        _ => give_back::span(slow, span),
    }
}

/// Changes a large block's size in place. False if there is no room behind it.
pub fn resize_in_place(slow: SlowPath, span: &'static Slab, size: usize) -> bool {
    let Some(pages) = pages_for(size) else { return false };
    let (before, usable_before) = (span.bytes(), usable(span));
    let renew = span.moved().get() > 0 && remap::is_crowded();
    let rest = if renew { page_heap::cut(slow, span, pages) } else { None };
    if rest.is_none() && !page_heap::resize(slow, span, pages) {
        return false;
    }
    if let Some(rest) = rest {
        keeper::notice(slow, page_heap::free_renewed(slow, rest, 0));
    }
    if lean::is_on() {
        let usable = lean::pages_of(size);
        if !lean::open(span, usable_before, usable) {
            page_heap::resize(slow, span, before / ARENA_PAGE);
            return false;
        }
        lean::close(span, usable, usable_before.min(span.bytes()));
    }
    counters::add(TierCounter::LargeBytes, span.bytes() as u64);
    counters::sub(TierCounter::LargeBytes, before as u64);
    span.aux.set(size);
    true
}

/// Moves a large block's memory to a new, larger block without copying it. The new block, while the old one is still in
/// the books ([`end_moved`]); `None` if the kernel can't, and the block is as it was.
pub fn move_to_larger(slow: SlowPath, span: &'static Slab, size: usize) -> Option<&'static Slab> {
    // A block that grows will grow again: with room behind it, in place.
    let new = page_heap::alloc_with_room(slow, pages_for(size)?)?;
    let moved = if page_heap::can_move(slow, span, new) {
        // SAFETY: both spans are in use and apart; the new one holds nothing yet.
        unsafe { remap::move_pages(&Kernel, span.address(), new.address(), span.bytes()) }
    } else {
        Moved::No
    };
    match moved {
        Moved::Yes(mappings) => {
            begin(new, size);
            new.moved().set(mappings);
            Some(new)
        }
        Moved::No => {
            give_back::span(slow, new);
            None
        }
        Moved::Lost => {
            // Somebody else's memory may be there: it is a block that nobody frees.
            counters::add(TierCounter::LargeBytes, new.bytes() as u64);
            counters::add(TierCounter::LargeObjects, 1);
            counters::add(TierCounter::LargeAllocs, 1);
            None
        }
    }
}

/// Frees a block whose memory was moved away. One that memory was moved to before becomes like what lies around it at
/// once: it is empty, so that this costs no memory, and nothing would do so later.
pub fn end_moved(slow: SlowPath, span: &'static Slab) {
    end(span);
    match span.moved().replace(0) {
        0 => page_heap::free_zeroed(slow, span),
        mappings => keeper::notice(slow, page_heap::free_renewed(slow, span, mappings)),
    }
}
