//! The thread cache's part for medium blocks, over 1 KiB: a stack of freed blocks for each class.
//!
//! Small blocks go back to their slab's list, so that the list `malloc` pops runs out; that makes sampling free. With
//! medium ones a list is a few blocks long, and each of them begins on a page of its own: what counts is that the
//! block freed last, which is still in the processor's caches, is the next to be used. So `free` pushes to the very
//! stack that `malloc` pops, and the bytes to the next sample are counted down block by block.
//!
//! A block of another thread's slab goes the same way, if the freeing thread allocates from the class itself.
//!
//! A stack is bounded. The bound begins small and doubles with each miss, as long as the bounds of all classes
//! together stay below the thread's share of `POOLSCOPE_THREAD_CACHE`; then the classes that have not missed since the
//! last time make room. A stack that outgrows its bound gives what was freed last back to the slabs: half, or an eighth
//! of long blocks.

use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};

use crate::layout::arena;
use crate::layout::block::BlockPtr;
use crate::layout::free_list::FreeList;
use crate::layout::misuse;
use crate::layout::size_class::{CLASSES, SMALL_CLASSES, SizeClass};
use crate::layout::slab::Slab;
use crate::sampling::budget::Budget;
use crate::settings::{self, Numa};
use crate::sync;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::notes::update;
use crate::tiers::publish as heap_publish;
use crate::tiers::thread_cache::Heap;
use crate::tiers::thread_cache::limit::cache_limit;

/// Number of medium classes.
const MEDIUM_CLASSES: usize = CLASSES - SMALL_CLASSES;
/// Bytes that a class's stack may hold at first.
const FIRST_BYTES: usize = 8 * 1024;
/// Misses of a class after which those without one make room for it; misses and frees of one of long blocks after which
/// it is worth a stack.
const PATIENCE: u16 = 8;
/// Blocks that one refill brings at most.
const REFILL_MAX: u32 = 64;

/// A class's stack, in one line of the processor's caches with all that `malloc` and `free` change.
#[repr(C, align(64))]
pub struct Stack {
    /// The block that was freed last, and how many more may be pushed: each that is popped makes room for one.
    freed: FreeList,
    /// Bytes until the next sample.
    pub budget: Budget,
    /// Blocks allocated.
    pub allocs: Cell<u64>,
    /// Blocks in it and those that may be pushed, together.
    armed: Cell<u32>,
    /// Blocks that it may hold; 0 before the first miss, of long ones before there were [`PATIENCE`].
    limit: Cell<u32>,
}

const _: () = assert!(size_of::<Stack>() == 64);

/// The stacks of a heap. Zeroed memory is empty.
pub struct MediumCache {
    stacks: [Stack; MEDIUM_CLASSES],
    /// Blocks of each class that went from the stack to slabs, or were freed without coming into it, less those that
    /// were brought from slabs. With the ones allocated and the ones in the stack it comes to those freed. Wraps.
    moved: [Cell<u64>; MEDIUM_CLASSES],
    /// Misses of each class since those that had none last made room.
    misses: [Cell<u16>; MEDIUM_CLASSES],
    /// Bytes that all stacks may hold together.
    reserved: Cell<usize>,
    /// The class without a bound of which a block was freed last; a small one before there is any.
    alone: Cell<SizeClass>,
    /// The block that the slow path has just brought, if it is the kernel's memory and reads as zero.
    pub zero: Cell<BlockPtr>,
}

impl Stack {
    /// The block that was freed last.
    pub fn first(&self) -> BlockPtr {
        self.freed.head.get()
    }

    /// What `free` pushes a block onto.
    pub fn armed_list(&self) -> &FreeList {
        self.arm();
        &self.freed
    }

    /// Blocks in it.
    pub fn blocks(&self) -> u64 {
        self.cached().into()
    }

    fn cached(&self) -> u32 {
        self.armed.get().wrapping_sub(self.freed.countdown.get())
    }

