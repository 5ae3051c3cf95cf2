//! The thread cache: a heap for each thread, with a free list for each class.
//!
//! `malloc` pops the class's list; `free` pushes onto the list of the slab that the block lies in
//! ([`Slab::push`]). The two meet only when a list has run out: [`Heap::refill`] then takes a slab's freed blocks
//! over as the new list. That is the heartbeat on which everything else runs (remote frees, counters, sampling), so
//! that the fast path has none of it.
//!
//! A heap's slabs are in one of three places. The *active* slab of a class is the one that the list came from. A slab
//! whose blocks are all handed out is *full*; when a part of it has been freed it queues as *partial*, and the refill
//! takes the one that has waited longest, because it has gathered the most. One of which less than half is in use is
//! *sparse*: it is used when there is no other, so that it can empty. One of which so little is in use that pages may
//! be without a block is *thin*, until it was looked through ([`thinning`]). A slab that empties waits on for its next
//! use, as long as the heap has few of them; then it goes back to the page heap. A partial one too many goes to the
//! central cache.
//!
//! Medium blocks are pushed to a stack of the heap instead, see [`crate::tiers::medium_cache`].

mod budgets;
mod class_slabs;
mod counting;
mod exchange;
pub(super) mod limit;
mod lists;
mod order;
mod queues;
mod sweep;
mod thinning;
mod thrift;

use core::cell::Cell;

use crate::layout::block::BlockPtr;
use crate::layout::inbox::Inbox;
use crate::layout::size_class::{CLASSES, SMALL_CLASSES, SizeClass};
use crate::layout::slab::{Place, Slab};
use crate::pages::page_heap;
use crate::sampling::budget::Budget;
use crate::sampling::large_budgets::LargeBudgets;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::medium_cache::MediumCache;
use crate::tiers::notes::{Calls, Path, Registration, Sampling, Uncached, Watch};
use crate::tiers::publish as heap_publish;
use crate::tiers::transfer_cache::{self, Outbox};
pub use class_slabs::ClassSlabs;
use exchange::{Exchange, KEPT_MIN};
use order::Order;
use thinning::Regret;
use thrift::Thrift;

/// Bytes of refills after which the page heap is told.
const TURNOVER_MIN: usize = 256 << 10;

/// A thread's heap: all that its `malloc` and `free` touch, and what others keep by the thread.
///
/// There is one for each thread that allocates. It is never unmapped: after its thread's exit another takes it over,
/// and blocks of its slabs that are freed later still find it. Zeroed memory is an empty heap, so that a new one costs
/// one mapping, and those that serve nobody ([`crate::tiers::static_heaps`]) cost nothing.
///
/// Nearly all of it is its thread's alone, in plain cells: the thread is the only one that writes there, in its fast
/// path or in the slow path. Others may read words that only grow or that are hints; then they read them once, as they
/// are (the census, the collector). What other threads write is atomic or behind a lock of its own: the inbox, and the
/// words by which a fast path is closed.
///
/// The heads and the classes are the fast path's and the refill's (`thread_cache.rs`, `thread_cache/lists.rs`). Every
/// other owner has a struct of its own here, see [`crate::tiers::notes`].
///
/// What nearly every thread writes to comes first and fits into a page, a class follows the next, and what few threads
/// need comes last: a page that is never written to has no memory.
#[repr(C, align(64))]
pub struct Heap {
    /// What `malloc` pops, for each small class: the first block of a list of the active slab's.
    head: [Cell<BlockPtr>; SMALL_CLASSES],
    /// The class of the latest refill.
    latest: Cell<SizeClass>,
    /// `malloc` may find a block in a list, or come to do so by frees alone.
    stocked: Cell<bool>,
    /// Whether short lists grow.
    thrift: Thrift,
    /// Bytes of empty slabs that wait for their next use.
    empty_bytes: Cell<usize>,
    /// Bytes of them that may wait.
    empty_max: Cell<usize>,
    /// Bytes of thin slabs, of all classes.
    thin_bytes: Cell<usize>,
    /// Whether it was right to look through them.
    regret: Regret,
    /// Bytes that refills have brought since the page heap was told.
    turned_over: Cell<usize>,
    /// Of those who look on from outside: the collector and the census.
    pub watch: Watch,
    /// The registry's: whose the heap is.
    pub registration: Registration,
    /// Blocks that other threads freed, and whether a thread has the heap. Any thread's.
    pub inbox: Inbox,
    /// How its fast path is closed, by itself and from outside.
    pub path: Path,
    /// Of those who see every call: hooks, and recordings.
    pub calls: Calls,
    /// The sampler's: when the next sample is due, and what one needs.
    pub sampling: Sampling,
    /// Slabs of each class.
    classes: [ClassSlabs; CLASSES],
    /// Small blocks of others (`thread_cache/exchange.rs`).
    pub exchange: Exchange,
    /// Stacks of freed medium blocks (`medium_cache.rs`).
    pub medium: MediumCache,
    /// When lists are put in order.
    order: Order,
    /// Bytes until the next sample among large blocks, by where they come from.
    pub large_budgets: LargeBudgets,
    /// Blocks that its threads got past the cache.
    pub uncached: Uncached,
    /// Blocks that its threads freed for others.
    pub outbox: Outbox,
}

