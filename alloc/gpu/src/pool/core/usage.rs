//! What the program has. Small blocks are counted by the threads that allocate and free them, and added up when asked
//! for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Core;
use crate::device::Device;
use crate::small::{CLASSES, Counters, ThreadCache, size_of};

/// Small blocks that were allocated and freed, by class.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallCounts {
    pub allocations: [u64; CLASSES],
    pub frees: [u64; CLASSES],
    /// Fitted blocks that threads have given out and taken back by themselves.
    pub fitted: FittedCounts,
}

/// Blocks and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FittedCounts {
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub frees: u64,
    pub freed_bytes: u64,
}

impl SmallCounts {
    pub fn add(&mut self, counters: &Counters) {
        for class in 0..CLASSES {
            self.allocations[class] += counters.allocations[class].load(Ordering::Relaxed);
            self.frees[class] += counters.frees[class].load(Ordering::Relaxed);
        }
        let (counts, fitted) = (&mut self.fitted, &counters.fitted);
        counts.allocations += fitted.allocations.load(Ordering::Relaxed);
        counts.allocated_bytes += fitted.allocated_bytes.load(Ordering::Relaxed);
        counts.frees += fitted.frees.load(Ordering::Relaxed);
        counts.freed_bytes += fitted.freed_bytes.load(Ordering::Relaxed);
    }

    pub(super) fn bytes(counts: &[u64; CLASSES]) -> u64 {
        counts.iter().enumerate().map(|(class, count)| count * size_of(class)).sum()
    }

    /// Bytes of the blocks that are allocated, less those that other counts have: modulo all numbers.
    fn usage(&self) -> u64 {
        SmallCounts::bytes(&self.allocations).wrapping_sub(SmallCounts::bytes(&self.frees))
    }
}

/// The small blocks that the program has.
pub struct SmallUse {
    /// The caches of all threads that use the pool. Each thread alone writes its counts.
    pub threads: Vec<Arc<ThreadCache>>,
    /// The counts of threads that have ended, and of blocks that passed by the caches.
    pub ended: SmallCounts,
    /// All counts when the counters were last reset.
    pub(super) before: SmallCounts,
    /// Whether there was a time in which blocks were not counted: what small blocks take is then what is out of the
    /// slabs.
    pub(super) uncounted: bool,
}

impl SmallUse {
    pub(super) fn new(counted: bool) -> SmallUse {
        let none = SmallCounts::default();
        SmallUse { threads: Vec::new(), ended: none, before: none, uncounted: !counted }
    }

    /// The counts of all threads that are or were.
    pub(super) fn counts(&self) -> SmallCounts {
        let mut counts = self.ended;
        self.threads.iter().for_each(|thread| counts.add(&thread.counters));
        counts
    }
}

impl<D: Device> Core<D> {
    /// Bytes of blocks that the program has.
    pub fn usage(&self) -> u64 {
        self.large_usage.saturating_sub(self.kept()) + self.small_usage()
    }

    /// Bytes of the fitted blocks that threads keep.
    pub fn kept(&self) -> u64 {
        self.small.threads.iter().map(|thread| thread.counters.kept.load(Ordering::Relaxed)).sum()
    }

    /// The same of small blocks.
    pub(super) fn small_usage(&self) -> u64 {
        if self.small.uncounted {
            return self.slabs.out();
        }
        // Asked for with each sample: no table of counts is made.
        let threads = self.small.threads.iter().map(|thread| thread.counters.usage());
        let usage = threads.fold(self.small.ended.usage(), u64::wrapping_add);
        // A block may have been counted as freed already, and not yet as allocated.
        if usage > i64::MAX as u64 { 0 } else { usage }
    }
}
