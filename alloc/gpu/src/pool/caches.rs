//! A thread's cache and the tiers behind it: what the thread knows of streams,
//! and how its lists are filled and emptied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PoolError;
use super::core::Core;
use super::shared::{Shared, lock, try_lock};
use crate::delays;
use crate::device::{Device, Stream};
use crate::large::align_up;
use crate::small::{
    Counters, Drained, FittedBlock, FittedMark, FittedState, Limits, PoolHandle, StreamCache, ThreadCache, class_of,
    is_medium, size_of, take_last, with_cache,
};
use crate::streams::LaneId;
use crate::watch::sampling::Counted;

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
        let cache = Arc::new(ThreadCache::new(self.read.id, self.own.clone()));
        self.in_use.begin_thread(cache.clone());
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
            let Drained { of_slabs, recorded, fitted } = lists.drain();
            let limits = core.limits();
            if std::mem::replace(&mut stream_cache.limits, limits) != limits {
                lists.begin_anew();
            }
            let (alive, gone): (Vec<_>, Vec<_>) =
                of_slabs.into_iter().partition(|(lane, ..)| core.large.lanes.is_alive(*lane));
            core.put_back(Drained { of_slabs: gone, recorded, fitted });
            cache.counters.kept.store(0, Ordering::Relaxed);
            for (lane, class, blocks) in alive {
                lists.get_or_new(lane, class, &stream_cache.limits).blocks = blocks;
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
        if let Some(address) = list.take() {
            if stream_cache.limits.count {
                Counters::add(&cache.counters.allocations[class]);
            }
            return Ok(Refill::Block(address));
        }
        if is_medium(class) {
            // SAFETY: as above; `list` is not used again.
            if let Some(address) = unsafe { self.take_kept(cache, lane, size, &stream_cache.limits) } {
                return Ok(Refill::AsLarge(Some(address)));
            }
            if self.read.most_kept.load(Ordering::Relaxed) > 0 && !self.crowd.is_there() {
                let mut core = self.core();
                // SAFETY: as above.
                core.put_back_all_fitted(unsafe { cache.lists() });
                cache.counters.kept.store(0, Ordering::Relaxed);
                let fits = core.fits_medium();
                self.read.most_kept.store(if fits { core.most_kept() } else { 0 }, Ordering::Relaxed);
                if fits && core.has_medium_slabs(class) {
                    let mut block = Vec::new();
                    if core.take_from_reserve(class, lane, 1, &mut block) == 0 {
                        return core.fit_fitted(size, lane, stream).map(Refill::AsLarge);
                    }
                    if stream_cache.limits.count {
                        Counters::add(&cache.counters.allocations[class]);
                    }
                    return block.pop().map(Refill::Block).ok_or(PoolError::NotABlock(0));
                }
            }
        }
        // SAFETY: as above.
        let list = unsafe { cache.lists() }.get_or_new(lane, class, &stream_cache.limits);
        let crowded = self.crowd.is_there();
        let batch = list.ran_out(&stream_cache.limits, crowded);
        let mut blocks = Vec::new();
        if let Some(global) = lock(&self.global[class]).get_mut(&lane) {
            blocks = take_last(global, batch);
        }
        let mut core = self.core();
        core.large.counted.global_hits += u64::from(!blocks.is_empty());
        let is_there = !blocks.is_empty() || core.take_from_reserve(class, lane, batch, &mut blocks) > 0;
        if !is_there && is_medium(class) && core.has_medium_slabs(class) && core.fits_medium() {
            self.read.most_kept.store(core.most_kept(), Ordering::Relaxed);
            return core.fit_fitted(size, lane, stream).map(Refill::AsLarge);
        }
        let found = is_there || core.take_from_new_slab(class, lane, stream, false, batch, &mut blocks)? > 0;
        // Those that wait for each other would only come for their blocks again.
        let flushes = !found && !crowded && core.is_cache_flush_due();
        drop(core);
        if !found {
            let own = || {
                // SAFETY: as above; `list` is not used again.
                self.reclaim(unsafe { cache.lists() }.drain());
                cache.counters.kept.store(0, Ordering::Relaxed);
            };
            if flushes {
                own();
            }
            let take = |core: &mut Core<D>| core.take_from_new_slab(class, lane, stream, true, batch, &mut blocks);
            self.take_or_climb(size_of(class), stream, own, take)?;
        }
        // SAFETY: as above.
        let list = unsafe { cache.lists() }.get_or_new(lane, class, &stream_cache.limits);
        list.blocks.append(&mut blocks);
        let address = list.take().ok_or(PoolError::NotABlock(0))?;
        if stream_cache.limits.count {
            Counters::add(&cache.counters.allocations[class]);
        }
        Ok(Refill::Block(address))
    }

    /// A medium block that is placed as large ones are, of the stream that the thread used last: one that the thread
    /// keeps, or one in exchange for those. It is no sample, and is counted.
    ///
    /// # Safety
    /// The caller is the owning thread, which has no other reference from the cache; the version was seen before.
    #[inline(never)]
    pub(super) unsafe fn pop_fitted(&self, cache: &ThreadCache, size: u64, counted: Counted) -> Option<u64> {
        // SAFETY: the caller's.
        let stream_cache = unsafe { cache.stream_cache() };
        let (stream, lane) = (stream_cache.last.0, stream_cache.last.1?);
        let class = class_of(size.max(stream_cache.limits.alignment));
        // SAFETY: as above.
        let kept = unsafe { self.take_kept(cache, lane, size, &stream_cache.limits) };
        // SAFETY: as above.
        let address = kept.or_else(|| unsafe { self.exchange(cache, (lane, stream), class, size) })?;
        stream_cache.budgets.count(counted, class, size_of(class));
        Some(address)
    }

    /// Takes a fitted block for so many bytes out of those that a thread keeps, for the program.
    ///
    /// # Safety
    /// The caller may touch the cache's lists ([`ThreadCache::lists`]).
    #[inline(never)]
    pub(super) unsafe fn take_kept(
        &self,
        cache: &ThreadCache,
        lane: LaneId,
        size: u64,
        limits: &Limits,
    ) -> Option<u64> {
        // SAFETY: the caller's.
        let lists = unsafe { cache.lists() };
        let block = lists.take_fitted(lane, align_up(size, limits.alignment))?;
        cache.counters.kept.store(lists.fitted_bytes(), Ordering::Relaxed);
        if limits.count {
            cache.counters.fitted_allocated(block.bytes);
        }
        self.read.pages.fitted(block.address).into_iter().for_each(|mark| mark.give(block.bytes));
        Some(block.address)
    }

    /// Takes a medium block in exchange for those that a thread keeps, for the program, if the lock is free.
    ///
    /// # Safety
    /// The caller may touch the cache's lists.
    #[inline(never)]
    pub(super) unsafe fn exchange(
        &self,
        cache: &ThreadCache,
        (lane, stream): (LaneId, Stream),
        class: usize,
        size: u64,
    ) -> Option<u64> {
        if self.read.most_kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let Some(mut core) = try_lock(&self.core) else {
            self.crowd.finds_taken();
            return None;
        };
        // Streams may be asked how far they are.
        delays::forget();
        // SAFETY: the caller's.
        let address = core.exchange_fitted(size, class, (lane, stream), unsafe { cache.lists() });
        // SAFETY: as above.
        cache.counters.kept.store(unsafe { cache.lists() }.fitted_bytes(), Ordering::Relaxed);
        self.read.most_kept.store(core.most_kept(), Ordering::Relaxed);
        drop(core);
        self.delays.end_call();
        address
    }

    /// Keeps a fitted block that the program frees. Returns whether there was room.
    ///
    /// # Safety
    /// As above.
    #[inline]
    pub(super) unsafe fn keep(
        &self,
        cache: &ThreadCache,
        lane: LaneId,
        address: u64,
        bytes: u64,
        mark: FittedMark<'_>,
        count: bool,
    ) -> bool {
        // SAFETY: the caller's.
        let lists = unsafe { cache.lists() };
        if !lists.keep_fitted(lane, FittedBlock { address, bytes }, self.read.most_kept.load(Ordering::Relaxed)) {
            return false;
        }
        mark.keep(bytes);
        cache.counters.kept.store(lists.fitted_bytes(), Ordering::Relaxed);
        if count {
            cache.counters.fitted_freed(bytes);
        }
        true
    }

    /// The same of one that is freed the slow way: those that have been kept for the longest make room.
    pub(super) fn keep_slowly(&self, address: u64, stream: Stream) -> Result<bool, PoolError> {
        let keep = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread, which has no other reference.
            let stream_cache = unsafe { cache.stream_cache() };
            self.resolve(cache, stream_cache, stream)?;
            let Some(lane) = stream_cache.last.1 else { return Ok(false) };
            let page = self.read.pages.get(address);
            let Some(mark) = self.read.pages.fitted(address).filter(|_| page.is_fitted() && page.is_of(lane)) else {
                return Ok(false);
            };
            let FittedState::Given(bytes) = mark.state() else { return Ok(false) };
            let limits = stream_cache.limits;
            // SAFETY: the version was seen just now.
            if unsafe { self.keep(cache, lane, address, bytes, mark, limits.count) } {
                return Ok(true);
            }
            // SAFETY: as above.
            let lists = unsafe { cache.lists() };
            let mut core = self.core();
            lists.make_room_for_fitted(lane, &limits, |lane, address| core.put_back_fitted(lane, address));
            drop(core);
            cache.counters.kept.store(lists.fitted_bytes(), Ordering::Relaxed);
            // SAFETY: as above; `lists` is not used again.
            Ok(unsafe { self.keep(cache, lane, address, bytes, mark, limits.count) })
        };
        with_cache(self.read.id, || self.new_cache(), keep).unwrap_or(Ok(false))
    }

    /// Moves blocks of a list that is too long to the global cache, and what is too much there to the reserve.
    pub(super) fn flush(&self, moved: impl Iterator<Item = u64>, lane: LaneId, class: usize) {
        let mut global = lock(&self.global[class]);
        let blocks = global.entry(lane).or_default();
        blocks.extend(moved);
        let too_many = blocks.len().saturating_sub(self.global_limit.load(Ordering::Relaxed));
        let excess = take_last(blocks, too_many);
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
        core.put_back(unsafe { cache.lists() }.drain());
        cache.counters.kept.store(0, Ordering::Relaxed);
        self.in_use.end_thread(cache);
    }
}
