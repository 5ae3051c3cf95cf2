//! The counters in the segment: of threads, of classes and of the process.
//!
//! A thread writes its own record, and a counter that is nobody's is one word, of which the last written wins: no lock is taken.
//! Nothing is written to the segment of a parent.

use poolscope_wire::{ClassCounters, ClassRecord, Region, TIER_COUNTERS, ThreadRecord, thread_state};

use super::ownership::own_segment;
use crate::segment::Segment;
use crate::size_class::{CLASSES, SizeClass};
use crate::stats::{self, ClassCounter, TierCounter};
use crate::thread_cache::Heap;

/// Writes what each class is.
pub(super) fn write_classes(segment: &Segment) {
    for index in 0..CLASSES {
        // SAFETY: all classes were committed when the segment was made.
        unsafe { segment.record::<ClassRecord>(Region::Classes, index as u32).write(stats::class_record(index)) };
    }
    segment.raise_count(Region::Classes, CLASSES as u32);
    segment.raise_count(Region::Tiers, TIER_COUNTERS.len() as u32);
}

/// A heap's record in the segment, if there is one to write to.
fn thread_record(heap: &Heap) -> Option<*mut ThreadRecord> {
    let segment = Segment::current().filter(|_| own_segment())?;
    let index = heap.index.get();
    segment.is_committed(Region::Threads, index + 1).then(|| segment.record(Region::Threads, index))
}

/// Publishes what a heap says of its thread.
pub fn publish_thread(heap: &Heap, state: u32) {
    let Some(record) = thread_record(heap) else { return };
    // SAFETY: the record is committed, and this thread is its writer.
    unsafe {
        (*record).tid = heap.thread_id.get();
        (*record).uses = heap.uses.get();
        (*record).samples = heap.samples.get();
        (*record).state = state;
    }
}

/// Publishes a heap's counters of one class.
#[inline]
pub fn publish_class(heap: &Heap, class: SizeClass) {
    let Some(record) = thread_record(heap) else { return };
    let count = &heap.counts[class.index()];
    let counters = ClassCounters {
        allocs: heap.allocs(class).get(),
        frees: heap.frees(class).get(),
        refills: count.refills.get(),
        cached: count.cached.get(),
        untouched: count.untouched.get(),
        sent: count.sent.get(),
        returned: count.returned.get(),
    };
    // SAFETY: the counters follow the record; this thread is their writer.
    unsafe {
        record.add(1).cast::<ClassCounters>().add(class.index()).write(counters);
        (*record).remote_frees = heap.outbox.blocks.get();
        (*record).remote_batches = heap.outbox.batches.get();
        (*record).remote_returns = heap.outbox.returned.get();
    }
}

/// Publishes a heap's counters of every class that it ever had.
pub fn publish_classes(heap: &Heap) {
    for class in SizeClass::all() {
        let count = &heap.counts[class.index()];
        if count.refills.get() | heap.allocs(class).get() | heap.frees(class).get() != 0 {
            publish_class(heap, class);
        }
    }
}

/// Publishes the process-wide counters with every 32nd call of a heap: threads that all write to one page wait for
/// each other.
#[inline]
pub fn publish_tiers_sometimes(heap: &Heap) {
    let calls = heap.unpublished.get().wrapping_add(1);
    heap.unpublished.set(calls);
    if calls % 32 == 1 {
        publish_tiers();
    }
}

/// Publishes the process-wide counters.
pub fn publish_tiers() {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    for counter in TierCounter::ALL {
        // SAFETY: the page that holds all counters was committed when the segment was made; single words, of which
        // the last written wins.
        unsafe {
            segment.record::<u64>(Region::Tiers, *counter as u32).write_volatile(stats::get(*counter));
        }
    }
}

/// Publishes a counter of a class that is no thread's.
pub fn publish_shared(class: usize, counter: ClassCounter, value: u64) {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    // SAFETY: all classes were committed when the segment was made; a single word, of which the last written wins.
    unsafe {
        let record = segment.record::<ClassRecord>(Region::Classes, class as u32);
        (&raw mut (*record).shared).cast::<u64>().add(counter as usize).write_volatile(value);
    }
}

/// Calls `f` with each class's counters of each thread, as they were last published. Returns the number of heaps.
pub fn for_each_thread(mut f: impl FnMut(usize, ClassCounters)) -> u64 {
    let Some(segment) = Segment::current() else { return 0 };
    let mut heaps = 0;
    for thread in 0..segment.count(Region::Threads) {
        let record = segment.record::<ThreadRecord>(Region::Threads, thread);
        // SAFETY: records below the count are committed, and stay; their threads write them meanwhile, word by word.
        unsafe {
            if (&raw const (*record).state).read_volatile() == thread_state::UNUSED {
                continue;
            }
            heaps += 1;
            let counters = record.add(1).cast::<ClassCounters>();
            for class in 0..CLASSES {
                f(class, counters.add(class).read_volatile());
            }
        }
    }
    heaps
}
