//! What a thread counts of the blocks that it allocates and frees by itself.

use std::sync::atomic::{AtomicU64, Ordering};

use super::classes::{CLASSES, size_of};

/// Fitted blocks that a thread has allocated and freed by itself.
#[derive(Debug, Default)]
pub struct FittedCounters {
    pub allocations: AtomicU64,
    pub allocated_bytes: AtomicU64,
    pub frees: AtomicU64,
    pub freed_bytes: AtomicU64,
}

/// What a thread has counted. It alone writes; all may read. On cache lines of its own, two by two as they are fetched.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    pub allocations: [AtomicU64; CLASSES],
    pub frees: [AtomicU64; CLASSES],
    /// Fitted blocks that were taken from those that the thread keeps, and freed to them: how many, and their bytes.
    pub fitted: FittedCounters,
    /// Bytes of the fitted blocks that it keeps. Who takes them from it writes here, too.
    pub kept: AtomicU64,
    /// Mean bytes between two of its samples: the period in force.
    period: AtomicU64,
}

impl Counters {
    /// Bytes of the small blocks that the thread has allocated and not freed, modulo all numbers: others may free them.
    pub fn usage(&self) -> u64 {
        let of_class = |class: usize| {
            let [allocated, freed] =
                [&self.allocations[class], &self.frees[class]].map(|it| it.load(Ordering::Relaxed));
            allocated.wrapping_sub(freed).wrapping_mul(size_of(class))
        };
        (0..CLASSES).map(of_class).fold(0, u64::wrapping_add)
    }

    /// Adds what another one has counted; only the owner may.
    pub fn take_over(&self, other: &Counters) {
        self.words().zip(other.words()).for_each(|(to, from)| Counters::add_up(to, from.load(Ordering::Relaxed)));
    }

    /// All that is counted.
    fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let FittedCounters { allocations, allocated_bytes, frees, freed_bytes } = &self.fitted;
        let fitted = [allocations, allocated_bytes, frees, freed_bytes];
        self.allocations.iter().chain(&self.frees).chain(fitted)
    }

    /// Notes the period in force; only the owner may.
    #[inline]
    pub fn set_period(&self, period: u64) {
        self.period.store(period, Ordering::Relaxed);
    }

    /// The period in force; 0 before the first block.
    pub fn period(&self) -> u64 {
        self.period.load(Ordering::Relaxed)
    }

    /// Adds one; only the owner may.
    #[inline]
    pub fn add(counter: &AtomicU64) {
        Counters::add_up(counter, 1);
    }

    /// Adds so many; only the owner may.
    #[inline]
    fn add_up(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
    }

    /// Counts a fitted block that the thread has given to the program; only the owner may.
    #[inline]
    pub fn fitted_allocated(&self, bytes: u64) {
        Counters::add(&self.fitted.allocations);
        Counters::add_up(&self.fitted.allocated_bytes, bytes);
    }

    /// Counts one that the program has freed; only the owner may.
    #[inline]
    pub fn fitted_freed(&self, bytes: u64) {
        Counters::add(&self.fitted.frees);
        Counters::add_up(&self.fitted.freed_bytes, bytes);
    }
}
