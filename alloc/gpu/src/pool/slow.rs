//! What the fast path leaves: blocks that no list of the thread's has, blocks that are recorded, and large ones.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::caches::Refill;
use super::core::Core;
use super::records::Record;
use super::shared::{Shared, lock};
use super::{Pool, PoolError, Step};
use crate::delays;
use crate::device::{Device, Stream};
use crate::large::NO_ADDRESSES;
use crate::small::{
    Counters, CurrentCache, FittedState, LARGEST, Mark, PAGE, Page, ThreadCache, class_of, size_of, with_cache,
};
use crate::streams::LaneId;
use crate::watch::Sample;
use crate::watch::hooks::{self, Event, Moment, Quiet};
use crate::watch::sampling::{Charged, Drawn, LARGE, Place};

/// How a small request was served.
enum Served {
    /// As usual.
    Block(Result<u64, PoolError>),
    /// Not from slabs: the block, if free memory had it; and the class and lane that it would have had.
    AsLarge(Option<u64>, usize, LaneId),
    /// Not yet: it is a sample of this class and lane, of which several lie on a page.
    Sample(usize, LaneId, Drawn),
}

impl<D: Device> Pool<D> {
    #[cold]
    pub(super) fn allocate_slowly(&self, size: u64, stream: Stream, place: Place) -> Result<u64, PoolError> {
        delays::forget();
        let block = match if self.shared.read.is_hooked() { Quiet::begin() } else { None } {
            Some(quiet) => self.allocate_seen(size, stream, place, quiet),
            None => self.allocate_unseen(size, stream, place),
        };
        self.shared.delays.end_call();
        block
    }

    /// An allocation with its hooks.
    fn allocate_seen(&self, size: u64, stream: Stream, place: Place, _quiet: Quiet) -> Result<u64, PoolError> {
        let (device, kind) = self.shown_as();
        let event = Event { moment: Moment::BeforeAlloc, device, kind, address: 0, size, stream };
        hooks::call(&event);
        let block = self.allocate_unseen(size, stream, place);
        let address = *block.as_ref().unwrap_or(&0);
        hooks::call(&Event { moment: Moment::AfterAlloc, address, ..event });
        block
    }

    fn allocate_unseen(&self, size: u64, stream: Stream, place: Place) -> Result<u64, PoolError> {
        let small = if size <= LARGEST { self.allocate_small(size, stream, place) } else { None };
        match small.unwrap_or_else(|| self.allocate_large(size, stream, place)) {
            Err(error) => self.fall_back(size, stream, error),
            Ok(address) => {
                if self.shared.read.is_told() {
                    self.shared.recorder.told_allocated(address, size, stream);
                }
                Ok(address)
            }
        }
    }

    /// A block of pinned host memory, if the settings want one where there is no other memory.
    pub(super) fn fall_back(&self, size: u64, stream: Stream, error: PoolError) -> Result<u64, PoolError> {
        let PoolError::OutOfMemory(mut picture) = error else { return Err(error) };
        if self.shared.falls_back.load(Ordering::Relaxed)
            && let Ok(pinned) = self.pinned_memory()
        {
            picture.tried.push(Step::PinnedHost);
            let block = pinned.allocate(size, stream);
            let mut core = self.core();
            Step::PinnedHost.count(&mut core.large.counted, block.is_ok());
            if let Ok(block) = block {
                core.large.counted.ladder_refused -= 1;
                return Ok(block);
            }
        }
        picture.by_stack = self.shared.recorder.holders(picture.used, 5);
        Err(PoolError::OutOfMemory(picture))
    }

