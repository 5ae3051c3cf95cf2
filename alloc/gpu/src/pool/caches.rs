//! A thread's cache and the tiers behind it: what the thread knows of streams,
//! and how its lists are filled and emptied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PoolError;
use super::core::Core;
use super::shared::{Shared, lock};
use crate::device::{Device, Stream};
use crate::small::{Counters, PoolHandle, StreamCache, ThreadCache, is_medium, size_of};
use crate::streams::LaneId;

/// What a thread gets whose list is empty.
pub(super) enum Refill {
    /// A block of the class.
    Block(u64),
    /// A medium block is placed as large ones are: one from free memory, if some fits.
    AsLarge(Option<u64>),
}

impl<D: Device> Shared<D> {
    #[cold]
    pub(super) fn new_cache(&self) -> Arc<ThreadCache> {
        let mut core = self.core();
        let cache = Arc::new(ThreadCache::new(self.read.id, self.own.clone(), core.limits()));
        core.small.threads.push(cache.clone());
        cache
    }

    /// Whether a stream is the one that the thread used last, and nothing has changed since.
    #[inline]
    pub(super) fn knows(&self, stream_cache: &StreamCache, stream: Stream) -> bool {
        // Relaxed: who may use a changed stream or setting has heard of it from the thread that changed it.
        stream_cache.version == self.read.version.load(Ordering::Relaxed) && stream_cache.last.0 == stream
    }

    /// Sees to it that the cache's last stream is this one, and that it knows the settings.
    pub(super) fn resolve(
        &self,
        cache: &ThreadCache,
        stream_cache: &mut StreamCache,
        stream: Stream,
    ) -> Result<(), PoolError> {
        if self.knows(stream_cache, stream) { Ok(()) } else { self.resolve_slow(cache, stream_cache, stream) }
    }

    pub(super) fn resolve_slow(
        &self,
        cache: &ThreadCache,
        stream_cache: &mut StreamCache,
        stream: Stream,
    ) -> Result<(), PoolError> {
        if stream_cache.version == self.read.resolved_version()
            && let Some(known) = stream_cache.known.iter().find(|(known, _)| *known == stream)
        {
            stream_cache.last = *known;
            return Ok(());
        }
        let mut core = self.core();
        let version = self.read.resolved_version();
        if stream_cache.version != version {
            stream_cache.known.clear();
            stream_cache.budgets.relax();
            cache.counters.set_period(stream_cache.budgets.in_force());
            // SAFETY: this is the owning thread, which has the lock.
            let lists = unsafe { cache.lists() };
            let blocks = lists.drain();
            let limits = core.limits();
            if std::mem::replace(&mut stream_cache.limits, limits) != limits {
                lists.begin_anew();
            }
            for (lane, class, blocks) in blocks {
                if core.large.lanes.is_alive(lane) {
                    lists.get_or_new(lane, class, &stream_cache.limits).blocks = blocks;
                } else {
                    blocks.iter().for_each(|address| {
                        core.slabs.put(*address);
                    });
                }
            }
            // What it knew of the last stream is gone, too; an error below must not leave it.
            stream_cache.last = (stream, None);
        }
        let met = (stream, core.small_lane(stream)?);
        stream_cache.version = version;
        stream_cache.known.push(met);
        stream_cache.last = met;
        Ok(())
    }

    /// Takes a block from a thread's list, filled by a batch if it is empty: one of the class, for a
    /// request of so many bytes.
    pub(super) fn refill(
        &self,
        cache: &ThreadCache,
        stream_cache: &mut StreamCache,
        lane: LaneId,
        class: usize,
        size: u64,
    ) -> Result<Refill, PoolError> {
        let stream = stream_cache.last.0;
        // SAFETY: this is the owning thread; the version was seen before.
        let list = unsafe { cache.lists() }.get_or_new(lane, class, &stream_cache.limits);
        if let Some(address) = list.blocks.pop() {
            if stream_cache.limits.count {
                Counters::add(&cache.counters.allocations[class]);
            }
            return Ok(Refill::Block(address));
        }
        let batch = list.ran_out(&stream_cache.limits);
        let mut blocks = Vec::new();
        if let Some(global) = lock(&self.global[class]).get_mut(&lane) {
            blocks = global.split_off(global.len().saturating_sub(batch));
        }
        let mut core = self.core();
        core.large.counted.global_hits += u64::from(!blocks.is_empty());
        let is_there = !blocks.is_empty() || core.take_from_reserve(class, lane, batch, &mut blocks) > 0;
        if !is_there && is_medium(class) && core.places_as_large(class, self.is_crowded()) {
            return core.fit_large(size, stream).map(Refill::AsLarge);
        }
        let found = is_there || core.take_from_new_slab(class, lane, stream, false, batch, &mut blocks)? > 0;
        let flushes = !found && core.is_cache_flush_due();
        drop(core);
        if !found {
            // SAFETY: as above; `list` is not used again.
            let own = || self.reclaim(unsafe { cache.lists() }.drain());
            if flushes {
                own();
            }
            let take = |core: &mut Core<D>| core.take_from_new_slab(class, lane, stream, true, batch, &mut blocks);
            self.take_or_climb(size_of(class), stream, own, take)?;
        }
        // SAFETY: as above.
        let list = unsafe { cache.lists() }.get_or_new(lane, class, &stream_cache.limits);
        list.blocks.append(&mut blocks);
        let address = list.blocks.pop().ok_or(PoolError::NotABlock(0))?;
        if stream_cache.limits.count {
            Counters::add(&cache.counters.allocations[class]);
        }
        Ok(Refill::Block(address))
    }

    /// Moves blocks of a list that is too long to the global cache, and what is too much there to the reserve.
    pub(super) fn flush(&self, moved: impl Iterator<Item = u64>, lane: LaneId, class: usize) {
        let mut global = lock(&self.global[class]);
        let blocks = global.entry(lane).or_default();
        blocks.extend(moved);
        let too_many = blocks.len().saturating_sub(self.global_limit.load(Ordering::Relaxed));
        let excess = blocks.split_off(blocks.len() - too_many);
        drop(global);
        if !excess.is_empty() {
            self.core().slabs.put_all(excess);
        }
    }
}

impl<D: Device> PoolHandle for Shared<D> {
    fn take_all(&self, cache: &Arc<ThreadCache>) {
        let mut core = self.core();
        // SAFETY: this is the owning thread, which has the lock.
        for (.., blocks) in unsafe { cache.lists() }.drain() {
            core.slabs.put_all(blocks);
        }
        core.small.ended.add(&cache.counters);
        core.small.threads.retain(|thread| !Arc::ptr_eq(thread, cache));
    }
}
