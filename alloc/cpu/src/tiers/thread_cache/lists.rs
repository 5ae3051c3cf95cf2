//! The lists that `malloc` pops: how they are made of a slab's free blocks, how long they are, and how they go back.

use crate::layout::block::BlockPtr;
use crate::layout::size_class::{SMALL_CLASSES, SizeClass};
use crate::layout::slab::Slab;
use crate::segment::request::is_asked;
use crate::settings;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::notes::update;
use crate::tiers::thread_cache::Heap;
use crate::tiers::thread_cache::exchange::KEPT_MIN;
use crate::tiers::thread_cache::order::{Came, NEXT_ORDERED_MIN, ORDERED_MIN};

/// Bytes of new blocks that a refill cuts at first; it doubles with each, up to a slab.
const FIRST_CARVE: usize = 1024;
/// A list of fewer blocks or bytes than these is made longer with new blocks, if the slab has any: in a loop over one
/// class, refills are what costs.
const LIST_MIN: u32 = 64;
const LIST_BYTES: usize = 16 * 1024;
/// The same where one class alternates with others: the shorter the list, the sooner a block that is still in the
/// processor's caches is used again.
const MIXED_MIN: u32 = 8;
const MIXED_BYTES: usize = 8 * 1024;
/// Of this many refills in a row at least one is a general one.
const GENERAL_EVERY: u64 = 16;
/// Where the sampled byte cuts a list, it is walked this far at a time: blocks that are about to be used anyway.
const CUT_MAX: u32 = 64;

impl Heap {
    /// A small block from what the thread itself has freed of the active slab, or of the one that comes next, if that
    /// makes a list of its own and nothing else is due: what [`Heap::refill`] comes to most of the time, in a fifth of
    /// its instructions. `None` leaves everything as it was.
    #[inline(always)]
    pub fn recycle(&'static self, class: SizeClass) -> Option<*mut u8> {
        let slab = self.of(class).active.get()?;
        let count = &self.of(class).count;
        let budget = self.budget(class);
        // Now and then the general refill looks after what other threads freed, and publishes the counters.
        let is_plain = !count.refills.get().is_multiple_of(GENERAL_EVERY)
            && budget.is_of(settings::current().period())
            && !is_asked();
        if !is_plain || self.sampling.scope.get() != 0 {
            return None;
        }
        if let Some(block) = self.use_kept(class, KEPT_MIN) {
            return Some(block);
        }
        let blocks = slab.local_blocks();
        if blocks < self.list_min(class) {
            return self.use_kept(class, 1).or_else(|| self.recycle_next(class, slab));
        }
        let left = budget.left.get() - (class.block() * blocks as usize) as i64;
        if left <= 0 {
            return None;
        }
        budget.left.set(left);
        Some(self.take_up(slab, slab.take_local(blocks), blocks))
    }

    /// The same where what the thread has freed of the slab that a general refill would come to is all that the refill
    /// would find there.
    #[inline(never)]
    fn recycle_next(&'static self, class: SizeClass, slab: &'static Slab) -> Option<*mut u8> {
        let stays = slab.free_blocks() >= self.worth_it(class);
        let next = if stays { slab } else { self.queued_slab(class)? };
        let blocks = next.local_blocks();
        let is_all = blocks >= self.list_min(class) || blocks > 0 && blocks == next.free_blocks();
        let bytes = class.block() * blocks as usize;
        let budget = &self.budget(class).left;
        let left = budget.get() - bytes as i64;
        if !is_all || left <= 0 || self.inbox.has_some() || !self.turn_by(bytes) {
            return None;
        }
        budget.set(left);
        if !stays {
            self.leave_full(slab);
            self.make_active(next);
        }
        let mut list = next.take_local(blocks);
        let least = if stays { ORDERED_MIN } else { NEXT_ORDERED_MIN };
        if blocks >= least {
            list = self.order.arrange(next, list, blocks, Came::FromItsThread);
        }
        Some(self.take_up(next, list, blocks))
    }

    /// Makes the list of so many blocks that was taken from a slab the one that `malloc` pops, but for its first block.
    #[inline(always)]
    fn take_up(&self, slab: &'static Slab, list: BlockPtr, blocks: u32) -> *mut u8 {
        let class = slab.class.get();
        let count = &self.of(class).count;
        self.latest.set(class);
        self.note_stocked();
        count.refills.set(count.refills.get() + 1);
        count.allocs.set(count.allocs.get() + u64::from(blocks));
        let counted = slab.counted().min(blocks);
        slab.set_counted(slab.counted() - counted);
        count.frees.set(count.frees.get() + u64::from(blocks - counted));
        count.cached.set(u64::from(blocks));
        self.note_own_list(class);
        // SAFETY: the list has at least one block, all ours.
        self.head[class.index()].set(unsafe { list.next() });
        list.address()
    }

