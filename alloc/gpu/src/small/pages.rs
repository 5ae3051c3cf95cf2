//! What lies at an address: for each 64 KiB of the reserved range, the class and the lane of the slab there, or that a
//! fitted block may begin there; and which of the blocks the program has.
//!
//! A free reads it without a lock. It is written when a slab comes or goes, and when a block is first shared, each time
//! by who holds the pool's lock; a program that frees a block got its address after that. That a block is recorded is
//! written under the lock of the records, before the program has the block or when it gives it back,
//! so that nobody shares it meanwhile. A page on which a fitted block begins is written under either lock.
//!
//! **Which blocks the program has.** The host never touches device memory, so a block can't carry the mark itself. A
//! free that finds no mark is refused: of a block that was freed before, of an address inside of one. Marks are plain
//! stores, because who frees a block got its address from who allocated it. Two threads that free one block at the same
//! moment may both find the mark, on the fast path; a hardened pool has none. Blocks of slabs have a word for each 256
//! bytes that they may begin at. It is a word and not a bit, so that threads don't write to the same word; and as long
//! as that a batch of the smallest blocks, which goes to one thread, has a cache line of its own. Fitted blocks are far
//! apart, and each would touch a page of words of its own: they have one for each page that they may begin on. These
//! are not beside the pages' words, which all threads read.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::classes::{ALWAYS_IN_SLABS, LARGEST, PAGE, size_of};
use super::words::Words;
use crate::streams::LaneId;

/// Memory that is entered together.
const PART: u64 = 4 << 30;
/// Bytes that blocks begin at multiples of.
const UNIT: u64 = size_of(0);

/// A part of the range.
struct Part {
    /// What lies on each page.
    pages: Words<PART, PAGE, 1>,
    /// The mark of the fitted block that begins there, and room: few blocks of two threads share a cache line.
    fitted: Words<PART, PAGE, 4>,
    /// The marks of blocks of slabs.
    given: Words<PART, UNIT, 1>,
}

impl Part {
    fn new() -> Part {
        Part { pages: Words::new(), fitted: Words::new(), given: Words::new() }
    }

    #[inline]
    fn page(&self, offset: u64) -> &AtomicU32 {
        let [page] = self.pages.at(offset);
        page
    }

    #[inline]
    fn mark(&self, offset: u64) -> Mark<'_> {
        let [word] = self.given.at(offset);
        Mark(word)
    }

    #[inline]
    fn fitted_mark(&self, offset: u64) -> FittedMark<'_> {
        let [word, ..] = self.fitted.at(offset);
        FittedMark { word, place: (offset % PAGE / UNIT) as u32 }
    }
}

/// The mark of a block of a slab: whether the program has it.
#[derive(Clone, Copy)]
pub struct Mark<'a>(&'a AtomicU32);

/// What the mark says of a block that the program has.
const GIVEN: u32 = 1;

impl Mark<'_> {
    /// Whether the program has the block.
    #[inline]
    pub fn is_given(self) -> bool {
        self.0.load(Ordering::Relaxed) == GIVEN
    }

    /// Takes the block from the program, which has it.
    #[inline]
    pub fn take(self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Takes the block from the program. Returns whether it had it: once, of all threads that ask.
    pub fn take_once(self) -> bool {
        self.0.swap(0, Ordering::Relaxed) == GIVEN
    }

    /// Gives the block to the program.
    #[inline]
    pub fn give(self) {
        self.0.store(GIVEN, Ordering::Relaxed);
    }
}

/// The mark of a fitted block: its bytes in units, where on its page it begins, and whether a thread keeps it. 0 if
/// none begins on the page; it is longer than that, so there is one at most.
#[derive(Clone, Copy)]
pub struct FittedMark<'a> {
    word: &'a AtomicU32,
    /// Where on its page the block begins, in units.
    place: u32,
}

/// What the mark of a fitted block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FittedState {
    /// No such block begins there.
    None,
    /// The program has it; its bytes.
    Given(u64),
    /// A thread keeps it.
    Kept,
}

/// The place is above the others.
const PLACE_SHIFT: u32 = 24;
const ABOVE: u32 = 1 << PLACE_SHIFT;
const KEPT: u32 = ABOVE / 2;

const _: () = assert!(LARGEST / UNIT < KEPT as u64 && PAGE <= ALWAYS_IN_SLABS);
const _: () = assert!(PAGE / UNIT <= 1 << (u32::BITS - PLACE_SHIFT));

