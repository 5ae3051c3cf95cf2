//! Slabs that hold sampled blocks only.
//!
//! Their owner is no heap, so that freeing such a block fails the fast path's one compare and finds itself on the
//! slow path at no cost to the others. Each slab has a table from block to slot in the live table.

use core::cell::Cell;

use crate::block::BlockPtr;
use crate::size_class::{CLASSES, SizeClass};
use crate::slab::{NO_SLOT, Place, Slab, SlabList, owner};
use crate::spin_lock::SlowPath;
use crate::stats::{self, TierCounter};
use crate::{os, page_heap};

/// The slabs, by class. Guarded by the sampler's lock.
pub struct SampledSlabs {
    with_free: [SlabList; CLASSES],
    tables: Tables,
}

/// Memory for the tables: cut from chunks, never given back, like the slabs that they serve.
struct Tables {
    next: Cell<*mut u8>,
    left: Cell<usize>,
}

const CHUNK: usize = 64 * 1024;

impl Tables {
    fn take(&self, entries: usize) -> *mut u32 {
        let bytes = entries * size_of::<u32>();
        if bytes > self.left.get() {
            let chunk = os::map(CHUNK.max(bytes));
            if chunk.is_null() {
                return chunk.cast();
            }
            self.next.set(chunk);
            self.left.set(CHUNK.max(bytes));
        }
        let table = self.next.get();
        // SAFETY: `left` bytes follow.
        self.next.set(unsafe { table.add(bytes) });
        self.left.set(self.left.get() - bytes);
        table.cast()
    }
}

impl SampledSlabs {
    /// No slab yet.
    pub const fn new() -> Self {
        SampledSlabs {
            with_free: [const { SlabList::new() }; CLASSES],
            tables: Tables { next: Cell::new(core::ptr::null_mut()), left: Cell::new(0) },
        }
    }

    /// A block of `class`; `None` without memory.
    pub fn alloc(&self, slow: SlowPath, class: SizeClass) -> Option<(&'static Slab, BlockPtr)> {
        let list = &self.with_free[class.index()];
        let slab = match list.first() {
            Some(slab) => slab,
            None => self.add(slow, class)?,
        };
        let block = slab.local_free.get();
        let block = if block.is_null() {
            slab.carve(1).0
        } else {
            // SAFETY: the block is free and, under the lock, ours.
            slab.local_free.set(unsafe { block.next() });
            let live = slab.in_use() + 1;
            slab.arm(live, live);
            block
        };
        if !slab.has_free() {
            list.remove(slab);
            slab.place.set(Place::Full);
        }
        Some((slab, block))
    }

    fn add(&self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        let slab = page_heap::alloc(slow, class.info().slab_pages as usize, 1)?;
        let table = self.tables.take(class.info().capacity as usize);
        if table.is_null() {
            page_heap::free(slow, slab);
            return None;
        }
        slab.begin(class, owner::SAMPLED);
        slab.aux.set(table as usize);
        slab.place.set(Place::Partial);
        self.with_free[class.index()].push_back(slab);
        stats::add(TierCounter::SampledBytes, slab.bytes() as u64);
        Some(slab)
    }

    /// Takes a freed block back.
    pub fn free(&self, slab: &'static Slab, block: BlockPtr) {
        // SAFETY: the block is this slab's, and the lock makes us its owner.
        unsafe { slab.push(block) };
        if slab.place.get() == Place::Full {
            slab.place.set(Place::Partial);
            self.with_free[slab.class.get().index()].push_back(slab);
        }
    }
}

/// The live slot of the block at `p`.
pub fn slot(slab: &'static Slab, p: *mut u8) -> &'static Cell<u32> {
    let index = (p as usize - slab.address() as usize) / slab.class.get().block();
    debug_assert!(index < slab.capacity() as usize);
    // SAFETY: the table has an entry for each block; it is only touched under the sampler's lock.
    unsafe { &*(slab.aux.get() as *const Cell<u32>).add(index) }
}

/// Marks a block as recorded nowhere.
pub const UNRECORDED: u32 = NO_SLOT;
