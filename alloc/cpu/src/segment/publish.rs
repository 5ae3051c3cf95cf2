//! The counters in the segment: of threads, of classes and of the process.
//!
//! A thread writes its own record while calls are counted, and the census writes those of all otherwise
//! ([`crate::census`]). A counter that is nobody's is one word, of which the last written wins: no lock is taken.
//! Nothing is written to the segment of a parent.

use core::sync::atomic::{Ordering, fence};

use poolscope_wire::stats::Unbacked;
use poolscope_wire::{ClassCounters, ClassRecord, Ground, Region, TIER_COUNTERS, ThreadRecord, thread_state};

use crate::census;
use crate::kernel::os;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::segment::Segment;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::segment::ownership::own_segment;
use crate::tiers::thread_cache::Heap;

/// Writes what each class is.
pub fn write_classes(segment: &Segment) {
    for index in 0..CLASSES {
        // SAFETY: all classes were committed when the segment was made.
        unsafe { segment.record::<ClassRecord>(Region::Classes, index as u32).write(counters::class_record(index)) };
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
    publish_heap(heap);
    if let Some(record) = thread_record(heap) {
        // SAFETY: the record is committed, and this thread is its writer.
        unsafe { (&raw mut (*record).state).write_volatile(state) };
    }
}

/// Publishes what a heap's thread has done, its classes' counters left out. Its thread may be changing it.
pub fn publish_heap(heap: &Heap) {
    let Some(record) = thread_record(heap) else { return };
    // SAFETY: words of a heap, which is never unmapped, and of a record that is committed: of the words there, the last
    // one written holds.
    unsafe {
        (&raw mut (*record).tid).write_volatile(heap.thread_id.as_ptr().read_volatile());
        let outbox = &heap.outbox;
        for (word, cell) in [
            (&raw mut (*record).uses, &heap.uses),
            (&raw mut (*record).samples, &heap.samples),
            (&raw mut (*record).remote_frees, &outbox.blocks),
            (&raw mut (*record).remote_batches, &outbox.batches),
            (&raw mut (*record).remote_returns, &outbox.returned),
        ] {
            word.write_volatile(cell.as_ptr().read_volatile());
        }
    }
}

/// Publishes to the process's own segment how many samples a heap's thread has taken, unless the census does.
pub fn publish_samples(segment: &Segment, heap: &Heap) {
    let index = heap.index.get();
    if census::threads_publish() && segment.is_committed(Region::Threads, index + 1) {
        let record = segment.record::<ThreadRecord>(Region::Threads, index);
        // SAFETY: the record is committed, and this thread is its writer.
        unsafe { (&raw mut (*record).samples).write_volatile(heap.samples.get()) };
    }
}

/// Publishes a heap's counters of one class, unless the census does.
#[inline]
pub fn publish_class(heap: &Heap, class: SizeClass) {
    if census::threads_publish() {
        publish_counters(heap, class, heap.counters(class));
    }
}

/// Publishes these counters of a heap and a class.
pub fn publish_counters(heap: &Heap, class: SizeClass, counters: ClassCounters) {
    let Some(record) = thread_record(heap) else { return };
    let outbox = &heap.outbox;
    // SAFETY: the counters follow the record, which is committed. The thread is their writer, or the census.
    unsafe {
        record.add(1).cast::<ClassCounters>().add(class.index()).write_volatile(counters);
        (&raw mut (*record).remote_frees).write_volatile(outbox.blocks.as_ptr().read_volatile());
        (&raw mut (*record).remote_batches).write_volatile(outbox.batches.as_ptr().read_volatile());
        (&raw mut (*record).remote_returns).write_volatile(outbox.returned.as_ptr().read_volatile());
    }
}

/// Publishes what a census found of a heap and a class. What only grows never falls: the census may have missed blocks
/// that the thread counted meanwhile.
pub fn publish_found(heap: &Heap, class: SizeClass, found: ClassCounters) {
    let Some(record) = thread_record(heap) else { return };
    // SAFETY: the counters follow the record, which is committed.
    let before = unsafe { record.add(1).cast::<ClassCounters>().add(class.index()).read_volatile() };
    let frees = if before.allocs > found.allocs { found.frees } else { found.frees.max(before.frees) };
    publish_counters(heap, class, ClassCounters { frees, ..found });
}

/// Publishes a heap's counters of every class that it ever had.
pub fn publish_classes(heap: &Heap) {
    for class in SizeClass::all() {
        let counters = heap.counters(class);
        if !counters.is_unused() {
            publish_counters(heap, class, counters);
        }
    }
}

/// Publishes the process-wide counters, unless the census does.
#[inline]
pub fn publish_tiers() {
    if census::threads_publish() {
        publish_all_tiers();
    }
}

fn publish_all_tiers() {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    for counter in TierCounter::ALL {
        // SAFETY: the page that holds all counters was committed when the segment was made; single words, of which
        // the last written wins.
        unsafe {
            segment.record::<u64>(Region::Tiers, *counter as u32).write_volatile(counters::get(*counter));
        }
    }
}

/// Publishes a census: what `heaps` publishes, the counters of the process, and what lies where with or without memory.
/// The caller holds the census's lock.
pub fn publish_census(unbacked: &[u64; Unbacked::COUNT], grounds: &[Ground], heaps: impl FnOnce()) {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    let header = segment.raw_header();
    // SAFETY: fields of the header, which is mapped; the census alone writes them, and readers look at the number.
    unsafe {
        let seq = &raw mut (*header).census_seq;
        seq.write_volatile(seq.read_volatile() | 1);
        fence(Ordering::SeqCst);
        heaps();
        publish_all_tiers();
        (&raw mut (*header).unbacked).write_volatile(*unbacked);
        for (at, ground) in grounds.iter().enumerate() {
            (&raw mut (*header).grounds).cast::<Ground>().add(at).write_volatile(*ground);
        }
        (&raw mut (*header).census_ns).write_volatile(os::clock_ns(libc::CLOCK_MONOTONIC));
        fence(Ordering::SeqCst);
        seq.write_volatile(seq.read_volatile().wrapping_add(1));
    }
}

/// What the last census found to have no memory.
pub fn unbacked() -> [u64; Unbacked::COUNT] {
    let Some(segment) = Segment::current() else { return [0; Unbacked::COUNT] };
    // SAFETY: as above.
    unsafe { (&raw const (*segment.raw_header()).unbacked).read_volatile() }
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
