//! Counters that are no thread's. Kept in private memory, which a forked child has a copy of; the segment gets the
//! process-wide ones by the census ([`crate::census`]), and those of a class at once.
//!
//! [`crate::api::statistics`] brings them together with the counters of the threads.

use core::sync::atomic::{AtomicU64, Ordering};

use poolscope_wire::{CLASS_COUNTERS, ClassRecord, CounterInfo, MAX_CLASSES, TIER_COUNTERS};
pub use poolscope_wire::{ClassCounter, TierCounter};

use crate::layout::arena::ARENA_PAGE;
use crate::layout::size_class::{CLASSES, SizeClass, TABLE};
use crate::segment::publish;
use crate::sync::apart::Apart;

const _: () = assert!(CLASSES <= MAX_CLASSES);

static COUNTERS: Apart<[AtomicU64; TIER_COUNTERS.len()]> = Apart([const { AtomicU64::new(0) }; TIER_COUNTERS.len()]);
static OF_CLASSES: Apart<[[AtomicU64; CLASS_COUNTERS.len()]; CLASSES]> =
    Apart([const { [const { AtomicU64::new(0) }; CLASS_COUNTERS.len()] }; CLASSES]);

/// Adds to a counter.
pub fn add(counter: TierCounter, n: u64) {
    COUNTERS[counter as usize].fetch_add(n, Ordering::Relaxed);
}

/// Takes from a counter.
pub fn sub(counter: TierCounter, n: u64) {
    COUNTERS[counter as usize].fetch_sub(n, Ordering::Relaxed);
}

/// A counter's value.
pub fn get(counter: TierCounter) -> u64 {
    COUNTERS[counter as usize].load(Ordering::Relaxed)
}

/// Lets the counters that only grow begin again. What is there now stays the difference of those that count what comes
/// and what goes.
pub fn count_anew() {
    const SPANS: (usize, usize) = (TierCounter::PageHeapAllocs as usize, TierCounter::PageHeapFrees as usize);
    const SLABS: (usize, usize) = (ClassCounter::SlabsTaken as usize, ClassCounter::SlabsReturned as usize);
    const BLOCKS: (usize, usize) = (ClassCounter::SampledAllocs as usize, ClassCounter::SharedFrees as usize);
    count_table_anew(TIER_COUNTERS, &*COUNTERS, &[SPANS]);
    OF_CLASSES.iter().for_each(|class| count_table_anew(CLASS_COUNTERS, class, &[SLABS, BLOCKS]));
}

fn count_table_anew(table: &[CounterInfo], counters: &[AtomicU64], pairs: &[(usize, usize)]) {
    for &(come, gone) in pairs {
        let (came, went) = (counters[come].load(Ordering::Relaxed), counters[gone].load(Ordering::Relaxed));
        counters[come].store(came.saturating_sub(went), Ordering::Relaxed);
        counters[gone].store(went.saturating_sub(came), Ordering::Relaxed);
    }
    for (at, counter) in counters.iter().enumerate() {
        if table[at].monotonic && !pairs.iter().any(|&(come, gone)| at == come || at == gone) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Every counter with its description.
pub fn all() -> impl Iterator<Item = (&'static CounterInfo, u64)> {
    TIER_COUNTERS.iter().zip(TierCounter::ALL).map(|(info, counter)| (info, get(*counter)))
}

/// Adds to a counter of a class.
pub fn class_add(class: SizeClass, counter: ClassCounter, n: u64) {
    let after = OF_CLASSES[class.index()][counter as usize].fetch_add(n, Ordering::Relaxed).wrapping_add(n);
    publish::publish_shared(class.index(), counter, after);
}

/// A class's counter's value.
pub fn class_get(class: SizeClass, counter: ClassCounter) -> u64 {
    OF_CLASSES[class.index()][counter as usize].load(Ordering::Relaxed)
}

/// Takes from a counter of a class.
pub fn class_sub(class: SizeClass, counter: ClassCounter, n: u64) {
    class_add(class, counter, n.wrapping_neg());
}

/// A class's record as the segment has it.
pub fn class_record(index: usize) -> ClassRecord {
    let info = &TABLE[index];
    ClassRecord {
        block_bytes: info.block,
        slab_bytes: info.slab_pages * ARENA_PAGE as u32,
        slab_blocks: info.capacity,
        shared: core::array::from_fn(|counter| OF_CLASSES[index][counter].load(Ordering::Relaxed)),
        ..ClassRecord::ZERO
    }
}
