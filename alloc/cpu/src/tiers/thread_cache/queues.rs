//! Where the slabs of a heap wait, and which one a refill takes.
//!
//! Partial slabs come before sparse ones, those before empty ones, and the central cache before a new slab.

use core::sync::atomic::Ordering;

use super::Heap;
use super::limit::cache_limit;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::free_list::FreeList;
use crate::layout::lean;
use crate::layout::size_class::SizeClass;
use crate::layout::slab::{Place, Slab};
use crate::layout::slab_list::SlabList;
use crate::pages::keeper;
use crate::pages::page_heap;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::central_cache;
use crate::tiers::give_back;
use crate::tiers::publish as heap_publish;

/// Partial slabs of one class that a heap keeps before it gives one to the central cache:
/// who frees into those takes a lock.
const PARTIAL_MAX: u32 = 8192;
/// Partial slabs of medium blocks that are looked at for the fullest one.
const PARTIAL_LOOK: usize = 16;
/// Bytes of empty slabs that a new heap keeps; each miss doubles it, up to a quarter of [`cache_limit`].
const EMPTY_MIN: usize = 128 << 10;

/// So many free blocks are worth a refill, whatever part of their slab they are.
const WORTH_MAX: u32 = 32;
/// The part of a slab that is worth a refill before another slab is taken.
const LEAST: u32 = 8;
/// Slabs of a class that are few, and that are some.
const FEW: u32 = 4;
const SOME: u32 = 16;

/// Whether the page heap has as much idle memory as a slab of the class.
fn has_idle(class: SizeClass) -> bool {
    let [free, released] = [TierCounter::PageHeapFree, TierCounter::SystemReleased].map(counters::get);
    free.saturating_sub(released) as usize >= class.info().slab_pages as usize * ARENA_PAGE
}

impl Heap {
    /// Free blocks of a slab that are worth a refill. The fewer slabs the class has, the less memory lies in them, and
    /// the longer they may wait.
    #[inline]
    pub(super) fn worth_it(&self, class: SizeClass) -> u32 {
        let part = match self.of(class).slabs.get() {
            0..=FEW => 2,
            slabs if slabs <= SOME => 4,
            _ => 8,
        };
        (class.info().capacity / part).clamp(1, WORTH_MAX)
    }

    /// What the heap's freed blocks of a class go onto, if not onto the lists of their slabs.
    fn stack_for(&'static self, class: SizeClass) -> Option<&'static FreeList> {
        class.is_medium().then(|| self.medium.stack(class).armed_list())
    }

    /// The next slab to allocate from: the longest waiting partial one, one from the central cache, or a new one.
    pub(super) fn next_slab(&'static self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        // Partial ones first, then sparse ones, so that these and empty ones can go; of empty ones that whose memory
        // is still in the processor's caches.
        self.queued_slab(class).or_else(|| self.most_free(class)).or_else(|| self.take_slab(slow, class))
    }

    /// The first one of those that the heap has in its queues. Of small blocks that others have freed, a slab that has
    /// come back as a whole: where each is taken up while it comes back, its blocks are soon in many pieces.
    #[inline]
    pub(super) fn queued_slab(&self, class: SizeClass) -> Option<&'static Slab> {
        let of = self.of(class);
        let whole = of.empty.first().filter(|slab| slab.came_back() && !class.is_medium());
        let few = || [&of.sparse, &of.thin, &of.empty].into_iter().find_map(SlabList::first);
        whole.or_else(|| self.partial_slab(class)).or_else(few)
    }

