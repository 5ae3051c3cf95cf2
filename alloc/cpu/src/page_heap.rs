//! The page heap: spans of pages, best fit, split and coalesced.
//!
//! Free spans wait in bins: one for each length up to 64 pages, then eight for each doubling. A request takes the
//! smallest span that fits, from the first bin that has one; freed spans merge with free neighbours, found through
//! the descriptors of the pages beside them. Memory that was given back to the kernel stays a free span: it reads
//! as zero and is mapped again when touched.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::arena::{Frontier, PAGE};
use crate::os;
use crate::scavenger;
use crate::settings;
use crate::slab::{Kind, Slab, SlabList, owner};
use crate::spin_lock::{SlowPath, SpinLock};
use crate::stats::{self, TierCounter};

const EXACT_BINS: usize = 64;
const BINS: usize = EXACT_BINS + 8 * 24;

/// Free bytes with memory behind them that the page heap keeps where no scavenger can be had.
const RETAIN_MIN: usize = 64 << 20;

struct PageHeap {
    frontier: Frontier,
    bins: [SlabList; BINS],
    occupied: [Cell<u64>; BINS.div_ceil(64)],
    /// Bytes in free spans that have memory behind them.
    resident_free: usize,
    used: usize,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for PageHeap {}

static PAGE_HEAP: SpinLock<PageHeap> = SpinLock::new(PageHeap {
    frontier: Frontier::new(),
    bins: [const { SlabList::new() }; BINS],
    occupied: [const { Cell::new(0) }; BINS.div_ceil(64)],
    resident_free: 0,
    used: 0,
});

/// Takes a span of `pages` pages whose first page number is a multiple of `align` pages. `None`: out of memory.
pub fn alloc(slow: SlowPath, pages: usize, align: usize) -> Option<&'static Slab> {
    let span = PAGE_HEAP.lock(slow).alloc(pages, align)?;
    stats::add(TierCounter::PageHeapAllocs, 1);
    Some(span)
}

/// Takes a span of `pages` pages behind which as many are free, if there are such.
pub fn alloc_with_room(slow: SlowPath, pages: usize) -> Option<&'static Slab> {
    let span = PAGE_HEAP.lock(slow).alloc_with_room(pages)?;
    stats::add(TierCounter::PageHeapAllocs, 1);
    Some(span)
}

/// Gives a span back. Its pages have no owner any more.
pub fn free(slow: SlowPath, span: &'static Slab) {
    span.set_zero(false);
    stats::add(TierCounter::PageHeapFrees, 1);
    let (free, release) = {
        let mut heap = PAGE_HEAP.lock(slow);
        heap.free(span);
        (heap.resident_free, heap.take_to_release())
    };
    if let Some(span) = release {
        release_span(slow, span);
    }
    scavenger::notice(slow, free);
}

/// Gives back a span whose memory was moved away: it reads as zero.
pub fn free_zeroed(slow: SlowPath, span: &'static Slab) {
    span.set_zero(true);
    stats::add(TierCounter::PageHeapFrees, 1);
    PAGE_HEAP.lock(slow).free(span);
}

/// Changes the length of a span that is in use, in place. False if what follows it is in use, too.
pub fn resize(slow: SlowPath, span: &'static Slab, pages: usize) -> bool {
    PAGE_HEAP.lock(slow).resize(span, pages)
}

/// Gives the memory of all free spans back to the kernel. Returns the bytes.
pub fn release_all(slow: SlowPath) -> usize {
    release(slow, usize::MAX)
}

/// Gives the memory of free spans back to the kernel, about `wanted` bytes. Returns how many it were.
pub fn release(slow: SlowPath, wanted: usize) -> usize {
    let mut bytes = 0;
    while bytes < wanted {
        let span = PAGE_HEAP.lock(slow).take_resident(1, (wanted - bytes).div_ceil(PAGE));
        let Some(span) = span else { break };
        bytes += span.bytes();
        if !release_span(slow, span) {
            break;
        }
    }
    bytes
}

/// Bytes of free spans that have memory behind them.
pub fn resident_free(slow: SlowPath) -> usize {
    PAGE_HEAP.lock(slow).resident_free
}

/// Gives reserved addresses back that an address space of `limit` bytes has no place for.
pub fn fit_reservation(slow: SlowPath, limit: usize) {
    PAGE_HEAP.lock(slow).frontier.fit(limit);
}

/// Gives a span that was taken out of the bins back to the kernel and puts it back as a free one. The kernel call
/// runs without the lock. False if the kernel refused.
fn release_span(slow: SlowPath, span: &'static Slab) -> bool {
    stats::add(TierCounter::SystemCalls, 1);
    // SAFETY: the span is free and was taken out of the bins: nothing else refers to its memory.
    let released = unsafe { os::decommit(span.address(), span.bytes()) };
    span.set_zero(released);
    PAGE_HEAP.lock(slow).free(span);
    released
}

/// For `fork`: takes the lock.
pub fn lock_for_fork() {
    PAGE_HEAP.lock_raw();
}

