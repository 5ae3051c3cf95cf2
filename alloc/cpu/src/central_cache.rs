//! The central cache: slabs that no thread owns, with one lock for each size class.
//!
//! A thread leaves its slabs here when it exits or has too many partial ones; any thread that runs out takes one
//! over whole, before it asks the page heap. A block that is freed into such a slab goes straight into it, under
//! the class's lock; a slab that empties goes back to the page heap.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use crate::block::BlockPtr;
use crate::page_heap;
use crate::size_class::{CLASSES, SizeClass};
use crate::slab::{Place, Slab, SlabList, owner};
use crate::spin_lock::{SlowPath, SpinLock};
use crate::stats::{self, TierCounter};

/// One class's part of the central cache.
struct Shelf {
    /// Slabs that have free blocks; full ones are in no list until an eighth of them is free.
    slabs: SlabList,
    /// Blocks freed here that no heap has counted yet.
    frees: Cell<u64>,
}

/// What a heap gets from the central cache.
pub struct Taken {
    /// A slab with free blocks.
    pub slab: Option<&'static Slab>,
    /// Frees of this class that the heap is to count.
    pub frees: u64,
}

// SAFETY: only reached under its lock.
unsafe impl Send for Shelf {}

static SHELVES: [SpinLock<Shelf>; CLASSES] =
    [const { SpinLock::new(Shelf { slabs: SlabList::new(), frees: Cell::new(0) }) }; CLASSES];

fn shelf(class: SizeClass) -> &'static SpinLock<Shelf> {
    &SHELVES[class.index()]
}

/// Takes over a slab that the caller owns and that is in no list.
pub fn give(slow: SlowPath, slab: &'static Slab) {
    let shelf = shelf(slab.class.get()).lock(slow);
    slab.owner.store(owner::CENTRAL, Ordering::Release);
    settle(&shelf, slab);
}

/// Hands a slab with free blocks to the heap with the tag `heap`.
pub fn take(slow: SlowPath, class: SizeClass, heap: usize) -> Taken {
    let shelf = shelf(class).lock(slow);
    let slab = shelf.slabs.pop_front();
    if let Some(slab) = slab {
        stats::sub(TierCounter::CentralSlabs, 1);
        slab.place.set(Place::None);
        slab.owner.store(heap, Ordering::Release);
    }
    Taken { slab, frees: shelf.frees.replace(0) }
}

/// Frees a block of a slab that was seen with [`owner::CENTRAL`]. False if a thread has taken the slab over since.
pub fn free(slow: SlowPath, slab: &'static Slab, block: BlockPtr) -> bool {
    let empty = {
        let shelf = shelf(slab.class.get()).lock(slow);
        if slab.owner.load(Ordering::Acquire) != owner::CENTRAL {
            return false;
        }
        // SAFETY: the block is this slab's, and the lock makes us its owner.
        if !unsafe { slab.push(block) } {
            return true;
        }
        let empty = slab.in_use() == 0;
        if empty {
            if slab.place.get() == Place::Partial {
                shelf.slabs.remove(slab);
                stats::sub(TierCounter::CentralSlabs, 1);
            }
            let uncounted = u32::from(slab.carved.get()) - slab.counted_frees.get();
            shelf.frees.set(shelf.frees.get() + u64::from(uncounted));
            slab.end();
        } else {
            settle(&shelf, slab);
        }
        empty
    };
    if empty {
        stats::sub(TierCounter::SlabBytes, slab.bytes() as u64);
        page_heap::free(slow, slab);
    }
    true
}

/// Puts a slab where it belongs: into the list if it has blocks to give, and arms it.
fn settle(shelf: &Shelf, slab: &'static Slab) {
    if slab.has_free() {
        slab.arm_empty();
        slab.place.set(Place::Partial);
        shelf.slabs.push_back(slab);
        stats::add(TierCounter::CentralSlabs, 1);
    } else {
        slab.arm_full();
        slab.place.set(Place::None);
    }
}

/// For `fork`: takes all locks.
pub fn lock_for_fork() {
    for shelf in &SHELVES {
        shelf.lock_raw();
    }
}

/// For `fork`: lets them go, in parent and child.
pub fn unlock_after_fork() {
    for shelf in &SHELVES {
        shelf.unlock_raw();
    }
}
