//! The thread cache: a heap for each thread, with a free list for each class.
//!
//! `malloc` pops the class's list; `free` pushes onto the list of the slab that the block lies in
//! ([`Slab::push`]). The two meet only when a list has run out: [`Heap::refill`] then takes a slab's freed blocks
//! over as the new list. That is the heartbeat on which everything else runs (remote frees, counters, sampling), so
//! that the fast path has none of it.
//!
//! A heap's slabs are in one of three places. The *active* slab of a class is the one that the list came from. A
//! slab whose blocks are all handed out is *full*; when an eighth of it has been freed it queues as *partial*, and
//! the refill takes the one that has waited longest, because it has gathered the most. A partial slab that empties
//! goes back to the page heap, and one too many to the central cache.

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicU32, Ordering};

use poolscope_capture::ThreadState;

use crate::block::BlockPtr;
use crate::size_class::{CLASSES, SizeClass};
use crate::slab::{Place, Slab, SlabList};
use crate::spin_lock::SlowPath;
use crate::stats::{self, TierCounter};
use crate::transfer_cache::{Mailbox, Outbox};
use crate::{central_cache, page_heap, sampler};

/// Bytes that a heap keeps in partial slabs of one class before it gives slabs to the central cache.
const PARTIAL_MAX: usize = 1 << 20;
/// Bytes of new blocks that a refill cuts at first; it doubles with each, up to a slab.
const FIRST_CARVE: usize = 4096;

/// Counters of one class, credited in the slow path.
#[derive(Default)]
pub struct ClassCount {
    /// Blocks made ready.
    pub allocs: Cell<u64>,
    /// Blocks gathered in.
    pub frees: Cell<u64>,
    /// Misses.
    pub refills: Cell<u64>,
}

/// A thread's heap. Zeroed memory is an empty one. Never unmapped: after its thread's exit another takes it over.
#[repr(C, align(64))]
pub struct Heap {
    /// What `malloc` pops, for each class.
    pub head: [Cell<BlockPtr>; CLASSES],
    active: [Cell<Option<&'static Slab>>; CLASSES],
    partial: [SlabList; CLASSES],
    partial_slabs: [Cell<u32>; CLASSES],
    full: SlabList,
    carve_shift: [Cell<u8>; CLASSES],
    /// Counters, for each class.
    pub counts: [ClassCount; CLASSES],
    /// Bytes until the next sample, for each class.
    pub budget: [Cell<i64>; CLASSES],
    /// Bytes until the next sample among large blocks.
    pub large_budget: Cell<i64>,
    /// State of the random number generator.
    pub random: Cell<u64>,
    /// This thread is taking a sample: what it allocates meanwhile is not sampled.
    pub in_sampler: Cell<bool>,
    /// Scope of the leak checker that this thread is in; every allocation is recorded while it is not 0.
    pub scope: Cell<u32>,
    /// Samples taken.
    pub samples: Cell<u64>,
    /// Kernel id of the thread.
    pub thread_id: Cell<u32>,
    /// Index of the heap in the segment, and in the order of creation.
    pub index: Cell<u32>,
    /// Threads that have had it.
    pub uses: Cell<u64>,
    /// State of stack capture.
    pub capture: UnsafeCell<ThreadState>,
    outbox: Outbox,
    /// Next in the registry's list of unused heaps.
    pub next_unused: Cell<Option<&'static Heap>>,
    /// Blocks that other threads freed.
    pub mailbox: Mailbox,
    /// 1 while a thread has it.
    pub live: AtomicU32,
}

// SAFETY: everything but `mailbox` and `live` belongs to the thread that has the heap, and to the registry between
// two threads; the three static heaps are never written.
unsafe impl Sync for Heap {}

/// The heap of a thread that has not allocated yet: all lists empty.
pub static EMPTY: Heap = Heap::new();
/// The heap of a thread whose own was taken away at its exit.
pub static DYING: Heap = Heap::new();
/// The heap of a thread while it is in the slow path: a signal handler that allocates then finds empty lists and
/// is served without locks (see [`crate::reentrant`]).
pub static BUSY: Heap = Heap::new();

impl Heap {
    const fn new() -> Self {
        // SAFETY: all fields are integers, cells of integers, null-able pointers or `None`: zero is valid.
        unsafe { core::mem::zeroed() }
    }

    /// The value of [`Slab::owner`] for this heap's slabs.
    #[inline(always)]
    pub fn tag(&self) -> usize {
        &raw const *self as usize
    }