impl FittedMark<'_> {
    fn of(self, bytes: u64) -> u32 {
        self.place << PLACE_SHIFT | (bytes / UNIT) as u32
    }

    /// What it says of the block that begins there.
    #[inline]
    pub fn state(self) -> FittedState {
        // Of the block's own mark, this leaves the parts below the place.
        let rest = self.word.load(Ordering::Relaxed) ^ self.place << PLACE_SHIFT;
        match rest {
            1..KEPT => FittedState::Given(u64::from(rest) * UNIT),
            KEPT..ABOVE => FittedState::Kept,
            _ => FittedState::None,
        }
    }

    /// Gives a block of so many bytes to the program.
    #[inline]
    pub fn give(self, bytes: u64) {
        self.word.store(self.of(bytes), Ordering::Relaxed);
    }

    /// Takes a block of so many bytes from the program, for a thread to keep.
    #[inline]
    pub fn keep(self, bytes: u64) {
        self.word.store(self.of(bytes) | KEPT, Ordering::Relaxed);
    }

    /// Says that none begins there any more.
    #[inline]
    fn take(self) {
        self.word.store(0, Ordering::Relaxed);
    }
}

/// What lies on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(u32);

impl Page {
    /// No slab.
    pub const NONE: Page = Page(0);
    const SHARED: u32 = 1 << 31;
    const RECORDED: u32 = 1 << 30;
    /// In the place of a class: a fitted block may begin there; its mark says whether one does.
    const FITTED: u32 = 1 << 7;
    /// Lanes with larger numbers have no slabs.
    pub const LANES: LaneId = (1 << 22) - 2;

    /// A slab of a class and a lane.
    pub fn new(class: usize, lane: LaneId) -> Page {
        Page((lane + 1) << 8 | (class as u32 + 1))
    }

    /// The class, if this is a slab's page.
    #[inline]
    pub fn class(self) -> Option<usize> {
        (self.0 & (Page::FITTED - 1)).checked_sub(1).map(|class| class as usize)
    }

    /// Whether a fitted block may begin there: a medium one that is placed as large ones are. It is longer than a page,
    /// so there is one at most.
    #[inline]
    pub fn is_fitted(self) -> bool {
        self.0 & Page::FITTED != 0
    }

    /// Whether it is of this lane, which alone uses its blocks, none of which is recorded.
    #[inline]
    pub fn is_of(self, lane: LaneId) -> bool {
        self.0 >> 8 == lane + 1
    }

    /// Whether a block may be recorded that begins there.
    #[inline]
    pub fn is_recorded(self) -> bool {
        self.0 & Page::RECORDED != 0
    }

    /// The same, with recorded blocks or without.
    pub fn with_recorded(self, recorded: bool) -> Page {
        Page(if recorded { self.0 | Page::RECORDED } else { self.0 & !Page::RECORDED })
    }

    /// The same, with shared blocks or without.
    pub fn with_shared(self, shared: bool) -> Page {
        Page(if shared { self.0 | Page::SHARED } else { self.0 & !Page::SHARED })
    }
}

/// The pages of a reserved range.
pub struct Pages {
    range: Range<u64>,
    parts: Box<[OnceLock<Part>]>,
}

impl Pages {
    pub fn new(range: Range<u64>) -> Pages {
        let parts = (range.end - range.start).div_ceil(PART);
        Pages { range, parts: (0..parts).map(|_| OnceLock::new()).collect() }
    }

    /// The part of an address, and how far it is from the part's beginning.
    #[inline(always)]
    fn part(&self, address: u64) -> Option<(&Part, u64)> {
        let offset = address.checked_sub(self.range.start)?;
        Some((self.parts.get((offset / PART) as usize)?.get()?, offset % PART))
    }

    /// The part of an address in the range.
    fn part_or_new(&self, address: u64) -> &Part {
        self.parts[((address - self.range.start) / PART) as usize].get_or_init(Part::new)
    }

    /// What lies at an address.
    #[inline]
    pub fn get(&self, address: u64) -> Page {
        self.part(address).map_or(Page::NONE, |(part, offset)| Page(part.page(offset).load(Ordering::Relaxed)))
    }

    /// What lies at an address, and the mark of the block of a slab that begins there, if one may.
    #[inline]
    pub fn find(&self, address: u64) -> (Page, Option<Mark<'_>>) {
        let Some((part, offset)) = self.part(address) else { return (Page::NONE, None) };
        let mark = offset.is_multiple_of(UNIT).then(|| part.mark(offset));
        (Page(part.page(offset).load(Ordering::Relaxed)), mark)
    }