/// For `fork`: lets it go, in parent and child.
pub fn unlock_after_fork() {
    PAGE_HEAP.unlock_raw();
}

/// The bin that a free span of `pages` pages waits in.
fn bin_of(pages: usize) -> usize {
    if pages <= EXACT_BINS {
        return pages - 1;
    }
    let log = usize::BITS - 1 - pages.leading_zeros();
    let eighth = (pages >> (log - 3)) & 7;
    (EXACT_BINS + (log as usize - 6) * 8 + eighth).min(BINS - 1)
}

impl PageHeap {
    fn alloc(&mut self, pages: usize, align: usize) -> Option<&'static Slab> {
        let wanted = pages.checked_add(align - 1)?;
        let mut span = match self.best_fit(wanted) {
            Some(span) => {
                self.remove(span);
                span
            }
            None => {
                let (span, rest) = self.frontier.take(wanted)?;
                // The rest may follow it.
                mark(span, Kind::Used);
                if let Some(rest) = rest {
                    self.insert(rest);
                }
                span
            }
        };
        let number = span.address() as usize / PAGE;
        let ahead = number.next_multiple_of(align) - number;
        let front = span;
        if ahead > 0 {
            span = split(front, ahead);
        }
        let behind = (span.pages.get() as usize > pages).then(|| split(span, pages));
        // Before its neighbours are put back: they look at its ends to see whether they can merge.
        mark(span, Kind::Used);
        if ahead > 0 {
            self.insert(front);
        }
        if let Some(behind) = behind {
            self.insert(behind);
        }
        self.used += span.bytes();
        Some(span)
    }

    /// From the start of the largest free span, so that the room behind the block is as long as it can be.
    fn alloc_with_room(&mut self, pages: usize) -> Option<&'static Slab> {
        let both = pages.checked_mul(2)?;
        let Some(span) = self.largest().filter(|span| span.pages.get() as usize >= both) else {
            return self.alloc(pages, 1);
        };
        self.remove(span);
        let room = split(span, pages);
        mark(span, Kind::Used);
        self.insert(room);
        self.used += span.bytes();
        Some(span)
    }

    /// A span of the last bin that has one.
    fn largest(&self) -> Option<&'static Slab> {
        let (word, bits) = self.occupied.iter().enumerate().rfind(|(_, bits)| bits.get() != 0)?;
        self.bins[word * 64 + 63 - bits.get().leading_zeros() as usize].first()
    }

    fn resize(&mut self, span: &'static Slab, pages: usize) -> bool {
        let now = span.pages.get() as usize;
        if pages < now {
            let rest = split(span, pages);
            rest.set_zero(false);
            mark_used(span);
            self.used -= rest.bytes();
            self.insert(rest);
            return true;
        }
        let missing = pages - now;
        let after = span.page(now as u32);
        if after.kind.get() == Kind::Free && after.pages.get() as usize >= missing {
            self.remove(after);
            let rest = (after.pages.get() as usize > missing).then(|| split(after, missing));
            span.pages.set(pages as u32);
            mark_used(span);
            if let Some(rest) = rest {
                self.insert(rest);
            }
        } else if missing > 0 {
            if !self.frontier.extend(span, missing) {
                return false;
            }
            mark_used(span);
        }
        self.used += missing * PAGE;
        true
    }

    /// Takes a span back that was in use.
    fn free(&mut self, span: &'static Slab) {
        self.used -= span.bytes();
        self.insert(span);
    }

    /// Puts a span into its bin, merged with free neighbours that are in the same state (both with memory behind
    /// them, or both without).
    fn insert(&mut self, mut span: &'static Slab) {
        let left = span.page_before();
        if joins(left, span) {
            // The last page of a free span knows the span's length.
            let first = left.page_back(left.pages.get() - 1);
            self.remove(first);
            first.pages.set(first.pages.get() + span.pages.get());
            span = first;
        }
        let after = span.page(span.pages.get());
        if joins(after, span) {
            self.remove(after);
            span.pages.set(span.pages.get() + after.pages.get());
        }
        mark(span, Kind::Free);
        let bin = bin_of(span.pages.get() as usize);
        self.bins[bin].push_back(span);
        self.occupied[bin / 64].set(self.occupied[bin / 64].get() | 1 << (bin % 64));
        self.account(span, true);
    }

    fn remove(&mut self, span: &'static Slab) {
        let bin = bin_of(span.pages.get() as usize);
        self.bins[bin].remove(span);
        if self.bins[bin].first().is_none() {
            self.occupied[bin / 64].set(self.occupied[bin / 64].get() & !(1 << (bin % 64)));
        }
        self.account(span, false);
    }

    fn account(&mut self, span: &Slab, entering: bool) {
        let bytes = span.bytes() as u64;
        let change = if entering { stats::add } else { stats::sub };
        change(TierCounter::PageHeapFree, bytes);
        if span.is_zero() {
            change(TierCounter::SystemReleased, bytes);
        } else if entering {
            self.resident_free += bytes as usize;
        } else {
            self.resident_free -= bytes as usize;
        }
    }

    /// The smallest free span of at least `pages` pages; of equal ones the lowest address.
    fn best_fit(&self, pages: usize) -> Option<&'static Slab> {
        let first = bin_of(pages);
        let mut word = first / 64;
        let mut bits = self.occupied[word].get() & (!0 << (first % 64));
        loop {
            while bits != 0 {
                let bin = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let mut best: Option<&'static Slab> = None;
                let mut at = self.bins[bin].first();
                while let Some(span) = at {
                    let fits = span.pages.get() as usize >= pages;
                    let better = best
                        .is_none_or(|best| (span.pages.get(), &raw const *span) < (best.pages.get(), &raw const *best));
                    if fits && better {
                        best = Some(span);
                    }
                    at = span.next.get();
                }
                if best.is_some() {
                    return best;
                }
            }
            word += 1;
            bits = self.occupied.get(word)?.get();
        }
    }

    /// Takes a free span out for [`release_span`] if it is to go at once: without a delay, or when there is no scavenger
    /// and free memory exceeds what is worth keeping.
    fn take_to_release(&mut self) -> Option<&'static Slab> {
        match settings::current().scavenge_ms() {
            None => None,
            Some(0) => self.take_resident(1, usize::MAX),
            Some(_) if scavenger::is_running() || self.resident_free <= RETAIN_MIN.max(self.used / 4) => None,
            Some(_) => self.take_resident(EXACT_BINS / 4, usize::MAX),
        }
    }

    /// Takes a free span of at least `least` pages that has memory behind it, the largest bin first, and at most `most`
    /// pages of it. It counts as used until it is freed again.
    fn take_resident(&mut self, least: usize, most: usize) -> Option<&'static Slab> {
        for bin in (bin_of(least)..BINS).rev() {
            let mut at = self.bins[bin].first();
            while let Some(span) = at {
                if !span.is_zero() {
                    self.remove(span);
                    let rest = (span.pages.get() as usize > most).then(|| split(span, most));
                    mark(span, Kind::Used);
                    if let Some(rest) = rest {
                        self.insert(rest);
                    }
                    self.used += span.bytes();
                    return Some(span);
                }
                at = span.next.get();
            }
        }
        None
    }
}