    /// Pops a block of `class`, if the list has one.
    #[inline(always)]
    pub fn pop(&self, class: SizeClass) -> Option<*mut u8> {
        // SAFETY: a SizeClass is less than CLASSES.
        let head = unsafe { self.head.get_unchecked(class.index()) };
        let block = head.get();
        if block.is_null() {
            return None;
        }
        // SAFETY: blocks in the list are free and this thread's.
        head.set(unsafe { block.next() });
        Some(block.address())
    }

    /// Makes a list of blocks of `class` ready. False when the next block is to be sampled (the list stays empty and
    /// the budget is 0) or when there is no memory; the budget tells which.
    pub fn refill(&'static self, slow: SlowPath, class: SizeClass) -> bool {
        self.drain(slow);
        let count = &self.counts[class.index()];
        count.refills.set(count.refills.get() + 1);
        loop {
            if let Some(slab) = self.active[class.index()].get() {
                let (list, blocks) = slab.take_free();
                if blocks > 0 {
                    let counted = slab.counted_frees.get().min(blocks);
                    slab.counted_frees.set(slab.counted_frees.get() - counted);
                    count.frees.set(count.frees.get() + u64::from(blocks - counted));
                    self.install(slab, list, blocks);
                    sampler::publish_class(self, class);
                    return !self.head[class.index()].get().is_null();
                }
                let (list, blocks) = slab.carve(self.carve_count(class));
                if blocks > 0 {
                    self.install(slab, list, blocks);
                    sampler::publish_class(self, class);
                    return !self.head[class.index()].get().is_null();
                }
                slab.place.set(Place::Full);
                slab.arm_full();
                self.full.push_back(slab);
                self.active[class.index()].set(None);
            }
            let Some(slab) = self.next_slab(slow, class) else { return false };
            slab.place.set(Place::Active);
            self.active[class.index()].set(Some(slab));
        }
    }

    /// Blocks to cut: few while the class is new to this thread, so that small programs stay small.
    fn carve_count(&self, class: SizeClass) -> u32 {
        let shift = self.carve_shift[class.index()].get();
        if shift < 6 {
            self.carve_shift[class.index()].set(shift + 1);
        }
        (((FIRST_CARVE << shift) / class.block()) as u32).max(1)
    }

    /// Makes `list`, `blocks` blocks of `slab`, the list that `malloc` pops; cut at the sampling budget: the block
    /// that holds the sampled byte is left out, so that its allocation finds the list empty.
    fn install(&self, slab: &'static Slab, list: BlockPtr, blocks: u32) {
        let class = slab.class.get();
        let size = class.block() as i64;
        let budget = &self.budget[class.index()];
        let left = budget.get() - size * i64::from(blocks);
        let mut ready = blocks;
        let mut first = list;
        if left > 0 {
            budget.set(left);
        } else {
            ready = ((budget.get() + size - 1) / size - 1).max(0) as u32;
            budget.set(0);
            // SAFETY: `list` has `blocks` blocks, all of this slab and all ours; `ready < blocks`.
            unsafe {
                let mut rest = list;
                if ready > 0 {
                    let last_ready = list.nth(ready as usize - 1);
                    rest = last_ready.next();
                    last_ready.set_next(BlockPtr::NULL);
                } else {
                    first = BlockPtr::NULL;
                }
                let last = rest.nth((blocks - ready - 1) as usize);
                slab.put_back(rest, last, blocks - ready);
            }
        }
        let count = &self.counts[class.index()];
        count.allocs.set(count.allocs.get() + u64::from(ready));
        self.head[class.index()].set(first);
    }

    /// The next slab to allocate from: the longest waiting partial one, one from the central cache, or a new one.
    fn next_slab(&'static self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        if let Some(slab) = self.partial[class.index()].pop_front() {
            self.partial_slabs[class.index()].set(self.partial_slabs[class.index()].get() - 1);
            return Some(slab);
        }
        self.outbox.flush(slow);
        sampler::publish_tiers();
        let taken = central_cache::take(slow, class, self.tag());
        let count = &self.counts[class.index()];
        count.frees.set(count.frees.get() + taken.frees);
        if let Some(slab) = taken.slab {
            stats::add(TierCounter::CentralHits, 1);
            return Some(slab);
        }
        stats::add(TierCounter::CentralMisses, 1);
        let slab = page_heap::alloc(slow, class.info().slab_pages as usize, 1)?;
        stats::add(TierCounter::SlabBytes, slab.bytes() as u64);
        slab.begin(class, self.tag());
        Some(slab)
    }

