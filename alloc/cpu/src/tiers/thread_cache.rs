//! The thread cache: a heap for each thread, with a free list for each class.
//!
//! `malloc` pops the class's list; `free` pushes onto the list of the slab that the block lies in
//! ([`Slab::push`]). The two meet only when a list has run out: [`Heap::refill`] then takes a slab's freed blocks
//! over as the new list. That is the heartbeat on which everything else runs (remote frees, counters, sampling), so
//! that the fast path has none of it.
//!
//! A heap's slabs are in one of three places. The *active* slab of a class is the one that the list came from. A
//! slab whose blocks are all handed out is *full*; when a part of it has been freed it queues as *partial*, and
//! the refill takes the one that has waited longest, because it has gathered the most. One of which less than half is in
//! use is *sparse*: it is used when there is no other, so that it can empty. A slab that empties waits on for its next
//! use, as long as the heap has few of them; then it goes back to the page heap. A partial one too many goes to the
//! central cache.
//!
//! Medium blocks are pushed to a stack of the heap instead, see [`crate::tiers::medium_cache`].

mod budgets;
mod counting;
mod lists;

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::layout::block::BlockPtr;
use crate::layout::inbox::Inbox;
use crate::layout::size_class::{CLASSES, SMALL_CLASSES, SizeClass};
use crate::layout::slab::{Place, Slab, SlabList, owner};
use crate::pages::keeper;
use crate::pages::page_heap;
use crate::sampling::budget::Budget;
use crate::sampling::governor::Governor;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::settings;
use crate::sync::spin_lock::{SlowPath, SpinLock};
use crate::tiers::central_cache;
use crate::tiers::give_back;
use crate::tiers::medium_cache::MediumCache;
use crate::tiers::notes::{Capture, Idle, Notes};
use crate::tiers::publish as heap_publish;
use crate::tiers::transfer_cache::{self, Outbox};
use lists::Order;

/// Partial slabs of one class that a heap keeps before it gives one to the central cache:
/// who frees into those takes a lock.
const PARTIAL_MAX: u32 = 8192;
/// Partial slabs of medium blocks that are looked at for the fullest one.
const PARTIAL_LOOK: usize = 16;
/// Bytes of empty slabs that a new heap keeps; each miss doubles it, up to half of [`thread_cache`].
const EMPTY_MIN: usize = 128 << 10;

/// Slabs of a class that are few, and that are some.
const FEW: u32 = 4;
const SOME: u32 = 16;
/// Bytes of refills after which the page heap is told.
const TURNOVER_MIN: usize = 256 << 10;

/// What a thread has of [`thread_cache`] however many there are.
const SHARE_MIN: usize = 1 << 20;
/// What all caches together may hold however little is in use, and the part of what is in use that they may hold.
const CACHE_MIN: usize = 4 << 20;
const CACHE_SHARE: usize = 32;

/// Bytes that a thread's cache may hold beyond what is in use.
fn thread_cache() -> usize {
    let in_use = counters::get(TierCounter::SlabBytes) + counters::get(TierCounter::LargeBytes);
    let share = (in_use as usize / CACHE_SHARE).max(CACHE_MIN);
    let all = share.min(settings::current().thread_cache() as usize);
    if all <= SHARE_MIN {
        return all;
    }
    (all / counters::get(TierCounter::ThreadsLive).max(1) as usize).max(SHARE_MIN)
}