/// Whether the page beside `span` is the end of a free span that `span` can merge with.
fn joins(page: &Slab, span: &Slab) -> bool {
    page.kind.get() == Kind::Free && page.zero_and_arena.get() == span.zero_and_arena.get()
}

/// Cuts a span after `pages` pages and returns the rest; both keep their state, neither is marked.
fn split(span: &'static Slab, pages: usize) -> &'static Slab {
    let rest = span.page(pages as u32);
    rest.pages.set(span.pages.get() - pages as u32);
    rest.zero_and_arena.set(span.zero_and_arena.get());
    span.pages.set(pages as u32);
    rest
}

/// Writes the descriptor of the last page of a span that changed its length; the first one's stays as it is.
fn mark_used(span: &'static Slab) {
    let owner = span.owner.load(Ordering::Relaxed);
    mark(span, Kind::Used);
    span.owner.store(owner, Ordering::Release);
}

/// Writes the descriptors of a span's ends.
fn mark(span: &'static Slab, kind: Kind) {
    let last = span.page(span.pages.get() - 1);
    last.zero_and_arena.set(span.zero_and_arena.get());
    last.pages.set(span.pages.get());
    last.kind.set(kind);
    last.owner.store(owner::NONE, Ordering::Relaxed);
    span.kind.set(kind);
    span.owner.store(owner::NONE, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_free() -> u64 {
        stats::get(TierCounter::PageHeapFree)
    }

    // The page heap is one for the process: one test, so that no other changes it meanwhile.
    #[test]
    fn spans_are_split_coalesced_aligned_and_never_overlap() {
        // SAFETY: no signal handler of this process allocates.
        let slow = unsafe { SlowPath::assume() };
        let spans: Vec<_> = (1..40).map(|pages| alloc(slow, pages, 1).unwrap()).collect();
        for (i, a) in spans.iter().enumerate() {
            assert_eq!(a.pages.get() as usize, i + 1);
            for b in &spans[i + 1..] {
                let (a0, b0) = (a.address() as usize, b.address() as usize);
                assert!(a0 + a.bytes() <= b0 || b0 + b.bytes() <= a0);
            }
        }
        for span in spans {
            free(slow, span);
        }
        let whole = alloc(slow, 700, 1).unwrap();
        free(slow, whole);
        let before = bytes_free();
        for align in [2, 16, 64] {
            let span = alloc(slow, 3, align).unwrap();
            assert_eq!(span.address() as usize % (align * PAGE), 0);
            free(slow, span);
        }
        assert!(bytes_free() >= before);
        let dirty = alloc(slow, 20, 1).unwrap();
        // SAFETY: the span is ours.
        unsafe { dirty.address().write(1) };
        free(slow, dirty);
        assert!(release_all(slow) >= 20 * PAGE);
        assert_eq!(bytes_free(), stats::get(TierCounter::SystemReleased));
    }
}