    /// Looks at a slab of this heap whose countdown ran out.
    pub fn on_countdown(&'static self, slow: SlowPath, slab: &'static Slab) {
        // A signal handler that came between the countdown and this call may have retired the slab.
        if slab.owner.load(Ordering::Relaxed) != self.tag() {
            return;
        }
        let class = slab.class.get();
        match slab.place.get() {
            Place::Full => {
                self.full.remove(slab);
                if slab.in_use() == 0 {
                    self.retire(slow, slab);
                } else if self.partial_slabs[class.index()].get() as usize * slab.bytes() > PARTIAL_MAX {
                    self.credit_frees(slab);
                    slab.place.set(Place::None);
                    central_cache::give(slow, slab);
                } else {
                    slab.place.set(Place::Partial);
                    slab.arm_empty();
                    self.partial[class.index()].push_back(slab);
                    self.partial_slabs[class.index()].set(self.partial_slabs[class.index()].get() + 1);
                }
            }
            Place::Partial if slab.in_use() > 0 => slab.arm_empty(),
            Place::Partial => {
                self.partial[class.index()].remove(slab);
                self.partial_slabs[class.index()].set(self.partial_slabs[class.index()].get() - 1);
                self.retire(slow, slab);
            }
            // The list that came from it has run out and all its blocks are back: the next refill takes them.
            Place::Active | Place::None => {}
        }
    }

    /// Counts the freed blocks of a slab that leaves the heap.
    fn credit_frees(&self, slab: &Slab) {
        let free = u32::from(slab.carved.get()) - slab.in_use();
        let count = &self.counts[slab.class.get().index()];
        count.frees.set(count.frees.get() + u64::from(free - slab.counted_frees.replace(free)));
    }

    /// Gives an empty slab back to the page heap.
    fn retire(&self, slow: SlowPath, slab: &'static Slab) {
        self.credit_frees(slab);
        sampler::publish_class(self, slab.class.get());
        stats::sub(TierCounter::SlabBytes, slab.bytes() as u64);
        slab.end();
        page_heap::free(slow, slab);
    }

    /// Frees a block of another heap: into the outbox, which goes to the owner as a batch.
    pub fn free_remote(&'static self, slow: SlowPath, block: BlockPtr, owner: &'static Heap, bytes: usize) {
        self.outbox.push(slow, block, owner, bytes);
    }

    /// Takes in what other threads freed.
    pub fn drain(&'static self, slow: SlowPath) {
        let mut block = self.mailbox.take();
        while !block.is_null() {
            // SAFETY: the mailbox's list is ours now.
            let next = unsafe { block.next() };
            crate::free::free_dispatch(slow, Some(self), block);
            block = next;
        }
    }

    /// Puts the lists that `malloc` pops back into their slabs, so that every allocation enters the slow path.
    pub fn empty_lists(&self) {
        for (index, head) in self.head.iter().enumerate() {
            let first = head.replace(BlockPtr::NULL);
            let Some(slab) = self.active[index].get() else { continue };
            if first.is_null() {
                continue;
            }
            let (mut last, mut blocks) = (first, 1);
            // SAFETY: the list's blocks are this thread's and all of the active slab.
            unsafe {
                while !last.next().is_null() {
                    last = last.next();
                    blocks += 1;
                }
                slab.put_back(first, last, blocks);
            }
            let count = &self.counts[index];
            count.allocs.set(count.allocs.get() - u64::from(blocks));
        }
    }

    /// Gives everything away at the thread's exit: empty slabs to the page heap, all others to the central cache.
    pub fn retire_all(&'static self, slow: SlowPath) {
        self.outbox.flush(slow);
        self.drain(slow);
        self.empty_lists();
        for index in 0..CLASSES {
            if let Some(slab) = self.active[index].take() {
                self.leave(slow, slab);
            }
            while let Some(slab) = self.partial[index].pop_front() {
                self.leave(slow, slab);
            }
            self.partial_slabs[index].set(0);
            self.carve_shift[index].set(0);
        }
        while let Some(slab) = self.full.pop_front() {
            self.leave(slow, slab);
        }
        // What came in meanwhile, for slabs that are the central cache's by now.
        self.drain(slow);
    }

    /// Sends what this thread freed for others.
    pub fn empty_outbox(&self, slow: SlowPath) {
        self.outbox.flush(slow);
    }

    fn leave(&self, slow: SlowPath, slab: &'static Slab) {
        slab.place.set(Place::None);
        if slab.in_use() == 0 {
            self.retire(slow, slab);
        } else {
            self.credit_frees(slab);
            central_cache::give(slow, slab);
        }
    }
}
