//! Free spans of one lane, by length.
//!
//! There is a bin for each length up to 64 pages, then eight for each doubling, and that twice: for spans that have
//! memory behind them, and for those that were given back to the kernel. A request takes the smallest span with memory
//! that fits, then the smallest without, so that what lies idle is used before the program becomes larger. Freed spans
//! merge with free neighbours of the same state, found through the descriptors of the pages beside them.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::slab::{Kind, Slab, owner};
use crate::layout::slab_list::SlabList;
use crate::pages::frontier::HUGE_PAGES;
use crate::segment::counters::{self, TierCounter};

pub const EXACT_BINS: usize = 64;
const BINS: usize = EXACT_BINS + 8 * 24;

/// Spans of a bin that are compared. There may be thousands of one length.
const LOOK: usize = 8;
/// Spans around which a row of pages is looked for, and spans of a row before and behind each.
const LOOK_FOR_ROWS: usize = 16;
const PIECES: usize = 8;

/// The free spans.
pub struct FreeSpans {
    /// Those with memory behind them, and those without.
    states: [Bins; 2],
    /// Bytes in them that have memory behind them which the kernel would take back.
    resident: usize,
}

/// Spans of one state, by length.
struct Bins {
    lists: [SlabList; BINS],
    occupied: [Cell<u64>; BINS.div_ceil(64)],
}

/// The bin that a free span of `pages` pages waits in.
pub fn bin_of(pages: usize) -> usize {
    if pages <= EXACT_BINS {
        return pages - 1;
    }
    let log = usize::BITS - 1 - pages.leading_zeros();
    let eighth = (pages >> (log - 3)) & 7;
    (EXACT_BINS + (log as usize - 6) * 8 + eighth).min(BINS - 1)
}

impl Bins {
    const fn new() -> Self {
        Bins { lists: [const { SlabList::new() }; BINS], occupied: [const { Cell::new(0) }; BINS.div_ceil(64)] }
    }

    fn insert(&self, span: &'static Slab) {
        let bin = bin_of(span.pages.get() as usize);
        self.lists[bin].push_back(span);
        self.occupied[bin / 64].set(self.occupied[bin / 64].get() | 1 << (bin % 64));
    }

    fn remove(&self, span: &'static Slab) {
        let bin = bin_of(span.pages.get() as usize);
        self.lists[bin].remove(span);
        if self.lists[bin].first().is_none() {
            self.occupied[bin / 64].set(self.occupied[bin / 64].get() & !(1 << (bin % 64)));
        }
    }

    /// The first bin from `first` on that has a span.
    fn next_occupied(&self, first: usize) -> Option<usize> {
        let mut word = first / 64;
        let mut bits = self.occupied.get(word)?.get() & (!0 << (first % 64));
        while bits == 0 {
            word += 1;
            bits = self.occupied.get(word)?.get();
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// The smallest span of at least `pages` pages; of equal ones that have waited longest, the lowest address.
    fn best_fit(&self, pages: usize) -> Option<&'static Slab> {
        let mut from = bin_of(pages);
        loop {
            let bin = self.next_occupied(from)?;
            // Spans of one bin are of one length, up to [`EXACT_BINS`] pages; only the first of a request's may be too
            // short.
            let fits = self.lists[bin].iter().filter(|span| span.pages.get() as usize >= pages).take(LOOK);
            if let Some(best) = fits.min_by_key(|span| (span.pages.get(), &raw const **span)) {
                return Some(best);
            }
            from = bin + 1;
        }
    }

    /// A span of the last bin that has one.
    fn largest(&self) -> Option<&'static Slab> {
        let (word, bits) = self.occupied.iter().enumerate().rfind(|(_, bits)| bits.get() != 0)?;
        self.lists[word * 64 + 63 - bits.get().leading_zeros() as usize].first()
    }
}

impl FreeSpans {
    /// None.
    pub const fn new() -> Self {
        FreeSpans { states: [const { Bins::new() }; 2], resident: 0 }
    }

