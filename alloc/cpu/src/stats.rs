//! Counters that are no thread's. Kept in private memory, which a forked child has a copy of; the segment gets the
//! process-wide ones by the census ([`crate::census`]), and those of a class at once.
//!
//! [`read`] brings them together with the counters of the threads.

use core::sync::atomic::{AtomicU64, Ordering};

use poolscope_wire::{CLASS_COUNTERS, ClassRecord, ClassStats, CounterInfo, MAX_CLASSES, Stats, TIER_COUNTERS};
pub use poolscope_wire::{ClassCounter, TierCounter};

use crate::arena::PAGE;
use crate::registry::{self, Entry};
use crate::size_class::{CLASSES, SizeClass, TABLE};
use crate::{os, sampler, settings};

const _: () = assert!(CLASSES <= MAX_CLASSES);

static COUNTERS: [AtomicU64; TIER_COUNTERS.len()] = [const { AtomicU64::new(0) }; TIER_COUNTERS.len()];
static OF_CLASSES: [[AtomicU64; CLASS_COUNTERS.len()]; CLASSES] =
    [const { [const { AtomicU64::new(0) }; CLASS_COUNTERS.len()] }; CLASSES];

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
    count_table_anew(TIER_COUNTERS, &COUNTERS, &[SPANS]);
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
    sampler::publish_shared(class.index(), counter, after);
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
        slab_bytes: info.slab_pages * PAGE as u32,
        slab_blocks: info.capacity,
        shared: core::array::from_fn(|counter| OF_CLASSES[index][counter].load(Ordering::Relaxed)),
        ..ClassRecord::ZERO
    }
}

/// Calls `f` with everything that there is to know. `None` without memory: the structure is too large for a small
/// stack, and lies in a mapping of its own meanwhile.
pub fn with_stats<R>(f: impl FnOnce(&Stats) -> R) -> Option<R> {
    let memory = os::map(size_of::<Stats>()).cast::<Stats>();
    if memory.is_null() {
        return None;
    }
    // SAFETY: the mapping is as large as the structure, aligned to a page, and nobody else's; zeros are valid numbers.
    let result = unsafe {
        read(&mut *memory);
        let result = f(&*memory);
        os::unmap(memory.cast(), size_of::<Stats>());
        result
    };
    Some(result)
}

/// Takes a census and reads everything. A reader of the segment gets the same until somebody allocates.
pub fn read(stats: &mut Stats) {
    if let Entry::Heap(entered) = registry::enter() {
        sampler::publish_all(entered.slow);
    }
    stats.unbacked = sampler::unbacked();
    stats.resident = None;
    stats.class_count = CLASSES;
    stats.page_bytes = PAGE as u64;
    stats.period_bytes = settings::current().period().max(1);
    for (value, counter) in stats.tiers.iter_mut().zip(TierCounter::ALL) {
        *value = get(*counter);
    }
    for (index, class) in stats.classes[..CLASSES].iter_mut().enumerate() {
        *class = ClassStats::new(&class_record(index));
    }
    stats.heaps = sampler::for_each_thread(|class, counters| stats.classes[class].add_thread(&counters));
}