    /// Takes out the block that was freed last. Until it is counted somewhere else, it counts as in use.
    #[inline(always)]
    fn take(&self) -> Option<BlockPtr> {
        let block = Some(self.first()).filter(|block| !block.is_null())?;
        // SAFETY: blocks in the stack are free and its thread's.
        self.freed.head.set(unsafe { block.next() });
        self.freed.countdown.set(self.freed.countdown.get().wrapping_add(1));
        Some(block)
    }

    /// Has its thread look when it holds one block more than it may, or than now.
    fn arm(&self) {
        self.set_cached(self.cached());
    }

    /// Notes how many blocks are in it, and arms it.
    fn set_cached(&self, cached: u32) {
        let room = (self.limit.get() + 1).saturating_sub(cached).max(1);
        self.freed.countdown.set(room);
        self.armed.set(cached + room);
    }

    fn set_limit(&self, blocks: u32) {
        self.limit.set(blocks);
        self.arm();
    }
}

impl MediumCache {
    /// A class's stack.
    #[inline(always)]
    pub fn stack(&self, class: SizeClass) -> &Stack {
        // SAFETY: callers ask for medium classes only, and a SizeClass is less than CLASSES.
        unsafe { self.stacks.get_unchecked(class.index() - SMALL_CLASSES) }
    }

    /// The budgets of all medium classes of which something was allocated.
    pub fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.stacks.iter().map(|stack| &stack.budget).filter(|budget| !budget.is_new())
    }

    /// Bytes that all stacks may hold together.
    pub fn reserved(&self) -> usize {
        self.reserved.get()
    }

    /// Bytes in all stacks, see [`Heap::idle_bytes`].
    pub fn idle_bytes(&self) -> usize {
        SizeClass::all().skip(SMALL_CLASSES).map(|class| self.look(class).0 * class.block()).sum()
    }

    /// Blocks in the stack of a class, and what `moved` says, as of one moment or about: the thread may be changing
    /// both.
    fn look(&self, class: SizeClass) -> (usize, u64) {
        let (stack, moved) = (self.stack(class), &self.moved[class.index() - SMALL_CLASSES]);
        // SAFETY: words of a heap, which is never unmapped.
        let words = || unsafe {
            let [countdown, armed] = [&stack.freed.countdown, &stack.armed].map(|cell| cell.as_ptr().read_volatile());
            (armed.wrapping_sub(countdown) as usize, moved.as_ptr().read_volatile())
        };
        sync::look(words)
    }

    /// Blocks allocated of a class and blocks freed; other threads may ask, while this one changes them.
    pub fn counters(&self, class: SizeClass) -> (u64, u64) {
        // Those allocated first: the ones that are popped meanwhile don't count as freed.
        // SAFETY: as above.
        let allocs = unsafe { self.stack(class).allocs.as_ptr().read_volatile() };
        let (cached, moved) = self.look(class);
        (allocs, allocs.wrapping_add(cached as u64).wrapping_add(moved))
    }

    /// Counts blocks of a class that were freed without coming into the stack.
    pub fn count_frees(&self, class: SizeClass, blocks: u32) {
        self.count_moved(class, i64::from(blocks));
    }

    /// Lets the counters of a class begin again; what is in use stays their difference.
    pub fn count_anew(&self, class: SizeClass) {
        let (allocs, frees) = self.counters(class);
        self.stack(class).allocs.set(allocs.saturating_sub(frees));
    }

    fn count_moved(&self, class: SizeClass, blocks: i64) {
        let moved = &self.moved[class.index() - SMALL_CLASSES];
        moved.set(moved.get().wrapping_add_signed(blocks));
    }

    /// Starts again with small bounds.
    pub fn forget_limits(&self) {
        self.stacks.iter().filter(|stack| stack.limit.get() > 0).for_each(|stack| stack.set_limit(0));
        self.misses.iter().for_each(|misses| update(misses, 0));
        update(&self.reserved, 0);
    }

    /// Notes a miss, and raises the bound of the class if all stacks together may hold that much: the new bound. `None`
    /// if others have to make room first.
    fn raise_limit(&self, class: SizeClass, thread_cache: usize) -> Option<u32> {
        let stack = self.stack(class);
        let misses = &self.misses[class.index() - SMALL_CLASSES];
        misses.set(misses.get().saturating_add(1));
        let before = stack.limit.get();
        // What a program asks for now and then lies free in the page heap meanwhile, for blocks of any size.
        if before == 0 && class.is_long() && misses.get() < PATIENCE {
            return Some(0);
        }
        let wanted = if before == 0 { (FIRST_BYTES / class.block()).max(1) as u32 } else { before * 2 };
        // Every class may have one block.
        let room = thread_cache.saturating_sub(self.reserved.get()) / class.block();
        let wanted = if before > 0 { wanted.min(before.saturating_add(room as u32)) } else { wanted };
        let more = (wanted - before) as usize * class.block();
        if more == 0 {
            return None;
        }
        stack.set_limit(wanted);
        self.reserved.set(self.reserved.get() + more);
        Some(wanted)
    }
}