    /// The bins for a span of this state.
    fn bins(&self, span: &Slab) -> &Bins {
        &self.states[usize::from(span.is_zero())]
    }

    /// Bytes in them that have memory behind them which the kernel would take back.
    pub fn resident(&self) -> usize {
        self.resident
    }

    /// Puts a span into its bin, merged with free neighbours that are in the same state (both with memory behind
    /// them, or both without).
    pub fn insert(&mut self, span: &'static Slab) {
        let span = self.join(span);
        mark(span, Kind::Free);
        self.bins(span).insert(span);
        self.account(span, true);
    }

    /// A span that is in no bin, made longer by free neighbours in the same state, which are in none then.
    pub fn join(&mut self, mut span: &'static Slab) -> &'static Slab {
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
        span
    }

    /// Takes a span out of its bin.
    pub fn remove(&mut self, span: &'static Slab) {
        self.bins(span).remove(span);
        self.account(span, false);
    }

    fn account(&mut self, span: &Slab, entering: bool) {
        let bytes = span.bytes() as u64;
        let change = if entering { counters::add } else { counters::sub };
        change(TierCounter::PageHeapFree, bytes);
        if span.is_zero() {
            change(TierCounter::SystemReleased, bytes);
        } else if arena::is_permanent(span) {
        } else if entering {
            self.resident += bytes as usize;
        } else {
            self.resident -= bytes as usize;
        }
    }

    /// The smallest free span of at least `pages` pages that has memory behind it, else the smallest without.
    pub fn best_fit(&self, pages: usize) -> Option<&'static Slab> {
        self.states.iter().find_map(|bins| bins.best_fit(pages))
    }

