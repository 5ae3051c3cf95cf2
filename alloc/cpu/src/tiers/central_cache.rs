//! The central cache: slabs that no thread owns, with one lock for each size class.
//!
//! A thread leaves its slabs here when it exits or has too many partial ones; any thread that runs out takes one
//! over whole, before it asks the page heap. So does one that frees a block of such a slab and allocates from the class
//! itself: who inherits blocks frees them as his own. A block of another thread's goes straight into the slab, under the
//! class's lock; a slab that empties goes back to the page heap.

use core::sync::atomic::Ordering;

use crate::layout::block::Batch;
use crate::layout::free_list::FreeList;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::layout::slab::{Place, Slab, owner};
use crate::layout::slab_list::SlabList;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::sync::spin_lock::{ForkLock, SlowPath, SpinLock};
use crate::tiers::give_back;

/// One class's part of the central cache.
struct Shelf {
    /// Slabs that have free blocks; full ones are in no list until a part of them is free.
    slabs: SlabList,
}

// SAFETY: only reached under its lock.
unsafe impl Send for Shelf {}

static SHELVES: [SpinLock<Shelf>; CLASSES] = [const { SpinLock::new(Shelf { slabs: SlabList::new() }) }; CLASSES];

fn shelf(class: SizeClass) -> &'static SpinLock<Shelf> {
    &SHELVES[class.index()]
}

/// Takes over a slab that the caller owns and that is in no list.
pub fn give(slow: SlowPath, slab: &'static Slab) {
    let shelf = shelf(slab.class.get()).lock(slow);
    counters::class_add(slab.class.get(), ClassCounter::CentralFree, slab.free_with_memory().into());
    slab.set_owner(owner::CENTRAL, None);
    settle(&shelf, slab);
}

/// Hands a slab with free blocks to the owner `heap`, as [`Slab::set_owner`] does.
pub fn take(slow: SlowPath, class: SizeClass, heap: usize, stack: Option<&'static FreeList>) -> Option<&'static Slab> {
    let shelf = shelf(class).lock(slow);
    let slab = shelf.slabs.pop_front()?;
    counters::sub(TierCounter::CentralSlabs, 1);
    counters::class_sub(class, ClassCounter::CentralFree, slab.free_with_memory().into());
    slab.place.set(Place::None);
    slab.set_owner(heap, stack);
    Some(slab)
}

/// Hands a slab that was seen with [`owner::CENTRAL`] to the owner `heap`. False if a thread has taken it over since.
pub fn take_this(slow: SlowPath, slab: &'static Slab, heap: usize, stack: Option<&'static FreeList>) -> bool {
    let class = slab.class.get();
    let shelf = shelf(class).lock(slow);
    if slab.owner.load(Ordering::Acquire) != owner::CENTRAL {
        return false;
    }
    if slab.place.replace(Place::None) == Place::Partial {
        shelf.slabs.remove(slab);
        counters::sub(TierCounter::CentralSlabs, 1);
    }
    counters::class_sub(class, ClassCounter::CentralFree, slab.free_with_memory().into());
    slab.set_owner(heap, stack);
    true
}

/// Frees blocks of a slab that was seen with [`owner::CENTRAL`]. False if a thread has taken the slab over since.
pub fn free(slow: SlowPath, slab: &'static Slab, batch: Batch) -> bool {
    let empty = {
        let shelf = shelf(slab.class.get()).lock(slow);
        if slab.owner.load(Ordering::Acquire) != owner::CENTRAL {
            return false;
        }
        let class = slab.class.get();
        counters::class_add(class, ClassCounter::CentralFree, batch.count.into());
        if !batch.counted {
            counters::class_add(class, ClassCounter::SharedFrees, batch.count.into());
        }
        if !class.is_medium() {
            slab.set_counted(slab.counted() + batch.count);
        }
        // SAFETY: the blocks are this slab's, and the lock makes us its owner.
        if !unsafe { slab.push_batch(batch) } {
            return true;
        }
        let empty = slab.in_use() == 0;
        if empty {
            if slab.place.get() == Place::Partial {
                shelf.slabs.remove(slab);
                counters::sub(TierCounter::CentralSlabs, 1);
            }
            counters::class_sub(class, ClassCounter::CentralFree, slab.free_with_memory().into());
            counters::class_sub(class, ClassCounter::Untouched, slab.untouched().into());
            counters::class_add(class, ClassCounter::SlabsReturned, 1);
            slab.end();
        } else {
            settle(&shelf, slab);
        }
        empty
    };
    if empty {
        counters::sub(TierCounter::SlabBytes, slab.bytes() as u64);
        give_back::slab(slow, slab);
    }
    true
}

/// Puts a slab where it belongs: into the list if it has blocks to give, and arms it.
fn settle(shelf: &Shelf, slab: &'static Slab) {
    if slab.has_free() {
        slab.arm_empty();
        slab.place.set(Place::Partial);
        shelf.slabs.push_front(slab);
        counters::add(TierCounter::CentralSlabs, 1);
    } else {
        slab.arm_full(slab.capacity() / 8);
        slab.place.set(Place::None);
    }
}

/// The lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &SHELVES
}
