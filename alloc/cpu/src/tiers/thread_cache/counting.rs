//! What a heap counts: blocks that went out of it and came back, by class, and what others can tell of the rest.

use core::cell::Cell;

use poolscope_wire::ClassCounters;

use crate::layout::size_class::SizeClass;
use crate::layout::slab::Slab;
use crate::layout::slab_list::SlabList;
use crate::segment::counters::{self, ClassCounter};
use crate::sync::reasons;
use crate::tiers::notes::update;
use crate::tiers::publish as heap_publish;
use crate::tiers::thread_cache::Heap;
use crate::tiers::thread_cache::exchange;

/// Whether a block of the class begins so many bytes behind the start of a slab.
pub(super) fn is_start(offset: usize, class: SizeClass) -> bool {
    offset < class.block() * class.info().capacity as usize && class.begins_at(offset as u32)
}

impl Heap {
    /// Counts a block that the program got from the lists, if calls are counted.
    #[inline]
    pub fn count_call(&self, class: SizeClass) {
        if reasons::is_counting() {
            if !class.is_medium() {
                let cached = &self.of(class).count.cached;
                cached.set(cached.get().saturating_sub(1));
            }
            heap_publish::publish_class(self, class);
        }
    }

    /// Counts blocks that came back into a slab of this heap, if calls are counted.
    #[inline]
    pub fn count_freed(&self, slab: &Slab, blocks: u32) {
        if reasons::is_counting() {
            let class = slab.class.get();
            if !class.is_medium() {
                let frees = &self.of(class).count.frees;
                frees.set(frees.get() + u64::from(blocks));
                slab.set_counted(slab.counted() + blocks);
            }
            heap_publish::publish_class(self, class);
        }
    }

    /// Counts the freed blocks of a slab that leaves the heap. Medium blocks are counted one by one.
    pub(super) fn credit_frees(&self, slab: &Slab) {
        if slab.class.get().is_medium() {
            return;
        }
        let free = u32::from(slab.carved.get()) - slab.in_use();
        let count = &self.of(slab.class.get()).count;
        count.frees.set(count.frees.get() + u64::from(free - slab.counted()));
        slab.set_counted(free);
    }

    /// Counts that of a class, `before` blocks had no memory, and `now` have none.
    pub(super) fn count_untouched(&self, class: SizeClass, before: u32, now: u32) {
        let untouched = &self.of(class).count.untouched;
        untouched.set(untouched.get().wrapping_add(now.into()).wrapping_sub(before.into()));
    }

    /// Counts what the counters of small classes don't know yet: the blocks in the lists that `malloc` pops, and those
    /// in the slabs of this heap that were freed.
    pub fn count_all(&self) {
        for class in &self.classes {
            let queued = class.queues().into_iter().flat_map(SlabList::iter);
            class.active.get().into_iter().chain(queued).for_each(|slab| self.credit_frees(slab));
        }
        for (head, class) in self.head.iter().zip(&self.classes) {
            let (mut block, mut blocks) = (head.get(), 0);
            while !block.is_null() {
                blocks += 1;
                // SAFETY: the list's blocks are free and this thread's.
                block = unsafe { block.next() };
            }
            update(&class.count.cached, blocks);
        }
    }

    /// Where the list of a small class begins, which its thread may be changing.
    pub fn list(&self, class: SizeClass) -> usize {
        // SAFETY: a word of a heap, which is never unmapped.
        unsafe { self.head[class.index()].as_ptr().read_volatile().address() as usize }
    }

    /// Where the list of a small class begins, and its blocks. Its thread may be changing it.
    pub fn count_list(&self, class: SizeClass) -> (usize, u32) {
        let mut counted = (0, 0);
        for _ in 0..3 {
            let first = self.list(class);
            // SAFETY: as in `list`; it is null or a slab, whose descriptor is never unmapped.
            let slab = unsafe { self.of(class).active.as_ptr().read_volatile() };
            let (start, is_kept) = (slab.map_or(0, |slab| slab.address() as usize), self.is_list_kept(class));
            let is_block = |at: usize| {
                if is_kept { exchange::may_be_kept(at, class) } else { is_start(at.wrapping_sub(start), class) }
            };
            let (mut at, mut blocks) = (first, 0);
            // Whatever the thread, or the program in a block that it was just given, has written there.
            while at != 0 && blocks < class.info().capacity && is_block(at) {
                blocks += 1;
                // SAFETY: a block's first word; memory of slabs is never made unreadable.
                at = unsafe { (at as *const usize).read_volatile() };
            }
            counted = (first, blocks);
            if self.list(class) == first {
                break;
            }
        }
        counted
    }

    /// Counts a block that was served as a sample, for its class and for the thread: no list had it.
    #[inline]
    pub fn count_sampled(&self, class: SizeClass) {
        counters::class_add(class, ClassCounter::SampledAllocs, 1);
        self.uncached.count(1, class.block());
    }

    /// What the thread has counted of a class, which it may be changing.
    pub fn counters(&self, class: SizeClass) -> ClassCounters {
        let count = &self.of(class).count;
        // SAFETY: words of a heap, which is never unmapped.
        let read = |cell: &Cell<u64>| unsafe { cell.as_ptr().read_volatile() };
        let (allocs, frees) =
            if class.is_medium() { self.medium.counters(class) } else { (read(&count.allocs), read(&count.frees)) };
        let [refills, cached, untouched, sent, returned] =
            [&count.refills, &count.cached, &count.untouched, &count.sent, &count.returned].map(read);
        ClassCounters { allocs, frees, refills, cached, untouched, sent, returned }
    }

    /// Lets the classes' counters begin again; what is in use stays their difference.
    pub fn count_anew(&self) {
        for class in SizeClass::all() {
            let count = &self.of(class).count;
            if class.is_medium() {
                self.medium.count_anew(class);
            } else {
                let (allocs, frees) = (count.allocs.get(), count.frees.get());
                count.allocs.set(allocs.saturating_sub(frees));
                count.frees.set(frees.saturating_sub(allocs));
            }
            count.refills.set(0);
            count.sent.set(0);
            count.returned.set(0);
            heap_publish::publish_counters(self, class, self.counters(class));
        }
    }
}
