//! What lies at an address: for each 64 KiB of the reserved range, the class and the lane of the slab there.
//!
//! A free reads it without a lock. It is written when a slab comes or goes, and when a block is first shared, each time by
//! who holds the pool's lock; a program that frees a block got its address after that. That a block is recorded is written under
//! the lock of the records, before the program has the block or when it gives it back, so that nobody shares it meanwhile.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::classes::{PAGE, size_of};
use crate::pending::LaneId;

/// Pages that are entered together: those of 4 GiB.
const IN_PART: usize = 65_536;

type Part = Box<[AtomicU32]>;

/// What lies on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page(u32);

impl Page {
    /// No slab.
    pub const NONE: Page = Page(0);
    const SHARED: u32 = 1 << 31;
    const RECORDED: u32 = 1 << 30;
    /// Lanes with larger numbers have no slabs.
    pub const LANES: LaneId = (1 << 22) - 2;

    /// A slab of a class and a lane.
    pub fn new(class: usize, lane: LaneId) -> Page {
        Page((lane + 1) << 8 | (class as u32 + 1))
    }

    /// The class, if this is a slab's page.
    pub fn class(self) -> Option<usize> {
        (self.0 & 0xff).checked_sub(1).map(|class| class as usize)
    }

    /// Whether it is of this lane, which alone uses its blocks, none of which is recorded, and a block of this class may begin
    /// at the address.
    #[inline]
    pub fn has_block(self, lane: LaneId, class: usize, address: u64) -> bool {
        // A block of 64 KiB and more begins at a page, smaller ones at a multiple of their size.
        self.0 >> 8 == lane + 1 && address & (size_of(class).min(PAGE) - 1) == 0
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
        let parts = (range.end - range.start).div_ceil(PAGE * IN_PART as u64);
        Pages { range, parts: (0..parts).map(|_| OnceLock::new()).collect() }
    }

    /// What lies at an address.
    #[inline]
    pub fn get(&self, address: u64) -> Page {
        if !self.range.contains(&address) {
            return Page::NONE;
        }
        let page = ((address - self.range.start) / PAGE) as usize;
        match self.parts[page / IN_PART].get() {
            Some(part) => Page(part[page % IN_PART].load(Ordering::Relaxed)),
            None => Page::NONE,
        }
    }

    /// Whether an address lies in the range. Blocks of other memory have no page.
    pub fn has(&self, address: u64) -> bool {
        self.range.contains(&address)
    }

    /// Says whether recorded blocks begin on a page. Pages of slabs that hold nothing else keep saying so.
    pub fn set_recorded(&self, address: u64, recorded: bool) {
        let page = self.get(address);
        let of_slab = page.class().is_some_and(|class| size_of(class) < PAGE);
        if self.has(address) && !of_slab {
            self.set(address, PAGE, page.with_recorded(recorded));
        }
    }

    /// Says what lies at all pages of a range.
    pub fn set(&self, address: u64, size: u64, page: Page) {
        for address in (address..address + size).step_by(PAGE as usize) {
            let at = ((address - self.range.start) / PAGE) as usize;
            let part = self.parts[at / IN_PART].get_or_init(|| (0..IN_PART).map(|_| AtomicU32::new(0)).collect());
            part[at % IN_PART].store(page.0, Ordering::Relaxed);
        }
    }
}
