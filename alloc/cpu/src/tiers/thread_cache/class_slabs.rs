//! What a heap has of one class: its slabs, in whatever place, and what is counted of their blocks.
//!
//! All of a class lies together, so that a refill touches two or three lines of the processor's caches, and a thread
//! that uses few classes few pages: those of the others are never written to, and have no memory. So what goes through
//! all classes writes a word only where that changes it ([`update`]).

use core::cell::Cell;

use crate::layout::slab::Slab;
use crate::layout::slab_list::SlabList;
use crate::tiers::notes::{ClassNotes, update};

/// Counters of one class.
#[derive(Default)]
pub struct ClassCount {
    /// Blocks of a small class that were made ready to be allocated. Medium ones are counted in their stack.
    pub(super) allocs: Cell<u64>,
    /// Blocks of a small class that were gathered in.
    pub(super) frees: Cell<u64>,
    /// Misses.
    pub refills: Cell<u64>,
    /// Blocks that are among `allocs` and still in the list, as of the last time that they were counted.
    pub cached: Cell<u64>,
    /// Blocks without memory in the slabs that came from the page heap, less those that were cut; wraps.
    pub untouched: Cell<u64>,
    /// Blocks of other heaps that were handed over.
    pub sent: Cell<u64>,
    /// Blocks that were handed over and arrived.
    pub returned: Cell<u64>,
}

/// A heap's slabs of one class. Zeroed memory is none.
#[repr(C)]
pub struct ClassSlabs {
    /// The slab that the list came from.
    pub(super) active: Cell<Option<&'static Slab>>,
    /// Counters.
    pub count: ClassCount,
    /// How many slabs there are, in whatever place.
    pub(super) slabs: Cell<u32>,
    /// How many are partial or sparse.
    pub(super) partial_slabs: Cell<u32>,
    /// How many were taken over from threads that have ended, and have not been answered by one that went back.
    pub(super) inherited: Cell<u32>,
    /// How often the longest list has doubled.
    pub(super) carve_shift: Cell<u8>,
    /// Slabs with free blocks of which at least half is in use, the one that has waited longest first.
    pub(super) partial: SlabList,
    /// Slabs of which less is in use.
    pub(super) sparse: SlabList,
    /// Slabs with few free blocks, if any.
    pub(super) full: SlabList,
    /// Slabs without a block in use, the one that emptied last first.
    pub(super) empty: SlabList,
    /// Those of which so little is in use that pages may be without a block, and that are to be looked through.
    pub(super) thin: SlabList,
    /// Bytes of them.
    pub(super) thin_bytes: Cell<usize>,
    /// The census's.
    pub notes: ClassNotes,
}

impl ClassSlabs {
    /// The places in which slabs wait.
    pub(super) fn queues(&self) -> [&SlabList; 5] {
        [&self.partial, &self.sparse, &self.thin, &self.empty, &self.full]
    }

    /// Forgets what was learnt of a class of which there are no slabs any more.
    pub(super) fn forget(&self) {
        update(&self.partial_slabs, 0);
        update(&self.inherited, 0);
        update(&self.carve_shift, 0);
        update(&self.thin_bytes, 0);
    }
}
