//! Slabs that hold sampled blocks only.
//!
//! Their owner is no heap, so that freeing such a block fails the fast path's one compare and finds itself on the
//! slow path at no cost to the others. Each slab has a list from block to slot in the live table
//! ([`super::slot_lists`]).

use core::cell::Cell;

use super::slot_lists::SlotLists;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::block::BlockPtr;
use crate::layout::lean;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::layout::slab::{NO_SLOT, Place, Slab, owner};
use crate::layout::slab_list::SlabList;
use crate::pages::page_heap;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::give_back;

/// Bytes of slabs without a block in use that stay what they are. Of more than these, one is used for another class
/// before memory is taken for it: samples of each class in turn would touch a page for each.
const EMPTY_OF_OTHERS: usize = 8 * ARENA_PAGE;

/// Bytes of all slabs below which each has few samples, if more than one.
const FEW: u64 = 1 << 20;

/// Pages of a slab that may be kept without a block in use.
const WIDE_PAGES: u32 = 2;

/// The slabs, by class. Guarded by the sampler's lock.
pub struct SampledSlabs {
    with_free: [SlabList; CLASSES],
    /// Bytes of slabs without a block in use.
    empty: Cell<usize>,
    /// The one slab of a few pages without a block in use, if there is one: the next sample of its size would otherwise
    /// find its pages in use by slabs of one page, and take new ones.
    wide: Cell<Option<&'static Slab>>,
    /// The class after the one of which a slab was used for another class last.
    next: Cell<usize>,
    lists: SlotLists,
}

impl SampledSlabs {
    /// No slab yet.
    pub const fn new() -> Self {
        SampledSlabs {
            with_free: [const { SlabList::new() }; CLASSES],
            empty: Cell::new(0),
            wide: Cell::new(None),
            next: Cell::new(0),
            lists: SlotLists::new(),
        }
    }

    /// A block of `class`, which is noted in `zero` if it reads as zero; `None` without memory.
    pub fn alloc(&self, slow: SlowPath, class: SizeClass, zero: &Cell<BlockPtr>) -> Option<(&'static Slab, BlockPtr)> {
        let list = &self.with_free[class.index()];
        let slab = match list.first() {
            Some(slab) => slab,
            None => self.change_one(class).or_else(|| self.add(slow, class))?,
        };
        let was_empty = slab.in_use() == 0;
        let block = slab.local_free.get();
        let mut from = ClassCounter::CentralFree;
        let block = if block.is_null() {
            let untouched = slab.untouched();
            let (block, count) = slab.carve(1, BlockPtr::NULL);
            if count == 0 {
                return None;
            }
            if class.is_medium() && slab.is_zero() {
                zero.set(block);
            }
            if slab.untouched() < untouched {
                from = ClassCounter::Untouched;
            }
            block
        } else {
            // SAFETY: the block is free and, under the lock, ours.
            slab.local_free.set(unsafe { block.next() });
            let live = slab.in_use() + 1;
            slab.arm(live, live);
            block
        };
        if was_empty {
            self.no_longer_empty(slab);
        }
        counters::class_sub(class, from, 1);
        if !slab.has_free() {
            list.remove(slab);
            slab.place.set(Place::Full);
        }
        Some((slab, block))
    }

