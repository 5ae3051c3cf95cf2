//! The counters in the segment: of classes and of the process. Those of threads are written by
//! [`crate::tiers::publish`].
//!
//! A thread writes its own record while calls are counted, and the census writes those of all otherwise
//! ([`crate::census`]). A counter that is nobody's is one word, of which the last written wins: no lock is taken.
//! Nothing is written to the segment of a parent.

use core::sync::atomic::{AtomicBool, Ordering, fence};

use poolscope_wire::stats::{Backing, Sums, Unbacked, Usage};
use poolscope_wire::{
    ClassCounters, ClassRecord, ClassStats, GROUNDS, Ground, Region, TIER_COUNTERS, ThreadRecord, Total, thread_state,
};

use crate::kernel::os;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::size_class::CLASSES;
use crate::segment::Segment;
use crate::segment::counters::{self, ClassCounter, TierCounter};
use crate::segment::ownership::own_segment;
use crate::sync::reasons::is_counting;

/// The pool's thread publishes the counters of all threads.
pub static WATCHED: AtomicBool = AtomicBool::new(false);

/// Whether threads publish what they count.
#[inline]
pub fn threads_publish() -> bool {
    is_counting() || !WATCHED.load(Ordering::Relaxed)
}

/// Writes what each class is.
pub fn write_classes(segment: &Segment) {
    for index in 0..CLASSES {
        // SAFETY: all classes were committed when the segment was made.
        unsafe { segment.record::<ClassRecord>(Region::Classes, index as u32).write(counters::class_record(index)) };
    }
    segment.raise_count(Region::Classes, CLASSES as u32);
    segment.raise_count(Region::Tiers, TIER_COUNTERS.len() as u32);
}

/// Publishes the process-wide counters, unless the census does.
#[inline]
pub fn publish_tiers() {
    if threads_publish() {
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
        (&raw mut (*header).is_watched).write_volatile(u32::from(!threads_publish()));
        fence(Ordering::SeqCst);
        seq.write_volatile(seq.read_volatile().wrapping_add(1));
    }
}

/// Says that addresses which begin or end where a ground does may be touched as far as these from now on: the next
/// census may be long after they are.
pub fn extend_ground(from: usize, to: usize) {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    // SAFETY: fields of the header, which is mapped; single words. A census that runs meanwhile writes the same or
    // less, and the next one what is so.
    unsafe {
        let grounds = (&raw mut (*segment.raw_header()).grounds).cast::<Ground>();
        for ground in (0..GROUNDS).map(|at| grounds.add(at)) {
            let (start, end) = (&raw mut (*ground).from, &raw mut (*ground).to);
            if start.read_volatile() == from as u64 && end.read_volatile() < to as u64 {
                end.write_volatile(to as u64);
            }
            if end.read_volatile() == to as u64 && start.read_volatile() > from as u64 {
                start.write_volatile(from as u64);
            }
        }
    }
}

/// What the last census found to have no memory.
pub fn unbacked() -> [u64; Unbacked::COUNT] {
    let Some(segment) = Segment::current() else { return [0; Unbacked::COUNT] };
    // SAFETY: as above.
    unsafe { (&raw const (*segment.raw_header()).unbacked).read_volatile() }
}

/// Adds what the last census has found to the history of the process. The caller holds the census's lock.
pub fn publish_total(unbacked: &[u64; Unbacked::COUNT]) {
    let Some(segment) = Segment::current().filter(|_| own_segment()) else { return };
    let mut sums = Sums::default();
    for class in 0..CLASSES {
        let mut stats = ClassStats::new(&counters::class_record(class));
        for thread in 0..segment.count(Region::Threads) {
            let record = segment.record::<ThreadRecord>(Region::Threads, thread);
            // SAFETY: records below the count are committed, and stay; their threads write them meanwhile, word by
            // word.
            stats.add_thread(&unsafe { record.add(1).cast::<ClassCounters>().add(class).read_volatile() });
        }
        sums.add(&stats);
    }
    let usage = Usage::of(&sums, counters::get, &Backing { unbacked, resident: None, page_bytes: ARENA_PAGE as u64 });
    let time_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
    segment.note_total(Total {
        time_ns,
        in_use: usage.in_use,
        most: usage.in_use,
        most_ns: time_ns,
        untouched: usage.untouched,
        caches: usage.thread_caches.saturating_add(usage.transfer_cache).saturating_add(usage.central_cache),
        free: usage.page_heap,
        metadata: usage.metadata,
    });
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