    /// A block of a size class. `None` if the stream's small blocks don't come from slabs.
    pub(super) fn allocate_small(&self, size: u64, stream: Stream, place: Place) -> Option<Result<u64, PoolError>> {
        let shared = &*self.shared;
        let allocate = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread; the reference ends with this closure, and nobody gets one beside it.
            let stream_cache = unsafe { cache.stream_cache() };
            if let Err(error) = shared.resolve(cache, stream_cache, stream) {
                return Some((Served::Block(Err(error)), None));
            }
            let lane = stream_cache.last.1?;
            let class = class_of(size.max(stream_cache.limits.alignment));
            let bytes = size_of(class);
            let drawn = stream_cache.budgets.decide(class, bytes, place, (&*shared.recorder, &shared.lives));
            cache.counters.set_period(stream_cache.budgets.in_force());
            // Only blocks that share pages with others need slabs of their own.
            if let Some(drawn) = drawn.filter(|_| bytes < PAGE) {
                // SAFETY: as above; the version was seen just now.
                let Some(address) = (unsafe { cache.lists() }).take_recorded(lane, class) else {
                    return Some((Served::Sample(class, lane, drawn), None));
                };
                if stream_cache.limits.count {
                    Counters::add(&cache.counters.allocations[class]);
                }
                return Some((Served::Block(Ok(address)), Some(drawn)));
            }
            let served = match shared.refill(cache, stream_cache, lane, class, size) {
                Ok(Refill::Block(address)) => Served::Block(Ok(address)),
                Ok(Refill::AsLarge(address)) => Served::AsLarge(address, class, lane),
                Err(error) => Served::Block(Err(error)),
            };
            Some((served, drawn))
        };
        let (served, drawn) = with_cache(shared.read.id, || shared.new_cache(), allocate)??;
        let block = match served {
            Served::Block(result) => result.inspect(|address| shared.read.pages.give(*address)),
            Served::AsLarge(Some(address), ..) => Ok(address),
            Served::AsLarge(None, class, lane) => self.allocate_medium(size, class, lane, stream),
            Served::Sample(class, lane, drawn) => self.allocate_sample(size, class, lane, stream, drawn),
        };
        if let (Ok(address), Some(drawn)) = (&block, drawn) {
            shared.record(*address, size, drawn, Instant::now());
        }
        Some(block)
    }

    /// A block of a class of which several lie on a page, from a slab of recorded ones.
    pub(super) fn allocate_sample(
        &self,
        size: u64,
        class: usize,
        lane: LaneId,
        stream: Stream,
        drawn: Drawn,
    ) -> Result<u64, PoolError> {
        let (mut began, mut more) = (Instant::now(), Vec::new());
        let mut address = self.core().take_sampled(class, lane, stream, false, &mut more)?;
        if address.is_none() {
            let take = |core: &mut Core<D>| core.take_sampled(class, lane, stream, true, &mut more);
            address = self.shared.take_or_climb(size_of(class), stream, || self.shared.reclaim_own(), take)?;
            // That was no sample's fault.
            began = Instant::now();
        }
        let address = address.ok_or(PoolError::NotABlock(0))?;
        self.keep_for_samples(more, class, lane, stream);
        self.shared.read.pages.give(address);
        self.shared.record(address, size, drawn, began);
        Ok(address)
    }

    /// Keeps blocks of slabs of recorded ones for the thread's next samples.
    fn keep_for_samples(&self, mut blocks: Vec<u64>, class: usize, lane: LaneId, stream: Stream) {
        let shared = &*self.shared;
        if let Some(cache) = CurrentCache::of(shared.read.id) {
            // SAFETY: this is the owning thread, which has no other reference.
            let stream_cache = unsafe { cache.stream_cache() };
            if shared.knows(stream_cache, stream) {
                // SAFETY: as above; the version was seen just now.
                let lists = unsafe { cache.lists() };
                blocks.retain(|address| !lists.keep_recorded(lane, class, *address, &stream_cache.limits));
            }
        }
        if !blocks.is_empty() {
            self.core().slabs.put_all(blocks);
        }
    }

    /// A medium block that is placed as large ones are; where there is no memory, what is left of a chunk serves.
    fn allocate_medium(&self, size: u64, class: usize, lane: LaneId, stream: Stream) -> Result<u64, PoolError> {
        let take = |core: &mut Core<D>| {
            core.grow_fitted(size, lane, stream).or_else(|error| {
                let block = core.take_sampled(class, lane, stream, false, &mut Vec::new())?.ok_or(error)?;
                self.shared.read.pages.give(block);
                Ok(block)
            })
        };
        self.shared.release_own_kept();
        self.shared.collect_kept_for(size);
        let flushes = self.core().is_cache_flush_due();
        if flushes {
            self.shared.reclaim_own();
        }
        self.shared.take_or_climb(size, stream, || self.shared.reclaim_own(), take)
    }

    pub(super) fn allocate_large(&self, size: u64, stream: Stream, place: Place) -> Result<u64, PoolError> {
        let drawn = self.shared.is_large_sample(size.clamp(1, 1 << 62), place);
        let address = self.allocate_unrecorded(size, stream)?;
        if let Some(drawn) = drawn {
            self.shared.record(address, size, drawn, Instant::now());
        }
        Ok(address)
    }

    pub(super) fn allocate_unrecorded(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        if self.shared.keeps_some() {
            if let Ok(Some(hot)) = self.core().fit_hot(size, stream) {
                return Ok(hot);
            }
            self.shared.release_own_kept();
        }
        let fit = self.core().fit_large(size, stream);
        let grow = |core: &mut Core<D>| core.grow_large(size, stream);
        let refused = match fit {
            Ok(Some(address)) => return Ok(address),
            Ok(None) if size > self.core().most() => Err(NO_ADDRESSES.into()),
            Ok(None) => {
                self.shared.collect_kept_for(size);
                if self.core().holds_much_for_small() {
                    self.shared.reclaim_own();
                }
                return self.shared.take_or_climb(size, stream, || self.shared.reclaim_own(), grow);
            }
            Err(error) => Err(error),
        };
        self.shared.climb(refused, size, stream, || self.shared.reclaim_own(), grow)
    }

    #[cold]
    pub(super) fn free_slowly(
        &self,
        address: u64,
        page: Page,
        mark: Option<Mark<'_>>,
        stream: Stream,
    ) -> Result<(), PoolError> {
        delays::forget();
        let freed = match if self.shared.read.is_hooked() { Quiet::begin() } else { None } {
            Some(quiet) => self.free_seen(address, stream, quiet),
            None => self.free_unseen(address, page, mark, stream),
        };
        self.shared.delays.end_call();
        freed
    }

    /// A free with its hooks. What is no block is no free.
    fn free_seen(&self, address: u64, stream: Stream, _quiet: Quiet) -> Result<(), PoolError> {
        let size = self.size_of(address).ok_or_else(|| self.core().no_block(address))?;
        let (device, kind) = self.shown_as();
        let event = Event { moment: Moment::BeforeFree, device, kind, address, size, stream };
        hooks::call(&event);
        // Looked up only now: a hook may do whatever it likes.
        let (page, mark) = self.shared.read.pages.find(address);
        self.free_unseen(address, page, mark, stream)?;
        hooks::call(&Event { moment: Moment::AfterFree, ..event });
        Ok(())
    }

    fn free_unseen(&self, address: u64, page: Page, mark: Option<Mark<'_>>, stream: Stream) -> Result<(), PoolError> {
        let shared = &*self.shared;
        if shared.read.is_hardened() {
            self.core().check_stream(address, stream)?;
        }
        let Some(class) = page.class() else {
            let fitted = if page.is_fitted() { shared.read.pages.fitted_state(address) } else { FittedState::None };
            if fitted == FittedState::Kept {
                return Err(self.core().no_block(address));
            }
            let may_be_sample = page.is_recorded() || !shared.read.pages.has(address);
            if may_be_sample {
                shared.forget(address, || match fitted {
                    FittedState::Given(bytes) => bytes,
                    _ => self.core().large.size_of(address).unwrap_or(0),
                });
            }
            // What is none of this pool's may be one of the fallback's, which tells of it itself.
            if shared.read.is_told() && self.core().large.size_of(address).is_some() {
                shared.recorder.told_freed(address, stream);
            }
            let is_kept = matches!(fitted, FittedState::Given(_)) && shared.keep_slowly(address, stream)?;
            let result = if is_kept { Ok(()) } else { self.core().free_large(address, stream) };
            return match shared.pinned.get() {
                Some(pinned) if matches!(result, Err(PoolError::NotABlock(_))) => pinned.free(address, stream),
                _ => result,
            };
        };
        // Before others can have it.
        let Some(mark) = mark.filter(|mark| mark.take_once()) else { return Err(self.core().no_block(address)) };
        if shared.read.is_told() {
            shared.recorder.told_freed(address, stream);
        }
        let freed = self.free_small(address, class, page, stream);
        if freed.is_err() {
            mark.give();
        }
        freed
    }

    /// Frees a block of a slab that was taken from the program.
    fn free_small(&self, address: u64, class: usize, mut page: Page, stream: Stream) -> Result<(), PoolError> {
        let shared = &*self.shared;
        if page.is_recorded() {
            shared.forget(address, || size_of(class));
            // One that has its page to itself is now as any other.
            page = shared.read.pages.get(address);
        }
        let free = |cache: &ThreadCache| {
            // SAFETY: as in `allocate_small`.
            let stream_cache = unsafe { cache.stream_cache() };
            shared.resolve(cache, stream_cache, stream)?;
            let Some(lane) = stream_cache.last.1.filter(|lane| page.with_recorded(false).is_of(*lane)) else {
                return Ok(false);
            };
            if page.is_recorded() {
                // SAFETY: the version was seen just now.
                let lists = unsafe { cache.lists() };
                let kept = size_of(class) < PAGE && lists.keep_recorded(lane, class, address, &stream_cache.limits);
                if kept && stream_cache.limits.count {
                    Counters::add(&cache.counters.frees[class]);
                }
                return Ok(kept);
            }
            // SAFETY: the version was seen just now.
            let list = unsafe { cache.lists() }.get_or_new(lane, class, &stream_cache.limits);
            if list.is_full() {
                list.overflow(&stream_cache.limits, |moved| shared.flush(moved, lane, class));
            }
            list.blocks.push(address);
            if stream_cache.limits.count {
                Counters::add(&cache.counters.frees[class]);
            }
            Ok(true)
        };
        let in_cache = match shared.read.is_hardened() {
            true => None,
            false => with_cache(shared.read.id, || shared.new_cache(), free),
        };
        match in_cache {
            Some(Ok(true)) => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(false)) | None => self.core().free_small(address, stream),
        }
    }
}