/// Counters of one class.
#[derive(Default)]
pub struct ClassCount {
    /// Blocks of a small class that were made ready to be allocated. Medium ones are counted in their stack.
    allocs: Cell<u64>,
    /// Blocks of a small class that were gathered in.
    frees: Cell<u64>,
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

/// A thread's heap: all that its `malloc` and `free` touch, and what others keep by the thread.
///
/// There is one for each thread that allocates. It is never unmapped: after its thread's exit another takes it over,
/// and blocks of its slabs that are freed later still find it. Zeroed memory is an empty heap, so that a new one costs
/// one mapping, and the static ones cost nothing.
///
/// Nearly all of it is its thread's alone, in plain cells: the thread is the only one that writes there, in its fast
/// path or in the slow path. Others may read words that only grow or that are hints; then they read them once, as they
/// are (the census, the collector). What other threads write is atomic or behind a lock of its own: the inbox, and the
/// words by which a fast path is closed.
///
/// The fields stand in the order of their owners, and the fast path's come first.
#[repr(C, align(64))]
pub struct Heap {
    // The fast path's, and the refill's (`thread_cache.rs`, `thread_cache/lists.rs`).
    /// What `malloc` pops, for each small class: the first block of a list of the active slab's.
    head: [Cell<BlockPtr>; SMALL_CLASSES],
    /// The slab of each class that the list came from.
    active: [Cell<Option<&'static Slab>>; CLASSES],
    /// Slabs with free blocks of which at least half is in use, the one that has waited longest first.
    partial: [SlabList; CLASSES],
    /// Slabs of which less is in use.
    sparse: [SlabList; CLASSES],
    /// How many slabs of each class there are, in whatever place.
    slabs: [Cell<u32>; CLASSES],
    /// How many are partial or sparse.
    partial_slabs: [Cell<u32>; CLASSES],
    /// Slabs without a block in use, the one that emptied last first.
    empty: [SlabList; CLASSES],
    /// Slabs of all classes with few free blocks, if any.
    full: SlabList,
    /// How often the longest list of a class has doubled.
    carve_shift: [Cell<u8>; CLASSES],
    /// When lists are put in order.
    order: Order,
    /// The class of the latest refill.
    latest: Cell<SizeClass>,
    /// `malloc` may find a block in a list, or come to do so by frees alone.
    stocked: Cell<bool>,
    /// Stacks of freed medium blocks (`medium_cache.rs`).
    pub medium: MediumCache,
    /// Bytes of empty slabs that wait for their next use.
    empty_bytes: Cell<usize>,
    /// Bytes of them that may wait.
    empty_max: Cell<usize>,
    /// Bytes that refills have brought since the page heap was told.
    turned_over: Cell<usize>,
    /// Counters, for each class.
    pub counts: [ClassCount; CLASSES],

    // The sampler's (`thread_cache/budgets.rs`, `sampler/`).
    /// Bytes until the next sample, for each small class.
    budget: [Budget; SMALL_CLASSES],
    /// Bytes until the next sample among large blocks.
    pub large_budget: Budget,
    /// Holds the samples to a rate.
    pub governor: Governor,
    /// State of the random number generator.
    pub random: Cell<u64>,
    /// This thread is taking a sample: what it allocates meanwhile is not sampled.
    pub in_sampler: Cell<bool>,
    /// Scope of the leak checker that this thread is in; every allocation is recorded while it is not 0.
    pub scope: Cell<u32>,
    /// How often this thread has said that what it allocates is no leak, and not taken it back.
    pub ignores: Cell<u32>,
    /// Samples taken.
    pub samples: Cell<u64>,

    // The registry's: whose the heap is (`threads/heaps.rs`, `process/start.rs`).
    /// Kernel id of the thread.
    pub thread_id: Cell<u32>,
    /// Its thread began in a child that had this memory (`vfork`): the id is another process's.
    pub began_in_child: Cell<bool>,
    /// Index of the heap in the segment, and in the order of creation.
    pub index: Cell<u32>,
    /// Threads that have had it.
    pub uses: Cell<u64>,

    // What captures of the thread's stack need (`entry/capture.rs`).
    /// Only touched by its thread, one capture at a time.
    pub capture: UnsafeCell<Capture>,

    // What comes and goes between heaps (`transfer_cache.rs`).
    /// Blocks that its threads freed for others.
    pub outbox: Outbox,
    /// Next in the list of heaps that wait for a thread. The registry's.
    pub next_unused: Cell<Option<&'static Heap>>,
    /// Blocks that other threads freed, and whether a thread has the heap. Any thread's.
    pub inbox: Inbox,

    // How its fast path is closed (`threads/detour.rs`).
    /// Where its thread's first word lies; null without a thread. Any thread's.
    pub thread_word: AtomicPtr<*mut Heap>,
    /// It is none of the static ones.
    pub belongs_to_a_thread: Cell<bool>,
    /// Held by who closes its thread's fast path, for as long as the thread must not go on.
    pub closing: SpinLock<()>,
    /// Its thread is in the slow path although its word doesn't say so: capture runs with an open fast path.
    pub pinned: Cell<bool>,

    // Those who see every call: hooks, and recordings (`hooks/`, `tracer/`).
    /// Its thread is in a hook: what it does there is reported to nobody.
    pub in_hook: Cell<bool>,
    /// Its thread is in a `realloc` that is told as a whole.
    pub in_realloc: Cell<bool>,
    /// It has taken over a slab since the last refill, whose blocks were another thread's.
    pub took_slab: Cell<bool>,
    /// It has taken in blocks that other threads freed: the next event of a trace is to have a new time.
    pub took_in: Cell<bool>,
    /// What the thread needs to trace; null before it did so. Only the tracer knows its type.
    pub trace: Cell<*mut ()>,

    // Those who look on from outside: the collector and the census.
    /// Times that its thread was in the slow path; wraps.
    visits: Cell<u64>,
    /// The garbage collector's notes on it.
    pub idle: Idle,
    /// The census's.
    pub notes: Notes,
    /// Next in the registry's list of all heaps; written once.
    pub next_heap: Cell<Option<&'static Heap>>,
}

// SAFETY: everything but the atomics, `inbox` and `closing` belongs to the thread that has the heap, to the registry
// between two threads, and to the garbage collector while it has closed the thread's fast path and the thread sleeps;
// `idle` is the collector's, `next_heap` is written once. The static heaps are never written.
unsafe impl Sync for Heap {}

/// The heap of a thread that has not allocated yet: all lists empty.
pub static EMPTY: Heap = Heap::new();
/// The heap of a thread whose own was taken away at its exit.
pub static DYING: Heap = Heap::new();
/// The heap of a thread while it is in the slow path: a signal handler that allocates then finds empty lists and
/// is served without locks (see [`crate::serve::reentrant`]).
pub static BUSY: Heap = Heap::new();

/// The heap of a thread whose every call is to take the slow path (see [`crate::threads::detour`]).
pub static DETOUR: Heap = Heap::new();

/// The heap with a slab's owner tag.
///
/// # Safety
/// `tag` was read from [`crate::layout::slab::Slab::owner`] and is none of [`crate::layout::slab::owner`].
pub unsafe fn heap_of(tag: usize) -> &'static Heap {
    // SAFETY: other tags are addresses of heaps, which are never unmapped, with or without a mark.
    unsafe { &*((tag & !owner::MEDIUM) as *const Heap) }
}

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