impl Heap {
    /// Pops a medium block, unless the stack is empty or the block would hold the next sampled byte.
    #[inline(always)]
    pub fn pop_medium(&self, class: SizeClass) -> Option<*mut u8> {
        let stack = self.medium.stack(class);
        let left = stack.budget.left.get() - class.block() as i64;
        if stack.first().is_null() || left <= 0 {
            return None;
        }
        stack.budget.left.set(left);
        let block = stack.take()?;
        stack.allocs.set(stack.allocs.get() + 1);
        Some(block.address())
    }

    /// Keeps a block of another heap's slab that this thread has freed, if it allocates from the class itself and has
    /// room: otherwise the block goes to its owner, and one of this thread's comes back the same way. False if it is
    /// left to the caller.
    pub fn keep_medium(&self, _: SlowPath, class: SizeClass, block: BlockPtr) -> bool {
        let stack = self.medium.stack(class);
        // The memory of one node is to stay with its threads.
        if stack.cached() >= stack.limit.get() || settings::current().numa() == Numa::Local {
            return false;
        }
        // SAFETY: the block is free and the caller's; where it lies is looked at when it leaves the stack for a slab.
        if unsafe { stack.freed.push(block) } {
            stack.arm();
        }
        true
    }

    /// Where the stack was left only because a part of the class's budget has ended: begins the next part.
    pub fn begin_next_part(&self, class: SizeClass) -> bool {
        let budget = self.budget(class);
        class.is_medium() && budget.left.get() <= class.block() as i64 && budget.next_part(&self.sampling.random)
    }

    /// Frees a block of this heap's as the fast path would, while calls are counted.
    pub fn free_medium(&'static self, slow: SlowPath, class: SizeClass, block: BlockPtr) {
        // SAFETY: the caller found the block's slab to be of this class and heap.
        if unsafe { self.medium.stack(class).freed.push(block) } {
            self.flush_medium(slow, class);
        }
        heap_publish::publish_class(self, class);
    }

    /// Whether the next block of the class is to be sampled.
    pub fn is_sample_due(&self, class: SizeClass) -> bool {
        let left = self.budget(class).left.get();
        if class.is_medium() { left <= class.block() as i64 } else { left <= 0 }
    }

    /// Has the stack looked at when it holds more than it may, after the slow path has popped a block of it.
    pub fn settle_medium(&self, class: SizeClass) {
        if class.is_medium() {
            self.medium.stack(class).arm();
        }
    }

    /// Raises the bound of a stack that is empty, if it may.
    pub fn begin_refill(&'static self, slow: SlowPath, class: SizeClass) {
        if self.medium.raise_limit(class, cache_limit()).is_none() {
            self.make_way(slow, class);
        }
    }

