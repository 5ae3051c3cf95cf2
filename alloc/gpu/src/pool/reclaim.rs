//! Where there is no memory: the ladder, and what reaches the caches of other threads.

use std::sync::atomic::Ordering;

use super::core::Core;
use super::shared::{Shared, lock};
use super::{PoolError, Step};
use crate::delays;
use crate::device::{Device, Stream};
use crate::small::{CurrentCache, Drained, Lists, pass_by_all_threads};

impl<D: Device> Shared<D> {
    /// Serves a request that nothing had at hand: by `take`, or else after steps of the ladder; `own` empties the caches
    /// of the calling thread. This is what takes long.
    pub(super) fn take_or_climb<T>(
        &self,
        request: u64,
        stream: Stream,
        own: impl Fn(),
        mut take: impl FnMut(&mut Core<D>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        delays::work(
            || self.driver.device().now(),
            || {
                let first = take(&mut self.core());
                self.climb(first, request, stream, own, take)
            },
        )
    }

    /// Climbs the ladder for a request that found no memory, and tries again after each step.
    pub(super) fn climb<T>(
        &self,
        first: Result<T, PoolError>,
        request: u64,
        stream: Stream,
        own: impl Fn(),
        mut again: impl FnMut(&mut Core<D>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let mut result = first;
        let mut tried = Vec::new();
        for step in Step::ALL {
            let Err(error) = &result else { break };
            let Some(cause) = error.is_short_of_memory() else { return result };
            // What can never be had is refused at once, and costs nobody's cache.
            let step = if request > self.core().most() { Step::PinnedHost } else { step };
            if step == Step::Release && self.driver.device().properties().virtual_memory {
                continue;
            }
            match step {
                Step::OwnCaches => {
                    self.core().empty_quarantine();
                    own();
                }
                Step::AllCaches => self.reclaim_all(),
                Step::PendingFrees => self.core().wait_for_pending(),
                Step::Defragment => self.core().defragment_unless_capturing(),
                Step::Release => {
                    self.core().trim();
                }
                Step::PinnedHost => return Err(self.core().out_of_memory(request, stream, cause, tried)),
            }
            tried.push(step);
            let mut core = self.core();
            result = again(&mut core);
            step.count(&mut core.large.counted, result.is_ok());
        }
        result
    }

    /// Puts these blocks, which are out of the thread's own lists, and those of the global caches into the reserve, and
    /// hands back the slabs that are empty.
    pub(super) fn reclaim(&self, own: Drained) {
        let mut blocks = Vec::new();
        for global in &self.global {
            blocks.extend(lock(global).drain().flat_map(|(_, blocks)| blocks));
        }
        let mut core = self.core();
        core.put_back(own);
        core.slabs.put_all(blocks);
        core.return_slabs();
    }

    /// The same with all blocks of the calling thread's.
    pub(super) fn reclaim_own(&self) {
        if let Some(cache) = CurrentCache::of(self.read.id) {
            let mut core = self.core();
            // SAFETY: this is the owning thread; where the version is not the pool's any more, another thread may have
            // the lists, but not while the lock is held here.
            core.put_back(unsafe { cache.lists() }.drain());
            cache.counters.kept.store(0, Ordering::Relaxed);
        }
        self.reclaim(Drained::default());
    }

    /// The same with all blocks of all threads, and those in quarantine.
    /// One that is in a call keeps its blocks until its next call.
    pub(super) fn reclaim_all(&self) {
        let mut core = self.core();
        core.empty_quarantine();
        self.collect(&mut core);
        drop(core);
        self.reclaim(Drained::default());
    }

    /// Puts the blocks of all threads that are in no call into the reserve.
    pub(super) fn collect(&self, core: &mut Core<D>) {
        self.collect_by(core, Lists::drain);
    }

    /// Frees the fitted blocks that threads keep which are in no call.
    pub(super) fn collect_kept(&self, core: &mut Core<D>) {
        if core.kept() > 0 {
            self.collect_by(core, |lists| {
                let mut drained = Drained::default();
                lists.take_all_fitted(|lane, address| drained.fitted.push((lane, address)));
                drained
            });
        }
    }

    fn collect_by(&self, core: &mut Core<D>, take: impl Fn(&mut Lists) -> Drained) {
        self.new_version();
        if !pass_by_all_threads() {
            return;
        }
        for thread in self.in_use.threads().iter().filter(|thread| thread.is_at_rest()) {
            // SAFETY: the lock is held and the owner at rest; until it is let go, nobody else has the lists.
            core.put_back(take(unsafe { thread.lists() }));
            thread.counters.kept.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread keeps fitted blocks.
    pub(super) fn keeps_some(&self) -> bool {
        CurrentCache::of(self.read.id).is_some_and(|cache| cache.counters.kept.load(Ordering::Relaxed) > 0)
    }

    /// Frees the fitted blocks that the calling thread keeps, before it takes free memory.
    pub(super) fn release_own_kept(&self) {
        let keeps = |cache: &CurrentCache| cache.counters.kept.load(Ordering::Relaxed) > 0;
        let Some(cache) = CurrentCache::of(self.read.id).filter(keeps) else { return };
        let mut core = self.core();
        // SAFETY: as in `reclaim_own`.
        core.put_back_all_fitted(unsafe { cache.lists() });
        cache.counters.kept.store(0, Ordering::Relaxed);
    }

    /// Frees those of other threads, where they are so many that memory for so many bytes need not be put together.
    pub(super) fn collect_kept_for(&self, size: u64) {
        let mut core = self.core();
        if core.is_kept_worth_collecting(size) {
            self.collect_kept(&mut core);
        }
    }
}