    /// The budget of a class.
    #[inline]
    pub fn budget(&self, class: SizeClass) -> &Budget {
        if class.is_medium() { &self.medium.stack(class).budget } else { &self.budget[class.index()] }
    }

    /// The budgets of all classes.
    pub fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.budget.iter().chain(self.medium.budgets())
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
        let block = unsafe { self.head.get_unchecked(class.index()) }.get();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, for any address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(block.address().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = block;
    }

    /// Makes blocks of `class` ready, or the next one due to be sampled. False without memory. What else is done at
    /// such a moment hangs on its caller (`serve/heartbeat.rs`).
    pub fn refill(&'static self, slow: SlowPath, class: SizeClass) -> bool {
        self.visit();
        self.note_stocked();
        let count = &self.counts[class.index()];
        count.refills.set(count.refills.get() + 1);
        if class.is_medium() {
            self.begin_refill(slow, class, thread_cache());
        }
        // A slab that has been in use is left when it has little; a new one is used to its end.
        let mut least = self.worth_it(class);
        loop {
            if let Some(slab) = self.active[class.index()].get() {
                let untouched = slab.untouched();
                let stocked = if class.is_medium() { self.stock_medium(slab) } else { self.stock(slab, least) };
                self.count_untouched(class, untouched, slab.untouched());
                if stocked {
                    self.turn_over(slow, class);
                    return true;
                }
                slab.place.set(Place::Full);
                slab.arm_full(self.worth_it(class));
                self.full.push_back(slab);
                self.active[class.index()].set(None);
            }
            // A stack that has got some blocks takes what partial slabs have, and no others.
            let some = class.is_medium() && self.medium.stack(class).blocks() > 0;
            let next = if some { self.partial_slab(class) } else { self.next_slab(slow, class) };
            let Some(slab) = next.inspect(|slab| self.dequeue(slab)) else {
                if some {
                    self.turn_over(slow, class);
                }
                return some;
            };
            slab.place.set(Place::Active);
            self.active[class.index()].set(Some(slab));
            least = 1;
        }
    }

    /// Free blocks of a slab that are worth a refill. The fewer slabs the class has, the less memory lies in them, and
    /// the longer they may wait.
    #[inline]
    fn worth_it(&self, class: SizeClass) -> u32 {
        let part = match self.slabs[class.index()].get() {
            0..=FEW => 2,
            slabs if slabs <= SOME => 4,
            _ => 8,
        };
        (class.info().capacity / part).max(1)
    }

    /// Counts the bytes that a refill has brought, and tells the page heap now and then.
    #[inline]
    fn turn_over(&self, slow: SlowPath, class: SizeClass) {
        let blocks =
            if class.is_medium() { self.medium.stack(class).blocks() } else { self.counts[class.index()].cached.get() };
        let bytes = self.turned_over.get() + blocks as usize * class.block();
        self.turned_over.set(bytes);
        if bytes >= TURNOVER_MIN {
            self.turned_over.set(0);
            page_heap::release_excess(slow, bytes);
        }
    }