    /// Makes the freed blocks of the active slab the list that `malloc` pops, or new ones. False if it has less than
    /// `least`.
    #[inline(always)]
    pub(super) fn stock(&self, slab: &'static Slab, least: u32) -> bool {
        let class = slab.class.get();
        if slab.free_blocks() < least {
            return false;
        }
        let list_min = self.list_min(class);
        let from = if slab.takes_back(list_min) { Came::FromOthers } else { Came::FromItsThread };
        let (mut list, mut blocks) = slab.take_free(list_min);
        if blocks >= ORDERED_MIN {
            list = self.order.arrange(slab, list, blocks, from);
        }
        let count = &self.of(class).count;
        let counted = slab.counted().min(blocks);
        slab.set_counted(slab.counted() - counted);
        count.frees.set(count.frees.get() + u64::from(blocks - counted));
        let list_max = self.list_max(class);
        let list_min = list_min.min(list_max);
        self.latest.set(class);
        if blocks < list_min && slab.has_uncut() {
            // A thread that comes back with freed blocks is one that needs few more.
            let most = if blocks > 0 { self.most_new(slab, list_min - blocks) } else { u32::MAX };
            let want = list_max.min(most).min(self.carve_max(slab));
            let (new, more) = if want > 0 { slab.carve(want, list) } else { (list, 0) };
            if more > 0 {
                list = new;
                blocks += more;
            }
        }
        if blocks > 0 {
            self.install(slab, list, blocks, list_max);
        }
        blocks > 0
    }

    /// Blocks of a list that is not worth making longer: at most half a slab, of which some may be in use.
    #[inline]
    fn list_min(&self, class: SizeClass) -> u32 {
        let (blocks, bytes) =
            if self.latest.get() == class { (LIST_MIN, LIST_BYTES) } else { (MIXED_MIN, MIXED_BYTES) };
        blocks.max((bytes / class.block()) as u32).min(class.info().capacity / 2)
    }

    /// Blocks of the longest list: few while the class is new to this thread, so that small programs stay small, and a
    /// thread that ends early has not much to put back.
    fn list_max(&self, class: SizeClass) -> u32 {
        let shift = self.of(class).carve_shift.get();
        if shift < 8 {
            self.of(class).carve_shift.set(shift + 1);
        }
        (((FIRST_CARVE << shift) / class.block()) as u32).max(1)
    }

    /// Blocks that may be cut at once from a slab: of a class's only one as many as before. A program that uses many
    /// classes a little does not touch a whole slab of each.
    #[inline(always)]
    fn carve_max(&self, slab: &'static Slab) -> u32 {
        let class = slab.class.get();
        if self.of(class).slabs.get() > 1 {
            return u32::MAX;
        }
        ((FIRST_CARVE / class.block()) as u32).max(u32::from(slab.carved.get())).max(1)
    }

    /// New blocks that make a short list longer, `most` or fewer: without need a class's only slab gets no more memory.
    #[inline]
    fn most_new(&self, slab: &'static Slab, most: u32) -> u32 {
        let is_only = self.of(slab.class.get()).slabs.get() == 1;
        if is_only && !slab.has_holes() && !self.thrift.is_busy() { most.min(slab.uncut_with_memory()) } else { most }
    }

    /// Makes the first `most` of `list`, all `blocks` free blocks of `slab`, the list that `malloc` pops; fewer where
    /// the sampling budget ends: the block that holds the sampled byte is left out,
    /// so that its allocation finds the list empty.
    fn install(&self, slab: &'static Slab, list: BlockPtr, blocks: u32, most: u32) {
        let class = slab.class.get();
        let size = class.block() as i64;
        let budget = &self.budget(class).left;
        let mut ready = blocks.min(most);
        let left = budget.get() - size * i64::from(ready);
        if left > 0 {
            budget.set(left);
        } else {
            ready = ((budget.get() + size - 1) / size - 1).max(0) as u32;
            if ready > CUT_MAX {
                ready = CUT_MAX;
                budget.set(budget.get() - size * i64::from(ready));
            } else {
                budget.set(0);
            }
        }
        let mut first = list;
        if ready < blocks {
            let rest = if ready > 0 {
                // SAFETY: `list` has `blocks` blocks, all of this slab and all ours.
                unsafe { list.cut(ready) }
            } else {
                core::mem::replace(&mut first, BlockPtr::NULL)
            };
            slab.put_back_all(rest, blocks - ready);
            slab.set_counted(slab.counted() + (blocks - ready));
        }
        let count = &self.of(class).count;
        count.allocs.set(count.allocs.get() + u64::from(ready));
        count.cached.set(u64::from(ready));
        self.note_own_list(class);
        self.head[class.index()].set(first);
    }

    /// Puts everything that `malloc` pops back into its slabs.
    pub fn empty_lists(&'static self, slow: SlowPath) {
        for class in SizeClass::all().skip(SMALL_CLASSES) {
            if self.medium.stack(class).blocks() > 0 {
                self.trim_medium(slow, class, 0);
            }
        }
        for (index, head) in self.head.iter().enumerate() {
            let first = head.get();
            let class = SizeClass(index as u8);
            let of = self.of(class);
            // It says what the list had when it was made, also where the program has taken all of it since.
            update(&of.count.cached, 0);
            if first.is_null() {
                continue;
            }
            head.set(BlockPtr::NULL);
            let blocks = match of.active.get().filter(|_| !self.is_list_kept(class)) {
                Some(slab) => Self::put_back(slab, first),
                None => self.send_blocks(slow, first, true),
            };
            of.count.allocs.set(of.count.allocs.get() - u64::from(blocks));
        }
    }

    /// Puts a list of the active slab's back. Its blocks.
    fn put_back(slab: &'static Slab, first: BlockPtr) -> u32 {
        let (mut last, mut blocks) = (first, 1);
        // SAFETY: the list's blocks are this thread's and all of the active slab.
        unsafe {
            while !last.next().is_null() {
                last = last.next();
                blocks += 1;
            }
            slab.put_back(first, last, blocks);
        }
        slab.set_counted(slab.counted() + blocks);
        blocks
    }
}