    /// The mark of the fitted block that begins there, if one may.
    #[inline]
    pub fn fitted(&self, address: u64) -> Option<FittedMark<'_>> {
        let (part, offset) = self.part(address)?;
        offset.is_multiple_of(UNIT).then(|| part.fitted_mark(offset))
    }

    /// What is said of the fitted block that begins there.
    pub fn fitted_state(&self, address: u64) -> FittedState {
        self.fitted(address).map_or(FittedState::None, FittedMark::state)
    }

    /// Notes that the program gets the block of a slab that begins there.
    #[inline(always)]
    pub fn give(&self, address: u64) {
        if let Some((part, offset)) = self.part(address) {
            part.mark(offset).give();
        }
    }

    /// Gives a fitted block of a lane and so many bytes, which begins there, to the program. The page says so already
    /// where one of the lane's began before.
    pub fn give_fitted(&self, address: u64, bytes: u64, lane: LaneId) {
        let fitted = Page((lane + 1) << 8 | Page::FITTED);
        let Some((part, offset)) = self.part(address) else { return self.give_first(address, bytes, fitted) };
        let page = Page(part.page(offset).load(Ordering::Relaxed));
        if page.with_recorded(false) != fitted {
            return self.give_first(address, bytes, fitted);
        }
        part.fitted_mark(offset).give(bytes);
    }

    /// The same where the page says something else.
    #[inline(never)]
    fn give_first(&self, address: u64, bytes: u64, fitted: Page) {
        self.update(address, |page| fitted.with_recorded(page.is_recorded()));
        self.fitted(address).into_iter().for_each(|mark| mark.give(bytes));
    }

    /// Says that the fitted block that begins there, if one does, is one no more. The page may stay for the next one.
    #[inline]
    pub fn forget_fitted(&self, address: u64) {
        if self.get(address).is_fitted()
            && let Some(mark) = self.fitted(address).filter(|mark| mark.state() != FittedState::None)
        {
            mark.take();
        }
    }

    /// The same of one that is known to begin there.
    #[inline]
    pub fn take_fitted(&self, address: u64) {
        if let Some((part, offset)) = self.part(address) {
            part.fitted_mark(offset).take();
        }
    }

    /// Says that other streams use the fitted block that begins there.
    pub fn share_fitted(&self, address: u64) {
        self.update(address, |page| page.with_shared(true));
    }

    /// Whether an address lies in the range. Blocks of other memory have no page.
    pub fn has(&self, address: u64) -> bool {
        self.range.contains(&address)
    }

    /// Whether a page is a slab's of which several blocks lie on a page: either all are recorded, or none.
    pub fn is_shared_slab(&self, address: u64) -> bool {
        self.get(address).class().is_some_and(|class| size_of(class) < PAGE)
    }

    /// Says whether recorded blocks begin on a page. Pages of slabs that hold nothing else keep saying so.
    pub fn set_recorded(&self, address: u64, recorded: bool) {
        if self.has(address) && !self.is_shared_slab(address) {
            self.update(address, |page| page.with_recorded(recorded));
        }
    }

    /// Changes what is said of a page that is no slab's, which threads do under different locks.
    fn update(&self, address: u64, change: impl Fn(Page) -> Page) {
        let word = self.part_or_new(address).page(address - self.range.start);
        let change = |word| Some(change(Page(word)).0);
        let changed = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        debug_assert!(changed.is_ok(), "there is always another word");
    }

    /// Says what lies at all pages of a range.
    pub fn set(&self, address: u64, size: u64, page: Page) {
        for address in (address..address + size).step_by(PAGE as usize) {
            self.part_or_new(address).page(address - self.range.start).store(page.0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FittedState, LARGEST, PAGE, PART, Page, Pages, UNIT};

    #[test]
    fn the_mark_of_a_fitted_block_is_that_of_the_place_where_it_begins() {
        let start = 7 * PART;
        let pages = Pages::new(start..start + 2 * PART);
        for offset in [0, UNIT, PAGE - UNIT, PART - PAGE, PART - UNIT, PART] {
            let (address, bytes) = (start + offset, LARGEST - offset % PAGE);
            let others: Vec<u64> = (0..PAGE / UNIT).map(|unit| address / PAGE * PAGE + unit * UNIT).collect();
            pages.give_fitted(address, bytes, 3);
            let page = pages.get(address);
            assert!(page.is_fitted() && page.is_of(3) && !page.is_of(2));
            for other in others.into_iter().chain([address + 1, address + PAGE]).filter(|other| *other != address) {
                assert_eq!(pages.fitted_state(other), FittedState::None, "{offset:#x}, {other:#x}");
                pages.forget_fitted(other);
            }
            assert_eq!(pages.fitted_state(address), FittedState::Given(bytes));
            let mark = pages.fitted(address).expect("it is in the range");
            mark.keep(bytes);
            assert_eq!(pages.fitted_state(address), FittedState::Kept);
            pages.forget_fitted(address);
            assert_eq!(pages.fitted_state(address), FittedState::None);
            assert!(pages.find(address).1.is_some_and(|mark| !mark.is_given()));
        }
        assert_eq!(pages.fitted_state(start - UNIT), FittedState::None);
        assert_eq!(pages.get(start + 2 * PART), Page::NONE);
    }
}
