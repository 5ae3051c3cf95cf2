//! Slabs that hold sampled blocks only.
//!
//! Their owner is no heap, so that freeing such a block fails the fast path's one compare and finds itself on the
//! slow path at no cost to the others. Each slab has a list from block to slot in the live table
//! ([`super::slot_lists`]).

use core::cell::Cell;

use super::slot_lists::SlotLists;
use crate::layout::block::BlockPtr;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::layout::slab::{NO_SLOT, Place, Slab, owner};
use crate::layout::slab_list::SlabList;
use crate::pages::page_heap;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::give_back;

/// The slabs, by class. Guarded by the sampler's lock.
pub struct SampledSlabs {
    with_free: [SlabList; CLASSES],
    /// Bytes of slabs without a block in use.
    empty: Cell<usize>,
    lists: SlotLists,
}

impl SampledSlabs {
    /// No slab yet.
    pub const fn new() -> Self {
        SampledSlabs { with_free: [const { SlabList::new() }; CLASSES], empty: Cell::new(0), lists: SlotLists::new() }
    }

    /// A block of `class`; `None` without memory.
    pub fn alloc(&self, slow: SlowPath, class: SizeClass) -> Option<(&'static Slab, BlockPtr)> {
        let list = &self.with_free[class.index()];
        let slab = match list.first() {
            Some(slab) => slab,
            None => self.add(slow, class)?,
        };
        let was_empty = slab.in_use() == 0;
        let block = slab.local_free.get();
        let from =
            if block.is_null() && slab.untouched() > 0 { ClassCounter::Untouched } else { ClassCounter::CentralFree };
        let block = if block.is_null() {
            let (block, count) = slab.carve(1, BlockPtr::NULL);
            if count == 0 {
                return None;
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
            self.empty.set(self.empty.get() - slab.bytes());
        }
        counters::class_sub(class, from, 1);
        if !slab.has_free() {
            list.remove(slab);
            slab.place.set(Place::Full);
        }
        Some((slab, block))
    }

    fn add(&self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        let slab = page_heap::alloc_slab(slow, class)?;
        let Some(list) = self.lists.take(class) else {
            give_back::span(slow, slab);
            return None;
        };
        slab.begin(class, owner::SAMPLED);
        slab.aux.set(list as usize);
        slab.place.set(Place::Partial);
        self.with_free[class.index()].push_back(slab);
        counters::add(TierCounter::SampledBytes, slab.bytes() as u64);
        counters::class_add(class, ClassCounter::SlabsTaken, 1);
        counters::class_add(class, ClassCounter::CentralFree, slab.free_with_memory().into());
        counters::class_add(class, ClassCounter::Untouched, slab.untouched().into());
        self.empty.set(self.empty.get() + slab.bytes());
        Some(slab)
    }

    /// Takes a freed block back. Returns the bytes of all slabs that have no block in use then.
    pub fn free(&self, slab: &'static Slab, block: BlockPtr) -> usize {
        // SAFETY: the block is this slab's, and the lock makes us its owner.
        unsafe { slab.push(block) };
        counters::class_add(slab.class.get(), ClassCounter::CentralFree, 1);
        if slab.place.get() == Place::Full {
            slab.place.set(Place::Partial);
            self.with_free[slab.class.get().index()].push_back(slab);
        }
        if slab.in_use() == 0 {
            self.empty.set(self.empty.get() + slab.bytes());
        }
        self.empty.get()
    }

    /// Gives the slabs without a block in use back to the page heap.
    pub fn release_empty(&self, slow: SlowPath) {
        if self.empty.replace(0) == 0 {
            return;
        }
        for (class, list) in self.with_free.iter().enumerate() {
            let mut next = list.first();
            while let Some(slab) = next {
                next = slab.next.get();
                if slab.in_use() == 0 {
                    list.remove(slab);
                    self.lists.give(SizeClass(class as u8), slab.aux.get() as *mut u32);
                    counters::sub(TierCounter::SampledBytes, slab.bytes() as u64);
                    counters::class_add(slab.class.get(), ClassCounter::SlabsReturned, 1);
                    counters::class_sub(slab.class.get(), ClassCounter::CentralFree, slab.free_with_memory().into());
                    counters::class_sub(slab.class.get(), ClassCounter::Untouched, slab.untouched().into());
                    slab.end();
                    give_back::span(slow, slab);
                }
            }
        }
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