    /// The smallest free span of at least `pages` pages that has no memory behind it.
    pub fn best_fit_untouched(&self, pages: usize) -> Option<&'static Slab> {
        self.states[1].best_fit(pages)
    }

    /// Whether a span with memory behind it has `pages` pages.
    pub fn fits_resident(&self, pages: usize) -> bool {
        self.states[0].best_fit(pages).is_some()
    }

    /// A span with memory behind it that ends with the page `last`, or has a free one without memory behind it that
    /// does.
    pub fn last_resident(&self, last: &'static Slab) -> Option<(&'static Slab, Option<&'static Slab>)> {
        let that_ends_with =
            |page: &'static Slab| (page.kind.get() == Kind::Free).then(|| page.page_back(page.pages.get() - 1));
        let behind = that_ends_with(last)?;
        if !behind.is_zero() {
            return Some((behind, None));
        }
        let begin = that_ends_with(behind.page_before())?;
        (!begin.is_zero() && goes_on(begin, behind)).then_some((begin, Some(behind)))
    }

    /// Takes a span with memory behind it that is shorter than `pages` pages, with what it lacks from a neighbour
    /// without, and says how long it was. `None` if no span of the longest has such a neighbour.
    pub fn take_lengthened(&mut self, pages: usize) -> Option<(&'static Slab, u32)> {
        let resident = &self.states[0];
        let shorter = (0..bin_of(pages)).rev().filter_map(|bin| resident.lists[bin].first());
        let has_room = |span: &&'static Slab| {
            let after = span.page(span.pages.get());
            let has_room = (span.pages.get() + after.pages.get()) as usize >= pages;
            after.kind.get() == Kind::Free && goes_on(span, after) && has_room
        };
        let span = shorter.take(LOOK).find(has_room)?;
        let (ready, after) = (span.pages.get(), span.page(span.pages.get()));
        self.remove(span);
        self.remove(after);
        self.cut_out(after, 0, pages - ready as usize);
        span.pages.set(pages as u32);
        mark(span, Kind::Used);
        Some((span, ready))
    }

    /// Takes `pages` pages in a row of which some have memory behind them and others have none, and says how many have:
    /// the most that there are around the longest spans with memory. `None` if there is no such row.
    pub fn take_mixed(&mut self, pages: usize) -> Option<(&'static Slab, u32)> {
        let resident = &self.states[0];
        let shorter = (0..=bin_of(pages)).rev().flat_map(|bin| resident.lists[bin].iter());
        let rows = shorter.take(LOOK_FOR_ROWS).filter_map(|span| Row::around(span, pages));
        let Row { first, skipped, ready } = rows.max_by_key(|row| row.ready)?;
        self.remove(first);
        let first = self.cut_out(first, skipped, first.pages.get() as usize - skipped);
        let mut missing = pages - (first.pages.get() as usize).min(pages);
        let mut next = first.page(first.pages.get());
        while missing > 0 {
            self.remove(next);
            let span = self.cut_out(next, 0, missing.min(next.pages.get() as usize));
            missing -= span.pages.get() as usize;
            next = span.page(span.pages.get());
        }
        first.set_zero(false);
        first.pages.set(pages as u32);
        mark(first, Kind::Used);
        Some((first, ready))
    }

    /// One of the longest.
    pub fn largest(&self) -> Option<&'static Slab> {
        self.states.iter().filter_map(Bins::largest).max_by_key(|span| span.pages.get())
    }

    /// Takes pages out of a free span of at least `least` pages that has memory behind it, the largest bin first: about
    /// `most` of them. With `whole`, huge pages that are free as a whole, and no others.
    pub fn take_resident(&mut self, least: usize, most: usize, whole: bool) -> Option<&'static Slab> {
        let least = if whole { least.max(HUGE_PAGES) } else { least };
        for bin in (bin_of(least)..BINS).rev() {
            let mut at = self.states[0].lists[bin].first();
            while let Some(span) = at {
                if !arena::is_permanent(span) {
                    let pages = span.pages.get() as usize;
                    let (from, to) = if whole { huge_pages(span) } else { (0, pages) };
                    if from < to {
                        let wanted = if whole { most.saturating_add(HUGE_PAGES - 1) & !(HUGE_PAGES - 1) } else { most };
                        self.remove(span);
                        return Some(self.cut_out(span, from, wanted.min(to - from)));
                    }
                }
                at = span.next.get();
            }
        }
        None
    }

    /// Takes a span of the first bin that has one with memory behind it, of these that which has waited longest; none
    /// of more than `most` pages.
    pub fn take_shortest(&mut self, most: usize) -> Option<&'static Slab> {
        let bins = &self.states[0];
        let occupied = core::iter::successors(bins.next_occupied(0), |bin| bins.next_occupied(bin + 1));
        let span = occupied.flat_map(|bin| bins.lists[bin].iter()).find(|span| !arena::is_permanent(span))?;
        if span.pages.get() as usize > most {
            return None;
        }
        self.remove(span);
        mark(span, Kind::Used);
        Some(span)
    }

    /// Calls `f` with each span, and whether it is in the bin of its length.
    #[cfg(test)]
    pub fn for_each(&self, mut f: impl FnMut(bool, &'static Slab)) {
        for (state, bins) in self.states.iter().enumerate() {
            for (bin, spans) in bins.lists.iter().enumerate() {
                assert_eq!(spans.first().is_some(), bins.occupied[bin / 64].get() >> (bin % 64) & 1 != 0);
                for span in spans.iter() {
                    f(bin_of(span.pages.get() as usize) == bin && state == usize::from(span.is_zero()), span);
                }
            }
        }
    }

    /// Cuts `pages` pages from page `from` on out of a span that is in no bin, and puts the rest back.
    pub fn cut_out(&mut self, span: &'static Slab, from: usize, pages: usize) -> &'static Slab {
        let front = span;
        let middle = if from > 0 { split(front, from) } else { front };
        let behind = (middle.pages.get() as usize > pages).then(|| split(middle, pages));
        // Before its neighbours are put back: they look at its ends to see whether they can merge.
        mark(middle, Kind::Used);
        if from > 0 {
            self.insert(front);
        }
        if let Some(behind) = behind {
            self.insert(behind);
        }
        middle
    }
}

/// Free pages in a row, of any state.
struct Row {
    /// The span that it begins in, behind so many of its pages.
    first: &'static Slab,
    skipped: usize,
    /// How many pages have memory behind them.
    ready: u32,
}

impl Row {
    /// The row of `pages` pages that begins with a free span; where too few pages follow it, the row that ends with the
    /// last of them.
    fn around(span: &'static Slab, pages: usize) -> Option<Row> {
        let mut first = span;
        let mut length: usize = behind(span).take(PIECES).map(|span| span.pages.get() as usize).sum();
        let mut befores = core::iter::successors(before(span), |span| before(span)).take(PIECES);
        while length < pages {
            first = befores.next()?;
            length += first.pages.get() as usize;
        }
        let skipped = if core::ptr::eq(first, span) { 0 } else { length - pages };
        let (mut left, mut missing) = (skipped, pages);
        let mut ready = 0;
        for span in behind(first) {
            let taken = (span.pages.get() as usize - left).min(missing);
            ready += if span.is_zero() { 0 } else { taken as u32 };
            (left, missing) = (0, missing - taken);
            if missing == 0 {
                break;
            }
        }
        Some(Row { first, skipped, ready })
    }
}

/// A free span, and the next ones behind it.
fn behind(span: &'static Slab) -> impl Iterator<Item = &'static Slab> {
    let next = |span: &&'static Slab| Some(span.page(span.pages.get())).filter(|page| is_free_beside(page, span));
    core::iter::successors(Some(span), next)
}

/// The free span before a span.
fn before(span: &'static Slab) -> Option<&'static Slab> {
    let page = Some(span.page_before()).filter(|page| is_free_beside(page, span))?;
    Some(page.page_back(page.pages.get() - 1))
}

/// Whether the page beside `span` is the end of a free span of the same arena, of either state.
fn is_free_beside(page: &Slab, span: &Slab) -> bool {
    page.kind.get() == Kind::Free && page.zero_and_arena.get() >> 1 == span.zero_and_arena.get() >> 1
}

/// The pages of a span, from and to, that are whole huge pages.
fn huge_pages(span: &'static Slab) -> (usize, usize) {
    let first = span.address() as usize / ARENA_PAGE;
    let from = first.next_multiple_of(HUGE_PAGES);
    let to = (first + span.pages.get() as usize) / HUGE_PAGES * HUGE_PAGES;
    if from < to { (from - first, to - first) } else { (0, 0) }
}

/// Whether the page beside `span` is the end of a free span that `span` can merge with.
fn joins(page: &Slab, span: &Slab) -> bool {
    page.kind.get() == Kind::Free && page.zero_and_arena.get() == span.zero_and_arena.get()
}

/// Whether a span without memory is of the same arena as the one with memory before it.
fn goes_on(span: &Slab, after: &Slab) -> bool {
    after.zero_and_arena.get() == span.zero_and_arena.get() | 1
}

/// Cuts a span after `pages` pages and returns the rest; both keep their state, neither is marked.
pub fn split(span: &'static Slab, pages: usize) -> &'static Slab {
    let rest = span.page(pages as u32);
    rest.pages.set(span.pages.get() - pages as u32);
    rest.zero_and_arena.set(span.zero_and_arena.get());
    span.pages.set(pages as u32);
    rest
}

/// Writes the descriptor of the last page of a span that changed its length; the first one's stays as it is.
pub fn mark_used(span: &'static Slab) {
    let owner = span.owner.load(Ordering::Relaxed);
    mark(span, Kind::Used);
    span.owner.store(owner, Ordering::Release);
}

/// Writes the descriptors of a span's ends.
pub fn mark(span: &'static Slab, kind: Kind) {
    let last = span.page(span.pages.get() - 1);
    last.zero_and_arena.set(span.zero_and_arena.get());
    last.pages.set(span.pages.get());
    last.kind.set(kind);
    last.owner.store(owner::NONE, Ordering::Relaxed);
    span.kind.set(kind);
    span.owner.store(owner::NONE, Ordering::Relaxed);
}