    /// The slab with the most free blocks of those that wait until a refill is worth it, if it has at least some: a class
    /// with few slabs takes no other as long as these would do.
    fn most_free(&self, class: SizeClass) -> Option<&'static Slab> {
        let least = (class.info().capacity / LEAST).max(1);
        // Where a class has many, they don't wait for more.
        if least >= self.worth_it(class) {
            return None;
        }
        let slab = self.of(class).full.iter().max_by_key(|slab| slab.free_blocks())?;
        (slab.free_blocks() >= least).then_some(slab)
    }

    /// The partial slab to go on with. Of small blocks the one that has waited longest, because it has gathered the
    /// most; of medium ones, whose memory counts for more than the time, the fullest of a few,
    /// so that the others can empty.
    pub(super) fn partial_slab(&self, class: SizeClass) -> Option<&'static Slab> {
        let partial = &self.of(class).partial;
        if class.is_medium() {
            partial.iter().take(PARTIAL_LOOK).max_by_key(|slab| slab.in_use())
        } else {
            partial.first()
        }
    }

    /// A slab from the central cache, or a new one.
    fn take_slab(&'static self, slow: SlowPath, class: SizeClass) -> Option<&'static Slab> {
        // From here on its blocks are this thread's own.
        self.calls.took_slab.set(true);
        if let Some(slab) = central_cache::take(slow, class, self.tag(), self.stack_for(class)) {
            counters::add(TierCounter::CentralHits, 1);
            counters::class_add(class, ClassCounter::CentralHits, 1);
            self.count_slab(class, 1);
            return Some(slab);
        }
        counters::add(TierCounter::CentralMisses, 1);
        counters::class_add(class, ClassCounter::CentralMisses, 1);
        // Before more memory is taken, others get what is theirs.
        self.outbox.flush(slow, self);
        // Of most classes a small program needs few blocks. Where long ones were, others will.
        let few = !class.is_long() && counters::class_get(class, ClassCounter::SlabsTaken) == 0;
        let other = if few && self.empty_bytes.get() <= EMPTY_MIN { None } else { self.empty_of_another(class) };
        let (slab, ready) = match other {
            Some(slab) => (slab, slab.pages.get()),
            None => {
                let grows = !few && !has_idle(class);
                let (slab, ready) = page_heap::alloc_slab(slow, class, few)?;
                counters::add(TierCounter::SlabBytes, slab.bytes() as u64);
                // For what the program asks next: a block that was just freed is not the next one of another size, so that
                // a write to it shows in its link.
                if grows {
                    self.leave_alone(slow);
                }
                (slab, ready)
            }
        };
        counters::class_add(class, ClassCounter::SlabsTaken, 1);
        slab.begin(class, self.tag(), self.stack_for(class), ready);
        self.count_slab(class, 1);
        self.count_untouched(class, 0, slab.untouched());
        let most = cache_limit() / 4;
        self.empty_max.set((self.empty_max.get() * 2).clamp(EMPTY_MIN.min(most), most));
        Some(slab)
    }

    /// An empty slab of another class of as many pages, as the page heap would have it, where that has none with
    /// memory: what the heap has idle serves any class, before the program becomes larger.
    fn empty_of_another(&self, class: SizeClass) -> Option<&'static Slab> {
        // Under a narrow limit of data, only what blocks were cut from may be touched.
        if self.empty_bytes.get() == 0 || lean::is_on() || has_idle(class) {
            return None;
        }
        let pages = class.info().slab_pages;
        let slab =
            self.classes.iter().filter_map(|class| class.empty.first()).find(|slab| slab.pages.get() == pages)?;
        self.dequeue(slab);
        self.put_off(slab);
        slab.set_zero(false);
        Some(slab)
    }

    /// Takes a slab over from the central cache of which the thread frees a block, if it allocates from the class
    /// itself, and so has a use for it. What the thread inherits from one that has ended is then
    /// freed without a lock, and used again by who frees it.
    pub fn take_over(&'static self, slow: SlowPath, slab: &'static Slab) {
        // A block of it is in use: its class does not change.
        let class = slab.class.get();
        let has_use = self.of(class).active.get().is_some();
        if !has_use || !central_cache::take_this(slow, slab, self.tag(), self.stack_for(class)) {
            return;
        }
        self.calls.took_slab.set(true);
        self.count_slab(class, 1);
        let inherited = &self.of(class).inherited;
        inherited.set(inherited.get() + 1);
        slab.place.set(Place::Full);
        slab.arm_full(self.worth_it(class));
        self.of(class).full.push_back(slab);
    }

    /// Takes a slab out of the queue that it waits in, if it does.
    pub(super) fn dequeue(&self, slab: &'static Slab) {
        let of = self.of(slab.class.get());
        let queue = match slab.place.replace(Place::None) {
            Place::Empty => {
                self.empty_bytes.set(self.empty_bytes.get() - slab.bytes());
                return of.empty.remove(slab);
            }
            Place::Full => return of.full.remove(slab),
            Place::Partial => &of.partial,
            Place::Sparse => &of.sparse,
            Place::Thin => {
                self.count_thin(slab, -1);
                &of.thin
            }
            Place::None | Place::Active => return,
        };
        queue.remove(slab);
        of.partial_slabs.set(of.partial_slabs.get() - 1);
    }

    /// Queues a slab with free blocks, or gives it away if there are too many.
    fn queue(&self, slow: SlowPath, slab: &'static Slab) {
        let of = self.of(slab.class.get());
        slab.place.set(Place::None);
        if slab.in_use() == 0 {
            let bytes = self.empty_bytes.get() + slab.bytes();
            let inherited = of.inherited.get();
            of.inherited.set(inherited.saturating_sub(1));
            if inherited > 0 || bytes > self.empty_max.get() {
                return self.retire(slow, slab);
            }
            self.empty_bytes.set(bytes);
            keeper::notice(slow, bytes);
            slab.place.set(Place::Empty);
            slab.arm_never();
            of.empty.push_front(slab);
        } else if of.partial_slabs.get() >= PARTIAL_MAX {
            self.give_to_others(slow, slab);
        } else {
            of.partial_slabs.set(of.partial_slabs.get() + 1);
            if slab.is_thin() {
                slab.place.set(Place::Thin);
                slab.arm_empty();
                self.count_thin(slab, 1);
                of.thin.push_back(slab);
            } else if slab.is_sparse() {
                slab.place.set(Place::Sparse);
                slab.arm_thin();
                of.sparse.push_back(slab);
            } else {
                slab.place.set(Place::Partial);
                slab.arm_sparse();
                of.partial.push_back(slab);
            }
        }
    }

    /// Looks at what the heap has of a page's class, for a block of the page that was freed.
    pub fn on_due(&'static self, slow: SlowPath, page: &'static Slab) {
        let class = page.class.get();
        if class.is_medium() { self.flush_medium(slow, class) } else { self.on_countdown(slow, page) }
    }

    /// Looks at a slab of this heap whose countdown ran out.
    pub fn on_countdown(&'static self, slow: SlowPath, slab: &'static Slab) {
        self.visit();
        // A signal handler that came between the countdown and this call may have retired the slab.
        if slab.owner.load(Ordering::Relaxed) != self.tag() {
            return;
        }
        match slab.place.get() {
            Place::Thin if slab.in_use() > 0 => slab.arm_empty(),
            Place::Full | Place::Partial | Place::Sparse | Place::Thin => {
                self.dequeue(slab);
                self.queue(slow, slab);
            }
            // The list that came from it has run out and all its blocks are back: the next refill takes them.
            Place::Active | Place::None | Place::Empty => {}
        }
    }

    /// Counts slabs that come (1) or go (-1).
    fn count_slab(&self, class: SizeClass, change: i32) {
        let slabs = &self.of(class).slabs;
        slabs.set(slabs.get().wrapping_add_signed(change));
    }

    /// Gives a slab with blocks in use to the central cache.
    fn give_to_others(&self, slow: SlowPath, slab: &'static Slab) {
        self.credit_frees(slab);
        self.count_slab(slab.class.get(), -1);
        central_cache::give(slow, slab);
    }

    /// Gives the slab that a class allocates from back to the page heap, if it is empty.
    pub fn leave_empty(&self, slow: SlowPath, class: SizeClass) {
        let active = &self.of(class).active;
        if let Some(slab) = active.get().filter(|slab| slab.in_use() == 0) {
            active.set(None);
            slab.place.set(Place::None);
            self.retire(slow, slab);
        }
    }

    /// Gives an empty slab back to the page heap.
    fn retire(&self, slow: SlowPath, slab: &'static Slab) {
        self.put_off(slab);
        counters::sub(TierCounter::SlabBytes, slab.bytes() as u64);
        give_back::slab(slow, slab);
    }

    /// Ends an empty slab, which is then a span of pages in use.
    fn put_off(&self, slab: &'static Slab) {
        let class = slab.class.get();
        self.credit_frees(slab);
        self.count_slab(class, -1);
        heap_publish::publish_class(self, class);
        counters::class_add(class, ClassCounter::SlabsReturned, 1);
        self.count_untouched(class, slab.untouched(), 0);
        slab.end();
    }

    pub(super) fn leave(&self, slow: SlowPath, slab: &'static Slab) {
        slab.place.set(Place::None);
        if slab.in_use() == 0 {
            self.retire(slow, slab);
        } else {
            self.give_to_others(slow, slab);
        }
    }
}