    /// Puts blocks of a slab onto a stack that lacks some. False if it still does.
    #[inline(never)]
    pub fn stock_medium(&self, slab: &'static Slab) -> bool {
        let stack = self.medium.stack(slab.class.get());
        let cached = stack.cached();
        let new = if slab.has_holes() { 0 } else { slab.untouched() };
        // A list of new blocks would touch each of them.
        let is_new = new > 0 && slab.local_free.get().is_null() && slab.class.get().is_long();
        let wanted = if is_new { 1 } else { (stack.limit.get() / 2).clamp(1, REFILL_MAX) };
        let (first, count) = slab.take_some(wanted.saturating_sub(cached));
        let is_zero = cached == 0 && count == 1 && slab.is_zero() && slab.untouched() < new;
        self.medium.zero.set(if is_zero { first } else { BlockPtr::NULL });
        if count > 0 {
            // SAFETY: the list has `count` blocks, all ours.
            unsafe { first.nth(count as usize - 1).set_next(stack.freed.head.get()) };
            stack.freed.head.set(first);
            // What others see of it in between is too few freed blocks, and no more.
            self.medium.count_moved(slab.class.get(), -i64::from(count));
            compiler_fence(Ordering::Release);
            stack.set_cached(cached + count);
        }
        cached + count >= wanted
    }

    /// Halves the bounds of the classes that had no miss while this one had many.
    /// It may take what they leave at its next.
    #[cold]
    fn make_way(&'static self, slow: SlowPath, class: SizeClass) {
        if self.medium.misses[class.index() - SMALL_CLASSES].get() < PATIENCE {
            return;
        }
        for (class, misses) in SizeClass::all().skip(SMALL_CLASSES).zip(&self.medium.misses) {
            let stack = self.medium.stack(class);
            let limit = stack.limit.get();
            if misses.replace(0) == 0 && limit > 1 {
                stack.set_limit(limit / 2);
                self.medium.reserved.set(self.medium.reserved.get() - (limit - limit / 2) as usize * class.block());
                self.trim_medium(slow, class, limit / 2);
            }
        }
    }

    /// Gives the newer half of a stack back to its slabs; of long blocks, each of which costs a slow call to get again
    /// however many there are, an eighth.
    pub fn flush_medium(&'static self, slow: SlowPath, class: SizeClass) {
        self.visit();
        match self.medium.stack(class).limit.get() {
            0 => self.keep_this_alone(slow, class),
            limit if class.is_long() => self.trim_medium(slow, class, limit - limit.div_ceil(8)),
            limit => self.trim_medium(slow, class, limit / 2),
        }
    }

    /// Keeps of all classes without a bound the block that was freed last: it may be asked for next, and its link shows
    /// a write to what is free.
    fn keep_this_alone(&'static self, slow: SlowPath, class: SizeClass) {
        if self.medium.raise_limit(class, cache_limit()) != Some(0) {
            return;
        }
        self.keep_newest(slow, class);
        let before = self.medium.alone.replace(class);
        if before != class && before.is_medium() && self.medium.stack(before).limit.get() == 0 {
            self.trim_medium(slow, before, 0);
            self.leave_empty(slow, before);
        }
    }

    /// Gives all but the block that was freed last back to their slabs.
    fn keep_newest(&'static self, slow: SlowPath, class: SizeClass) {
        let stack = self.medium.stack(class);
        let Some(newest) = stack.take() else { return };
        self.trim_medium(slow, class, 0);
        // SAFETY: the block came from the stack, and is this thread's.
        if unsafe { stack.freed.push(newest) } {
            stack.arm();
        }
    }

    /// Gives back the one block that is kept of all classes without a bound, and its slab if that is empty: when the
    /// program becomes larger.
    pub fn leave_alone(&'static self, slow: SlowPath) {
        let class = self.medium.alone.get();
        if !class.is_medium() {
            return;
        }
        self.medium.alone.set(SizeClass(0));
        if self.medium.stack(class).limit.get() == 0 {
            self.trim_medium(slow, class, 0);
            self.leave_empty(slow, class);
        }
    }