    /// The value of [`Slab::owner`] for this heap's slabs of a class.
    fn tag_for(&self, class: SizeClass) -> usize {
        if class.is_medium() { self.tag() + owner::MEDIUM } else { self.tag() }
    }

    /// The next slab to allocate from: the longest waiting partial one, one from the central cache, or a new one.
    fn next_slab(&'static self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        // Partial ones first, then sparse ones, so that these and empty ones can go; of empty ones that whose memory
        // is still in the processor's caches.
        let index = class.index();
        let sparse = || self.sparse[index].first().or(self.empty[index].first());
        let waiting = self.partial_slab(class).or_else(sparse);
        waiting.or_else(|| self.take_slab(slow, class))
    }

    /// The partial slab to go on with. Of small blocks the one that has waited longest, because it has gathered the
    /// most; of medium ones, whose memory counts for more than the time, the fullest of a few,
    /// so that the others can empty.
    fn partial_slab(&self, class: SizeClass) -> Option<&'static Slab> {
        let partial = &self.partial[class.index()];
        if class.is_medium() {
            partial.iter().take(PARTIAL_LOOK).max_by_key(|slab| slab.in_use())
        } else {
            partial.first()
        }
    }

    /// A slab from the central cache, or a new one.
    fn take_slab(&'static self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        // From here on its blocks are this thread's own.
        self.took_slab.set(true);
        if let Some(slab) = central_cache::take(slow, class, self.tag_for(class)) {
            counters::add(TierCounter::CentralHits, 1);
            counters::class_add(class, ClassCounter::CentralHits, 1);
            self.count_slab(class, 1);
            return Some(slab);
        }
        counters::add(TierCounter::CentralMisses, 1);
        counters::class_add(class, ClassCounter::CentralMisses, 1);
        // Before more memory is taken, others get what is theirs.
        self.outbox.flush(slow, self);
        let slab = page_heap::alloc_slab(slow, class)?;
        counters::add(TierCounter::SlabBytes, slab.bytes() as u64);
        counters::class_add(class, ClassCounter::SlabsTaken, 1);
        slab.begin(class, self.tag_for(class));
        self.count_slab(class, 1);
        self.count_untouched(class, 0, slab.untouched());
        let most = thread_cache() / 2;
        self.empty_max.set((self.empty_max.get() * 2).clamp(EMPTY_MIN.min(most), most));
        Some(slab)
    }

    /// Takes a slab out of the queue that it waits in, if it does.
    fn dequeue(&self, slab: &'static Slab) {
        let index = slab.class.get().index();
        let queue = match slab.place.replace(Place::None) {
            Place::Empty => {
                self.empty_bytes.set(self.empty_bytes.get() - slab.bytes());
                return self.empty[index].remove(slab);
            }
            Place::Partial => &self.partial,
            Place::Sparse => &self.sparse,
            Place::None | Place::Active | Place::Full => return,
        };
        queue[index].remove(slab);
        self.partial_slabs[index].set(self.partial_slabs[index].get() - 1);
    }

    /// Queues a slab with free blocks, or gives it away if there are too many.
    fn queue(&self, slow: SlowPath, slab: &'static Slab) {
        let index = slab.class.get().index();
        slab.place.set(Place::None);
        if slab.in_use() == 0 {
            let bytes = self.empty_bytes.get() + slab.bytes();
            if bytes > self.empty_max.get() {
                return self.retire(slow, slab);
            }
            self.empty_bytes.set(bytes);
            keeper::notice(slow, bytes);
            slab.place.set(Place::Empty);
            slab.arm_never();
            self.empty[index].push_front(slab);
        } else if self.partial_slabs[index].get() >= PARTIAL_MAX {
            self.give_to_others(slow, slab);
        } else {
            self.partial_slabs[index].set(self.partial_slabs[index].get() + 1);
            if slab.is_sparse() {
                slab.place.set(Place::Sparse);
                slab.arm_empty();
                self.sparse[index].push_back(slab);
            } else {
                slab.place.set(Place::Partial);
                slab.arm_sparse();
                self.partial[index].push_back(slab);
            }
        }
    }

    /// Looks at a slab of this heap whose countdown ran out.
    pub fn on_countdown(&'static self, slow: SlowPath, slab: &'static Slab) {
        self.visit();
        // A signal handler that came between the countdown and this call may have retired the slab.
        if slab.owner.load(Ordering::Relaxed) & !owner::MEDIUM != self.tag() {
            return;
        }
        match slab.place.get() {
            Place::Full => {
                self.full.remove(slab);
                self.queue(slow, slab);
            }
            Place::Sparse if slab.in_use() > 0 => slab.arm_empty(),
            Place::Partial | Place::Sparse => {
                self.dequeue(slab);
                self.queue(slow, slab);
            }
            // The list that came from it has run out and all its blocks are back: the next refill takes them.
            Place::Active | Place::None | Place::Empty => {}
        }
    }

    /// Counts slabs that come (1) or go (-1).
    fn count_slab(&self, class: SizeClass, change: i32) {
        let slabs = &self.slabs[class.index()];
        slabs.set(slabs.get().wrapping_add_signed(change));
    }

    /// Gives a slab with blocks in use to the central cache.
    fn give_to_others(&self, slow: SlowPath, slab: &'static Slab) {
        self.credit_frees(slab);
        self.count_slab(slab.class.get(), -1);
        central_cache::give(slow, slab);
    }

    /// Gives an empty slab back to the page heap.
    fn retire(&self, slow: SlowPath, slab: &'static Slab) {
        self.credit_frees(slab);
        self.count_slab(slab.class.get(), -1);
        heap_publish::publish_class(self, slab.class.get());
        counters::sub(TierCounter::SlabBytes, slab.bytes() as u64);
        counters::class_add(slab.class.get(), ClassCounter::SlabsReturned, 1);
        self.count_untouched(slab.class.get(), slab.untouched(), 0);
        slab.end();
        give_back::span(slow, slab);
    }

    /// Frees a block of another heap's slab, if that takes no call. False if it takes one.
    #[inline(always)]
    pub fn gather(&self, slow: SlowPath, slab: &'static Slab, block: BlockPtr) -> bool {
        self.outbox.push_quickly(slow, slab, block)
    }

    /// Frees a block of another heap's slab: into the outbox, which goes to the owner in batches.
    #[inline(always)]
    pub fn free_remote(&'static self, slow: SlowPath, slab: &'static Slab, block: BlockPtr) {
        self.outbox.push(slow, self, slab, block);
    }

    /// Takes in what other threads freed.
    #[inline]
    pub fn drain(&'static self, slow: SlowPath) {
        transfer_cache::take_in(slow, Some(self), self.inbox.take());
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
        self.outbox.flush(slow, self);
        self.drain(slow);
        self.empty_lists(slow);
        self.medium.forget_limits();
        for index in 0..CLASSES {
            if let Some(slab) = self.active[index].take() {
                self.leave(slow, slab);
            }
            for queue in [&self.partial, &self.sparse, &self.empty] {
                while let Some(slab) = queue[index].pop_front() {
                    self.leave(slow, slab);
                }
            }
            self.partial_slabs[index].set(0);
            self.carve_shift[index].set(0);
        }
        self.empty_bytes.set(0);
        self.empty_max.set(0);
        while let Some(slab) = self.full.pop_front() {
            self.leave(slow, slab);
        }
        // What came in meanwhile, for slabs that are the central cache's by now.
        self.drain(slow);
        heap_publish::publish_classes(self);
    }

    /// Counts a visit to the slow path.
    #[inline(always)]
    pub fn visit(&self) {
        self.visits.set(self.visits.get().wrapping_add(1));
    }

    /// Takes back the visit of a call that is in the slow path because the fast path is closed, and that has nothing to
    /// do there: a thread that makes no others is idle.
    pub fn unvisit(&self) {
        self.visits.set(self.visits.get().wrapping_sub(1));
    }

    /// Times that the thread was in the slow path, about: other threads may ask, while this one changes it.
    pub fn visits(&self) -> u64 {
        // SAFETY: a word of a heap, which is never unmapped; only whether it has changed counts.
        unsafe { self.visits.as_ptr().read_volatile() }
    }

    /// Bytes in the stacks of medium blocks and in empty slabs, about: other threads may ask,
    /// while this one changes them.
    pub fn idle_bytes(&self) -> usize {
        // SAFETY: a word of a heap, which is never unmapped; what another thread makes of it meanwhile is as good.
        let empty = unsafe { self.empty_bytes.as_ptr().read_volatile() };
        empty + self.medium.idle_bytes()
    }

    /// Sends what this thread freed for others.
    pub fn empty_outbox(&'static self, slow: SlowPath) {
        self.outbox.flush(slow, self);
    }

    fn leave(&self, slow: SlowPath, slab: &'static Slab) {
        slab.place.set(Place::None);
        if slab.in_use() == 0 {
            self.retire(slow, slab);
        } else {
            self.give_to_others(slow, slab);
        }
    }
}
