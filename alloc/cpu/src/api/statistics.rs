//! Statistics: the counters of the process, of classes and of threads, brought together.

use poolscope_wire::{ClassStats, Stats};

use crate::entry::{self, Entry};
use crate::kernel::os;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::size_class::CLASSES;
use crate::sampler;
use crate::segment::counters::{TierCounter, class_record, get};
use crate::segment::publish;
use crate::settings;

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
    if let Entry::Heap(entered) = entry::enter() {
        sampler::publish_all(entered.slow);
    }
    stats.unbacked = publish::unbacked();
    stats.resident = None;
    stats.class_count = CLASSES;
    stats.page_bytes = ARENA_PAGE as u64;
    stats.period_bytes = settings::current().period().max(1);
    for (value, counter) in stats.tiers.iter_mut().zip(TierCounter::ALL) {
        *value = get(*counter);
    }
    for (index, class) in stats.classes[..CLASSES].iter_mut().enumerate() {
        *class = ClassStats::new(&class_record(index));
    }
    stats.heaps = publish::for_each_thread(|class, counters| stats.classes[class].add_thread(&counters));
}