    /// Gives the blocks of a class that were freed last back to their slabs, until `keep` are left: to give the others
    /// back, the list would be walked past these first, and each block lies in a line of its own.
    pub fn trim_medium(&'static self, slow: SlowPath, class: SizeClass, keep: u32) {
        let stack = self.medium.stack(class);
        for _ in keep..stack.cached() {
            let Some(block) = stack.take() else { break };
            compiler_fence(Ordering::Release);
            self.medium.count_moved(class, 1);
            // Pushed twice, one after the other.
            if block == stack.first() {
                misuse::freed_before(block.address(), class.block());
            }
            self.give_medium(slow, block);
        }
        stack.arm();
    }

    /// Gives a block that came from a stack back to its slab.
    #[inline(always)]
    fn give_medium(&'static self, slow: SlowPath, block: BlockPtr) {
        let Some(slab) = arena::page_of(block.address()).map(Slab::head) else { return };
        misuse::check_start(slab, block);
        if slab.owner.load(Ordering::Acquire) != self.tag() {
            return self.outbox.push(slow, self, slab, block, true);
        }
        // SAFETY: the slab is this heap's, and the block was in its stack.
        if unsafe { slab.push(block) } {
            self.on_countdown(slow, slab);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: SizeClass = SizeClass(SMALL_CLASSES as u8);

    fn empty() -> MediumCache {
        // SAFETY: zeroed memory is an empty cache.
        unsafe { core::mem::zeroed() }
    }

    /// Pushes so many blocks; how many times the thread was told to look.
    fn push(stack: &Stack, blocks: &mut [[u64; 2]]) -> usize {
        // SAFETY: the memory is the test's, and nobody else's.
        let is_due = |block: &mut [u64; 2]| unsafe { stack.freed.push(BlockPtr::new(block.as_mut_ptr().cast())) };
        blocks.iter_mut().filter_map(|block| is_due(block).then_some(())).count()
    }

    #[test]
    fn the_thread_looks_at_a_stack_that_holds_one_block_more_than_it_may() {
        let (cache, mut blocks) = (empty(), [[0; 2]; 8]);
        for limit in 0..7 {
            let stack = cache.stack(CLASS);
            stack.set_cached(0);
            stack.set_limit(limit);
            assert_eq!(push(stack, &mut blocks[..limit as usize]), 0);
            assert_eq!(push(stack, &mut blocks[limit as usize..][..1]), 1);
            assert_eq!(stack.cached(), limit + 1);
            // Whoever does nothing about it is told again.
            stack.arm();
            assert_eq!(push(stack, &mut blocks[7..]), 1);
        }
    }

    #[test]
    fn what_is_in_use_is_what_was_brought_and_not_taken_away() {
        let (cache, mut blocks) = (empty(), [[0; 2]; 8]);
        let stack = cache.stack(CLASS);
        stack.set_limit(8);
        // Five are brought, and three of them popped.
        cache.count_moved(CLASS, -5);
        stack.set_cached(5);
        stack.freed.countdown.set(stack.freed.countdown.get() + 3);
        stack.allocs.set(3);
        assert_eq!(cache.counters(CLASS), (3, 0));
        push(stack, &mut blocks[..2]);
        assert_eq!((cache.counters(CLASS), cache.idle_bytes()), ((3, 2), 4 * CLASS.block()));
        // One comes back another way, and three go to their slab.
        cache.count_frees(CLASS, 1);
        cache.count_moved(CLASS, 3);
        stack.set_cached(1);
        assert_eq!(cache.counters(CLASS), (3, 3));
        push(stack, &mut blocks[2..3]);
        cache.count_anew(CLASS);
        assert_eq!(cache.counters(CLASS), (0, 1), "a block of another thread's was freed here");
    }
}
