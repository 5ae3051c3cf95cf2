//! The counters of threads in the segment.
//!
//! A thread writes its own record while calls are counted, and the census writes those of all otherwise
//! ([`crate::census`]). Of each word the last written wins: no lock is taken.

use poolscope_wire::{ClassCounters, Region, ThreadRecord};

use crate::layout::size_class::SizeClass;
use crate::segment::Segment;
use crate::segment::ownership::own_segment;
use crate::segment::publish::threads_publish;
use crate::tiers::thread_cache::Heap;

/// A heap's record in the segment, if there is one to write to.
fn thread_record(heap: &Heap) -> Option<*mut ThreadRecord> {
    let segment = Segment::current().filter(|_| own_segment())?;
    let index = heap.registration.index.get();
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
        (&raw mut (*record).tid).write_volatile(heap.registration.thread_id.as_ptr().read_volatile());
        let outbox = &heap.outbox;
        for (word, cell) in [
            (&raw mut (*record).uses, &heap.registration.uses),
            (&raw mut (*record).samples, &heap.sampling.samples),
            (&raw mut (*record).remote_frees, &outbox.blocks),
            (&raw mut (*record).remote_batches, &outbox.batches),
            (&raw mut (*record).remote_returns, &outbox.returned),
            (&raw mut (*record).uncached_allocs, &heap.uncached.blocks),
            (&raw mut (*record).uncached_bytes, &heap.uncached.bytes),
        ] {
            word.write_volatile(cell.as_ptr().read_volatile());
        }
    }
}

/// Publishes to the process's own segment how many samples a heap's thread has taken, unless the census does.
pub fn publish_samples(segment: &Segment, heap: &Heap) {
    let index = heap.registration.index.get();
    if threads_publish() && segment.is_committed(Region::Threads, index + 1) {
        let record = segment.record::<ThreadRecord>(Region::Threads, index);
        // SAFETY: the record is committed, and this thread is its writer.
        unsafe { (&raw mut (*record).samples).write_volatile(heap.sampling.samples.get()) };
    }
}

/// Publishes what a heap's thread has got past its cache, unless the census does.
pub fn publish_uncached(heap: &Heap) {
    if threads_publish() {
        publish_heap(heap);
    }
}

/// Publishes a heap's counters of one class, unless the census does.
#[inline]
pub fn publish_class(heap: &Heap, class: SizeClass) {
    if threads_publish()
        && let Some(record) = thread_record(heap)
    {
        write_counters(record, heap, class, heap.counters(class));
    }
}

/// Publishes these counters of a heap and a class.
pub fn publish_counters(heap: &Heap, class: SizeClass, counters: ClassCounters) {
    if let Some(record) = thread_record(heap) {
        write_counters(record, heap, class, counters);
    }
}

#[inline]
fn write_counters(record: *mut ThreadRecord, heap: &Heap, class: SizeClass, counters: ClassCounters) {
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