    /// Makes one of many slabs without a block in use a slab of `class`, if this takes one page.
    #[cold]
    #[inline(never)]
    fn change_one(&self, class: SizeClass) -> Option<&'static Slab> {
        // Under a narrow limit of data, the part of a slab that can be used follows its class.
        if self.empty.get() < EMPTY_OF_OTHERS || lean::is_on() || class.info().slab_pages > 1 {
            return None;
        }
        let fits = |slab: &&'static Slab| slab.in_use() == 0 && slab.pages.get() == 1;
        let (other, slab) = (0..CLASSES).find_map(|at| {
            let other = (self.next.get() + at) % CLASSES;
            Some((other, self.with_free[other].first().filter(fits)?))
        })?;
        self.next.set(other + 1);
        let list = self.lists.take(class)?;
        self.end(slab);
        slab.set_zero(false);
        self.begin(slab, class, list, 1);
        Some(slab)
    }

    fn add(&self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        let few = counters::get(TierCounter::SampledBytes) < FEW;
        let (slab, ready) = page_heap::alloc_slab(slow, class, few)?;
        let Some(list) = self.lists.take(class) else {
            give_back::span(slow, slab);
            return None;
        };
        self.begin(slab, class, list, ready);
        counters::add(TierCounter::SampledBytes, slab.bytes() as u64);
        self.empty.set(self.empty.get() + slab.bytes());
        Some(slab)
    }

    /// Makes a span a slab of `class`, see [`Slab::begin`], with `list` for its slots.
    fn begin(&self, slab: &'static Slab, class: SizeClass, list: *mut u32, ready: u32) {
        slab.begin(class, owner::SAMPLED, None, ready);
        slab.aux.set(list as usize);
        slab.place.set(Place::Partial);
        self.with_free[class.index()].push_back(slab);
        counters::class_add(class, ClassCounter::SlabsTaken, 1);
        counters::class_add(class, ClassCounter::CentralFree, slab.free_with_memory().into());
        counters::class_add(class, ClassCounter::Untouched, slab.untouched().into());
    }

    /// Takes a slab without a block in use out of its class, and its slots.
    fn end(&self, slab: &'static Slab) {
        let class = slab.class.get();
        self.with_free[class.index()].remove(slab);
        self.lists.give(class, slab.aux.get() as *mut u32);
        counters::class_add(class, ClassCounter::SlabsReturned, 1);
        counters::class_sub(class, ClassCounter::CentralFree, slab.free_with_memory().into());
        counters::class_sub(class, ClassCounter::Untouched, slab.untouched().into());
    }

    /// Notes that a slab without a block in use gets one, or goes.
    fn no_longer_empty(&self, slab: &'static Slab) {
        self.empty.set(self.empty.get() - slab.bytes());
        if self.wide.get().is_some_and(|wide| core::ptr::eq(wide, slab)) {
            self.wide.set(None);
        }
    }

    /// Takes a freed block back. Returns the bytes of all slabs that have no block in use then, and one of several
    /// pages that has none where another such is kept: it goes back at once, for blocks of any size, by the caller, who
    /// holds no lock then.
    pub fn free(&self, slab: &'static Slab, block: BlockPtr) -> (usize, Option<&'static Slab>) {
        // SAFETY: the block is this slab's, and the lock makes us its owner.
        unsafe { slab.push(block) };
        counters::class_add(slab.class.get(), ClassCounter::CentralFree, 1);
        if slab.place.get() == Place::Full {
            slab.place.set(Place::Partial);
            self.with_free[slab.class.get().index()].push_back(slab);
        }
        let mut gone = None;
        if slab.in_use() == 0 {
            self.empty.set(self.empty.get() + slab.bytes());
            match slab.pages.get() {
                1 => {}
                2..=WIDE_PAGES => gone = self.wide.replace(Some(slab)),
                _ => gone = Some(slab),
            }
            if let Some(other) = gone {
                self.take_out(other);
            }
        }
        (self.empty.get(), gone)
    }

    /// Gives the slabs without a block in use back to the page heap.
    pub fn release_empty(&self, slow: SlowPath) {
        if self.empty.get() == 0 {
            return;
        }
        for list in &self.with_free {
            let mut next = list.first();
            while let Some(slab) = next {
                next = slab.next.get();
                if slab.in_use() == 0 {
                    self.take_out(slab);
                    give_back::span(slow, slab);
                }
            }
        }
        self.lists.release();
    }

    /// Makes a slab without a block in use a span that is nobody's.
    fn take_out(&self, slab: &'static Slab) {
        self.end(slab);
        self.no_longer_empty(slab);
        counters::sub(TierCounter::SampledBytes, slab.bytes() as u64);
        slab.end();
    }
}

/// The live slot of the block at `p`.
pub fn slot(slab: &'static Slab, p: *mut u8) -> &'static Cell<u32> {
    let index = (p as usize - slab.address() as usize) / slab.class.get().block();
    debug_assert!(index < slab.capacity() as usize);
    // SAFETY: the list has an entry for each block; it is only touched under the sampler's lock.
    unsafe { &*(slab.aux.get() as *const Cell<u32>).add(index) }
}

/// Marks a block as recorded nowhere.
pub const UNRECORDED: u32 = NO_SLOT;
/// Marks a block that is not the program's.
pub const FREE: u32 = NO_SLOT - 1;

/// Whether the block was ever handed out.
pub fn was_cut(slab: &'static Slab, block: BlockPtr) -> bool {
    let offset = block.address() as usize - slab.address() as usize;
    offset < usize::from(slab.carved.get()) * slab.class.get().block()
}
