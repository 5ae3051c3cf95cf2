//! What lies at an address: for each 64 KiB of the reserved range, the class and the lane of the slab there; and which
//! of its blocks the program has ([`super::given`]).
//!
//! A free reads it without a lock. It is written when a slab comes or goes, and when a block is first shared, each time
//! by who holds the pool's lock; a program that frees a block got its address after that. That a block is recorded is
//! written under the lock of the records, before the program has the block or when it gives it back,
//! so that nobody shares it meanwhile. A page on which a fitted block begins is written under either lock.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::classes::{PAGE, size_of};
use super::fitted::{bytes_of, word_of};
use super::given::Words;
use crate::streams::LaneId;

/// Pages that are entered together: those of 4 GiB.
const IN_PART: usize = 65_536;
const PART: u64 = PAGE * IN_PART as u64;

/// A part of the range.
struct Part {
    /// What lies on each page.
    pages: Box<[AtomicU32; IN_PART]>,
    /// Which blocks on them the program has.
    given: Words<PART>,
}

impl Part {
    fn new() -> Part {
        Part { pages: Box::new([const { AtomicU32::new(0) }; IN_PART]), given: Words::new() }
    }

    #[inline]
    fn page(&self, offset: u64) -> &AtomicU32 {
        &self.pages[(offset / PAGE) as usize % IN_PART]
    }
}

/// What the mark of a block of a slab says that the program has.
const GIVEN: u32 = 1;
/// Of a fitted block the mark says how long it is, and whether a thread keeps it.
const KEPT: u32 = 1 << 31;

/// The mark of a small block: whether the program has it.
#[derive(Clone, Copy)]
pub struct Mark<'a>(&'a AtomicU32);

/// What the mark of a fitted block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FittedMark {
    /// No such block begins there.
    None,
    /// The program has it; its bytes.
    Given(u64),
    /// A thread keeps it.
    Kept,
}

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

    /// What it says where the page is of fitted blocks.
    #[inline]
    pub fn fitted(self) -> FittedMark {
        match self.0.load(Ordering::Relaxed) {
            0 | GIVEN => FittedMark::None,
            word if word & KEPT != 0 => FittedMark::Kept,
            word => FittedMark::Given(bytes_of(word)),
        }
    }

    /// Gives a fitted block of so many bytes to the program.
    #[inline]
    pub fn give_fitted(self, bytes: u64) {
        self.0.store(word_of(bytes), Ordering::Relaxed);
    }

    /// Takes a fitted block of so many bytes from the program, for a thread to keep.
    #[inline]
    pub fn keep_fitted(self, bytes: u64) {
        self.0.store(word_of(bytes) | KEPT, Ordering::Relaxed);
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

    /// What lies at an address.
    #[inline]
    pub fn get(&self, address: u64) -> Page {
        self.part(address).map_or(Page::NONE, |(part, offset)| Page(part.page(offset).load(Ordering::Relaxed)))
    }

    /// What lies at an address, and the mark of the block that begins there, if one may.
    #[inline]
    pub fn find(&self, address: u64) -> (Page, Option<Mark<'_>>) {
        let Some((part, offset)) = self.part(address) else { return (Page::NONE, None) };
        let mark = offset.is_multiple_of(size_of(0)).then(|| Mark(part.given.at(offset)));
        (Page(part.page(offset).load(Ordering::Relaxed)), mark)
    }

    /// Notes that the program gets the block of a slab that begins there.
    #[inline(always)]
    pub fn give(&self, address: u64) {
        if let Some((part, offset)) = self.part(address) {
            Mark(part.given.at(offset)).give();
        }
    }

    /// Gives a fitted block of a lane and so many bytes, which begins there, to the program. The page says so already
    /// where one of the lane's began before.
    pub fn give_fitted(&self, address: u64, bytes: u64, lane: LaneId) {
        let fitted = Page((lane + 1) << 8 | Page::FITTED);
        let (page, mark) = self.find(address);
        if page.with_recorded(false) != fitted {
            self.update(address, |page| fitted.with_recorded(page.is_recorded()));
        }
        let mark = mark.or_else(|| self.find(address).1);
        mark.into_iter().for_each(|mark| mark.give_fitted(bytes));
    }

    /// Takes the mark of a fitted block that begins there.
    #[inline]
    pub fn take_fitted(&self, address: u64) {
        if let Some((part, offset)) = self.part(address) {
            Mark(part.given.at(offset)).take();
        }
    }

    /// Says that the fitted block that begins there, if one does, is one no more: its mark says it, and the page may
    /// stay for the next one.
    pub fn forget_fitted(&self, address: u64) {
        let (page, mark) = self.find(address);
        if page.is_fitted()
            && let Some(mark) = mark.filter(|mark| mark.fitted() != FittedMark::None)
        {
            mark.take();
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
        let at = ((address - self.range.start) / PAGE) as usize;
        let word = &self.parts[at / IN_PART].get_or_init(Part::new).pages[at % IN_PART];
        let change = |word| Some(change(Page(word)).0);
        let changed = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        debug_assert!(changed.is_ok(), "there is always another word");
    }

    /// Says what lies at all pages of a range.
    pub fn set(&self, address: u64, size: u64, page: Page) {
        for address in (address..address + size).step_by(PAGE as usize) {
            let at = ((address - self.range.start) / PAGE) as usize;
            let part = self.parts[at / IN_PART].get_or_init(Part::new);
            part.pages[at % IN_PART].store(page.0, Ordering::Relaxed);
        }
    }
}