impl<D: Device> Shared<D> {
    /// Whether a large block is a sample.
    fn is_large_sample(&self, bytes: u64, place: Place) -> Option<Drawn> {
        let decide = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread, which has no other reference.
            let budgets = &mut unsafe { cache.stream_cache() }.budgets;
            let drawn = budgets.decide(LARGE, bytes, place, (&*self.recorder, &self.lives));
            cache.counters.set_period(budgets.in_force());
            drawn
        };
        with_cache(self.read.id, || self.new_cache(), decide)?
    }

    /// Tells the recorder of a block that nobody has yet, and which has taken time since `began` because of that.
    fn record(&self, address: u64, size: u64, Drawn { weight, place }: Drawn, began: Instant) {
        let in_use = self.usage();
        if let Some(token) = self.recorder.allocated(&Sample { address, size, weight, in_use }) {
            let record = Record { token, count: self.lives.took(place) };
            lock(&self.records).add(&self.read.pages, address, size, record);
        }
        self.charge(Charged::Sample, began);
    }

    /// Tells the recorder of a block that is about to be freed, if it is recorded. `bytes` says how many it has.
    #[cold]
    fn forget(&self, address: u64, bytes: impl FnOnce() -> u64) {
        let began = Instant::now();
        let Some(Record { token, count }) = lock(&self.records).take(&self.read.pages, address) else { return };
        self.lives.freed(count);
        let (with, bytes) = (self.usage(), bytes());
        self.recorder.freed(token, address, [with, with.saturating_sub(bytes)]);
        self.charge(Charged::Free, began);
    }

    /// Bytes of blocks that the program has.
    fn usage(&self) -> u64 {
        self.in_use.bytes().unwrap_or_else(|| self.core().usage())
    }

    /// Has the thread's samples come the less often the longer they take.
    fn charge(&self, of: Charged, began: Instant) {
        if let Some(cache) = CurrentCache::of(self.read.id) {
            // SAFETY: this is the owning thread, which has no other reference.
            let budgets = &mut unsafe { cache.stream_cache() }.budgets;
            budgets.charge(of, began.elapsed().as_nanos() as u64);
        }
    }
}