/// Bytes of the kernel's smallest page, which every thread writes to.
const FIRST_PAGE: usize = 4096;

const _: () = assert!(core::mem::offset_of!(Heap, classes) <= FIRST_PAGE);

// SAFETY: everything but the atomics, `inbox` and `path.closing` belongs to the thread that has the heap, to the
// registry between two threads, and to the garbage collector while it has closed the thread's fast path and the thread
// sleeps; `watch.idle` is the collector's, `registration.next_heap` is written once. The static heaps are never
// written.
unsafe impl Sync for Heap {}

/// The heap with a slab's owner tag.
///
/// # Safety
/// `tag` was read from [`crate::layout::slab::Slab::owner`] and is none of [`crate::layout::slab::owner`].
pub unsafe fn heap_of(tag: usize) -> &'static Heap {
    // SAFETY: other tags are addresses of heaps, which are never unmapped.
    unsafe { &*(tag as *const Heap) }
}

impl Heap {
    #[cfg(miri)]
    pub const fn new() -> Self {
        // SAFETY: all fields are integers, cells of integers, null-able pointers or `None`: zero is valid.
        unsafe { core::mem::zeroed() }
    }

    /// The value of [`Slab::owner`] for this heap's slabs.
    #[inline(always)]
    pub fn tag(&self) -> usize {
        &raw const *self as usize
    }

    /// What there is of each class.
    pub fn classes(&self) -> impl Iterator<Item = (SizeClass, &ClassSlabs)> {
        SizeClass::all().zip(&self.classes)
    }

    /// What there is of a class.
    #[inline(always)]
    pub fn of(&self, class: SizeClass) -> &ClassSlabs {
        // SAFETY: a SizeClass is less than CLASSES.
        unsafe { self.classes.get_unchecked(class.index()) }
    }

    /// The budget of a class.
    #[inline]
    pub fn budget(&self, class: SizeClass) -> &Budget {
        if class.is_medium() { &self.medium.stack(class).budget } else { &self.sampling.budget[class.index()] }
    }

    /// Pops a block of a small `class`, if the list has one.
    #[inline(always)]
    pub fn pop(&self, class: SizeClass) -> Option<*mut u8> {
        // SAFETY: callers ask for small classes only, which are less than SMALL_CLASSES.
        let head = unsafe { self.head.get_unchecked(class.index()) };
        let block = head.get();
        if block.is_null() {
            return None;
        }
        // SAFETY: blocks in the list are free and this thread's.
        head.set(unsafe { block.next() });
        Some(block.address())
    }

    /// Has the next block of a small `class` brought into the processor's caches.
    #[inline(always)]
    pub fn prefetch(&self, class: SizeClass) {
        // SAFETY: as in `pop`.
        unsafe { self.head.get_unchecked(class.index()) }.get().prefetch();
    }

