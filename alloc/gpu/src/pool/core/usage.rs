//! What the program has. Small blocks are counted by the threads that allocate and free them, and added up when asked
//! for: with each sample, and without the pool's lock, which other threads wait for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

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
    fn add(&mut self, counters: &Counters) {
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
}

/// The blocks that the program has. Written with the pool's lock held, but for threads that begin.
///
/// Who reads it without the lock may find too little for a moment, as a block goes from one tier to the other, but not
/// too much: that would be a peak that never was.
pub struct InUse {
    /// Bytes of the blocks that the large blocks' tier has given out: to the program, and to threads that keep them.
    large: AtomicU64,
    /// The caches of all threads that use the pool. Each thread alone writes its counts.
    threads: RwLock<Vec<Arc<ThreadCache>>>,
    /// The counts of threads that have ended, and of blocks that passed by the caches.
    ended: Counters,
    /// Whether there was a time in which blocks were not counted: what small blocks take is then what is out of the
    /// slabs.
    uncounted: AtomicBool,
}

impl InUse {
    pub fn new(counted: bool) -> InUse {
        InUse {
            large: AtomicU64::new(0),
            threads: RwLock::default(),
            ended: Counters::default(),
            uncounted: AtomicBool::new(!counted),
        }
    }

    /// The caches of all threads.
    pub fn threads(&self) -> RwLockReadGuard<'_, Vec<Arc<ThreadCache>>> {
        self.threads.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads_to_change(&self) -> RwLockWriteGuard<'_, Vec<Arc<ThreadCache>>> {
        self.threads.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a thread that begins.
    pub fn begin_thread(&self, cache: Arc<ThreadCache>) {
        self.threads_to_change().push(cache);
    }

    /// Notes that a thread ends. Its counts stay.
    pub fn end_thread(&self, cache: &Arc<ThreadCache>) {
        let mut threads = self.threads_to_change();
        self.ended.take_over(&cache.counters);
        threads.retain(|thread| !Arc::ptr_eq(thread, cache));
    }

    /// Takes the caches of all threads, which are in no call any more.
    pub fn take_threads(&self) -> Vec<Arc<ThreadCache>> {
        std::mem::take(&mut self.threads_to_change())
    }

    pub(super) fn large(&self) -> u64 {
        self.large.load(Ordering::Relaxed)
    }

    /// The large blocks' tier has given out so many bytes.
    pub(super) fn add_large(&self, bytes: u64) {
        self.large.store(self.large() + bytes, Ordering::Relaxed);
    }

    /// It has them back.
    pub(super) fn take_large(&self, bytes: u64) {
        self.large.store(self.large() - bytes, Ordering::Relaxed);
    }

    /// Counts a small block that did not pass by a cache.
    pub(super) fn allocated_by_pass(&self, class: usize) {
        Counters::add(&self.ended.allocations[class]);
    }

    /// Counts the free of one.
    pub(super) fn freed_by_pass(&self, class: usize) {
        Counters::add(&self.ended.frees[class]);
    }

    /// From now on there is a time in which blocks are not counted.
    pub(super) fn stop_counting(&self) {
        self.uncounted.store(true, Ordering::Relaxed);
    }

    /// The counts of all threads that are or were.
    pub(super) fn counts(&self) -> SmallCounts {
        let (mut counts, threads) = (SmallCounts::default(), self.threads());
        counts.add(&self.ended);
        threads.iter().for_each(|thread| counts.add(&thread.counters));
        counts
    }

    /// Bytes of blocks that the program has. `None` where they are not counted.
    pub fn bytes(&self) -> Option<u64> {
        let threads = self.threads();
        let small = self.small(&threads)?;
        Some(self.large().saturating_sub(kept(&threads)) + small)
    }

    /// The same of small blocks.
    fn small(&self, threads: &[Arc<ThreadCache>]) -> Option<u64> {
        if self.uncounted.load(Ordering::Relaxed) {
            return None;
        }
        // Asked for with each sample: no table of counts is made.
        let usage = threads.iter().map(|thread| thread.counters.usage()).fold(self.ended.usage(), u64::wrapping_add);
        // A block may have been counted as freed already, and not yet as allocated.
        Some(if usage > i64::MAX as u64 { 0 } else { usage })
    }
}

fn kept(threads: &[Arc<ThreadCache>]) -> u64 {
    threads.iter().map(|thread| thread.counters.kept.load(Ordering::Relaxed)).sum()
}

impl<D: Device> Core<D> {
    /// Bytes of blocks that the program has.
    pub fn usage(&self) -> u64 {
        self.in_use.bytes().unwrap_or_else(|| self.in_use.large().saturating_sub(self.kept()) + self.slabs.out())
    }

    /// Bytes of the fitted blocks that threads keep.
    pub fn kept(&self) -> u64 {
        kept(&self.in_use.threads())
    }

    /// Bytes of small blocks that the program has.
    pub(super) fn small_usage(&self) -> u64 {
        self.in_use.small(&self.in_use.threads()).unwrap_or_else(|| self.slabs.out())
    }
}