    /// Makes blocks of `class` ready, or the next one due to be sampled. False without memory. What else is done at
    /// such a moment hangs on its caller (`serve/heartbeat.rs`).
    pub fn refill(&'static self, slow: SlowPath, class: SizeClass) -> bool {
        self.visit();
        self.note_stocked();
        let count = &self.of(class).count;
        count.refills.set(count.refills.get() + 1);
        if class.is_medium() {
            self.begin_refill(slow, class);
        } else {
            self.look_at_kept(class);
            if self.install_kept(class, KEPT_MIN) {
                return true;
            }
        }
        // A slab that has been in use is left when it has little; a new one is used to its end.
        let mut least = self.worth_it(class);
        loop {
            if let Some(slab) = self.of(class).active.get() {
                let (carved, had_holes) = (slab.carved.get(), slab.has_holes());
                let stocked = if class.is_medium() { self.stock_medium(slab) } else { self.stock(slab, least) };
                // Where none was cut, what is touched stays as it was.
                if slab.carved.get() != carved || slab.has_holes() != had_holes {
                    let untouched = slab.untouched_with(carved, had_holes);
                    self.count_untouched(class, untouched, slab.untouched());
                    if had_holes {
                        self.count_refilled(untouched.saturating_sub(slab.untouched()) as usize * class.block());
                    }
                }
                if stocked {
                    self.turn_over(slow, class);
                    return true;
                }
            }
            // A stack that has got some blocks takes what partial slabs have, and no others.
            let some = class.is_medium() && self.medium.stack(class).blocks() > 0;
            if !self.change_slab(slow, class, some) {
                if some {
                    self.turn_over(slow, class);
                }
                return some;
            }
            least = 1;
        }
    }

    /// Makes another slab the one that a class allocates from, a partial one if there are to be no others. False if
    /// there is none; the old one is full then. A function of its own: a refill mostly goes on with the slab it has.
    #[inline(never)]
    fn change_slab(&'static self, slow: SlowPath, class: SizeClass, partial: bool) -> bool {
        if let Some(slab) = self.of(class).active.take() {
            self.leave_full(slab);
        }
        let next = if partial { self.partial_slab(class) } else { self.next_slab(slow, class) };
        next.inspect(|slab| self.make_active(slab)).is_some()
    }

    /// Has a slab that the class no longer allocates from wait until it is worth a refill.
    #[inline]
    fn leave_full(&self, slab: &'static Slab) {
        let class = slab.class.get();
        slab.place.set(Place::Full);
        slab.arm_full(self.worth_it(class));
        self.of(class).full.push_back(slab);
    }

    /// Makes a slab the one that its class allocates from, wherever it waited.
    #[inline]
    fn make_active(&self, slab: &'static Slab) {
        self.dequeue(slab);
        slab.place.set(Place::Active);
        self.of(slab.class.get()).active.set(Some(slab));
    }

    /// Counts bytes that a refill is about to bring, unless the page heap is to be told of them. False if it is.
    #[inline]
    fn turn_by(&self, bytes: usize) -> bool {
        let bytes = self.turned_over.get() + bytes;
        let is_quiet = bytes < TURNOVER_MIN;
        if is_quiet {
            self.turned_over.set(bytes);
        }
        is_quiet
    }

    /// Counts the bytes that a refill has brought, and tells the page heap now and then.
    #[inline]
    fn turn_over(&self, slow: SlowPath, class: SizeClass) {
        let blocks =
            if class.is_medium() { self.medium.stack(class).blocks() } else { self.of(class).count.cached.get() };
        let bytes = self.turned_over.get() + blocks as usize * class.block();
        self.turned_over.set(bytes);
        if bytes >= TURNOVER_MIN {
            self.turned_over.set(0);
            page_heap::release_excess(slow, bytes);
            self.thin_out(bytes);
        }
    }

    /// Keeps a block of another heap's slab for this thread's next allocations. False if it is left to the caller.
    #[inline(always)]
    pub fn keep(&self, slow: SlowPath, class: SizeClass, block: BlockPtr) -> bool {
        if class.is_medium() { self.keep_medium(slow, class, block) } else { self.keep_small(slow, class, block) }
    }

    /// Frees a block of another heap's slab, if that takes no call. False if it takes one.
    #[inline(always)]
    pub fn gather(&self, slow: SlowPath, slab: &'static Slab, block: BlockPtr) -> bool {
        self.outbox.push_quickly(slow, slab, block)
    }

    /// Frees a block of another heap's slab: into the outbox, which goes to the owner in batches.
    #[inline(always)]
    pub fn free_remote(&'static self, slow: SlowPath, slab: &'static Slab, block: BlockPtr) {
        self.outbox.push(slow, self, slab, block, false);
    }

    /// Takes in what other threads freed.
    #[inline]
    pub fn drain(&'static self, slow: SlowPath) {
        if self.inbox.has_some() {
            transfer_cache::take_in(slow, Some(self), self.inbox.take());
        }
    }

    /// Puts everything that `malloc` pops back into its slabs, and has every allocation enter the slow path while this
    /// heap records all of them.
    pub fn begin_recording(&'static self, slow: SlowPath) {
        if !self.stocked.replace(false) {
            return;
        }
        self.empty_lists(slow);
        self.medium.budgets().for_each(Budget::end);
    }

    /// Notes that `malloc` may be served without the slow path from here on.
    #[inline(always)]
    pub fn note_stocked(&self) {
        self.stocked.set(true);
    }

    /// Ends what [`Heap::begin_recording`] began.
    pub fn end_recording(&self) {
        self.note_stocked();
        self.medium.budgets().for_each(|budget| self.begin_budget(budget));
    }

    /// Gives everything away at the thread's exit: empty slabs to the page heap, all others to the central cache.
    pub fn retire_all(&'static self, slow: SlowPath) {
        self.empty_lists(slow);
        self.empty_outbox(slow);
        self.drain(slow);
        self.medium.forget_limits();
        for class in &self.classes {
            if let Some(slab) = class.active.get() {
                class.active.set(None);
                self.leave(slow, slab);
            }
            for queue in class.queues() {
                while let Some(slab) = queue.pop_front() {
                    self.leave(slow, slab);
                }
            }
            class.forget();
        }
        self.thin_bytes.set(0);
        self.empty_bytes.set(0);
        self.empty_max.set(0);
        // What came in meanwhile, for slabs that are the central cache's by now.
        self.drain(slow);
        heap_publish::publish_classes(self);
    }

    /// Counts a visit to the slow path.
    #[inline(always)]
    pub fn visit(&self) {
        self.watch.visits.set(self.watch.visits.get().wrapping_add(1));
    }

    /// Takes back the visit of a call that is in the slow path because the fast path is closed, and that has nothing to
    /// do there: a thread that makes no others is idle.
    pub fn unvisit(&self) {
        self.watch.visits.set(self.watch.visits.get().wrapping_sub(1));
    }

    /// Times that the thread was in the slow path, about: other threads may ask, while this one changes it.
    pub fn visits(&self) -> u64 {
        // SAFETY: a word of a heap, which is never unmapped; only whether it has changed counts.
        unsafe { self.watch.visits.as_ptr().read_volatile() }
    }

    /// Bytes in the stacks of medium blocks, in empty slabs and kept of others', about: other threads may ask,
    /// while this one changes them.
    pub fn idle_bytes(&self) -> usize {
        // SAFETY: a word of a heap, which is never unmapped; what another thread makes of it meanwhile is as good.
        let empty = unsafe { self.empty_bytes.as_ptr().read_volatile() };
        empty + self.medium.idle_bytes() + self.exchange.bytes()
    }

    /// Sends what this thread freed of others', and what it kept of that.
    pub fn empty_outbox(&'static self, slow: SlowPath) {
        self.send_home(slow);
        self.outbox.flush(slow, self);
    }
}
