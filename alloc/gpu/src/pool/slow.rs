//! What the fast path leaves: blocks that no list of the thread's has, blocks that are recorded, and large ones.

use std::time::Instant;

use super::Pool;
use super::shared::{Shared, lock};
use crate::device::{Device, Stream};
use crate::error::PoolError;
use crate::ladder::Step;
use crate::large::NO_ADDRESSES;
use crate::pending::LaneId;
use crate::recorder::Sample;
use crate::sampling::LARGE;
use crate::small::{Counters, LARGEST, Page, ThreadCache, class_of, size_of, with_cache, with_current_cache};
use crate::state::Core;

/// How a small request was served.
enum Served {
    /// As usual.
    Block(Result<u64, PoolError>),
    /// Not yet: it is a sample of this class and lane, which stands for so much.
    Sample(usize, LaneId, u64),
}

impl<D: Device> Pool<D> {
    #[cold]
    pub(super) fn allocate_slowly(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let small = if size <= LARGEST { self.allocate_small(size, stream) } else { None };
        match small.unwrap_or_else(|| self.allocate_large(size, stream)) {
            Err(error) => self.fall_back(size, stream, error),
            block => block,
        }
    }

    /// A block of pinned host memory, if the settings want one where there is no other memory.
    pub(super) fn fall_back(&self, size: u64, stream: Stream, error: PoolError) -> Result<u64, PoolError> {
        let PoolError::OutOfMemory(mut picture) = error else { return Err(error) };
        if let Some(fallback) = &self.shared.fallback {
            picture.tried.push(Step::PinnedHost);
            let block = fallback.allocate(size, stream);
            let mut core = self.core();
            core.counters.ladder.count(Step::PinnedHost, block.is_ok());
            if let Ok(block) = block {
                core.counters.ladder.refused -= 1;
                return Ok(block);
            }
        }
        picture.by_stack = self.shared.recorder.holders(5);
        Err(PoolError::OutOfMemory(picture))
    }

    /// A block of a size class. `None` if the stream's small blocks don't come from slabs.
    pub(super) fn allocate_small(&self, size: u64, stream: Stream) -> Option<Result<u64, PoolError>> {
        let shared = &*self.shared;
        let allocate = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread; the reference ends with this closure, and nobody gets one beside it.
            let knowledge = unsafe { cache.knowledge() };
            if let Err(error) = shared.meet(cache, knowledge, stream) {
                return Some(Served::Block(Err(error)));
            }
            let lane = knowledge.last.1?;
            let class = class_of(size.max(knowledge.limits.alignment));
            let bytes = size_of(class);
            if knowledge.budgets.spend(class, bytes)
                && let Some(weight) = knowledge.budgets.sample(class, bytes, &*shared.recorder)
            {
                return Some(Served::Sample(class, lane, weight));
            }
            Some(Served::Block(shared.refill(cache, knowledge, lane, class)))
        };
        match with_cache(shared.read.id, || shared.new_cache(), allocate)?? {
            Served::Block(result) => Some(result),
            Served::Sample(class, lane, weight) => Some(self.allocate_sample(size, class, lane, stream, weight)),
        }
    }

    /// A block of a class that is recorded.
    pub(super) fn allocate_sample(
        &self,
        size: u64,
        class: usize,
        lane: LaneId,
        stream: Stream,
        weight: u64,
    ) -> Result<u64, PoolError> {
        let mut address = self.core().take_sampled(class, lane, stream, false)?;
        if address.is_none() {
            let take = |core: &mut Core<D>| core.take_sampled(class, lane, stream, true);
            let first = take(&mut self.core());
            address = self.shared.climb(first, size_of(class), stream, || self.shared.reclaim_own(), take)?;
        }
        let address = address.ok_or(PoolError::NotABlock(0))?;
        self.shared.record(address, size, weight);
        Ok(address)
    }

    pub(super) fn allocate_large(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let weight = self.shared.is_large_sample(size.clamp(1, 1 << 62));
        let address = self.allocate_unrecorded(size, stream)?;
        if let Some(weight) = weight {
            self.shared.record(address, size, weight);
        }
        Ok(address)
    }

    pub(super) fn allocate_unrecorded(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let fit = self.core().fit_large(size, stream);
        let grow = |core: &mut Core<D>| core.grow_large(size, stream);
        let first = match fit {
            Ok(Some(address)) => return Ok(address),
            Ok(None) if size > self.core().most() => Err(NO_ADDRESSES.into()),
            Ok(None) => {
                if self.core().hoards() {
                    self.shared.reclaim_own();
                }
                grow(&mut self.core())
            }
            Err(error) => Err(error),
        };
        self.shared.climb(first, size, stream, || self.shared.reclaim_own(), grow)
    }

    #[cold]
    pub(super) fn free_slowly(&self, address: u64, page: Page, stream: Stream) -> Result<(), PoolError> {
        let shared = &*self.shared;
        if page.is_recorded() || !shared.read.pages.has(address) {
            shared.forget(address);
        }
        let Some(class) = page.class() else {
            let result = self.core().free_large(address, stream);
            return match &shared.fallback {
                Some(fallback) if matches!(result, Err(PoolError::NotABlock(_))) => fallback.free(address, stream),
                _ => result,
            };
        };
        let free = |cache: &ThreadCache| {
            // SAFETY: as in `allocate_small`.
            let knowledge = unsafe { cache.knowledge() };
            shared.meet(cache, knowledge, stream)?;
            let Some(lane) = knowledge.last.1.filter(|lane| page.has_block(*lane, class, address)) else {
                return Ok(false);
            };
            // SAFETY: the version was seen just now.
            let list = unsafe { cache.lists() }.get_or_new(lane, class, &knowledge.limits);
            if list.is_full() {
                shared.flush(list.overflow(&knowledge.limits), lane, class);
            }
            list.blocks.push(address);
            if knowledge.limits.count {
                Counters::add(&cache.counters.frees[class]);
            }
            Ok(true)
        };
        match with_cache(shared.read.id, || shared.new_cache(), free) {
            Some(Ok(true)) => Ok(()),
            Some(Err(error)) => Err(error),
            Some(Ok(false)) | None => self.core().free_small(address, stream),
        }
    }
}

impl<D: Device> Shared<D> {
    /// Whether a large block is a sample: what it stands for.
    fn is_large_sample(&self, bytes: u64) -> Option<u64> {
        let spend = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread, which has no other reference.
            let budgets = &mut unsafe { cache.knowledge() }.budgets;
            if budgets.spend(LARGE, bytes) { budgets.sample(LARGE, bytes, &*self.recorder) } else { None }
        };
        with_cache(self.read.id, || self.new_cache(), spend)?
    }

    /// Tells the recorder of a block that nobody has yet.
    fn record(&self, address: u64, size: u64, weight: u64) {
        let began = Instant::now();
        if let Some(token) = self.recorder.allocated(&Sample { address, size, weight }) {
            lock(&self.records).add(&self.read.pages, address, token);
        }
        let charge = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread, which has no other reference.
            let budgets = &mut unsafe { cache.knowledge() }.budgets;
            budgets.charge(began.elapsed().as_nanos() as u64);
        };
        with_current_cache(self.read.id, charge);
    }

    /// Tells the recorder of a block that is about to be freed, if it is recorded.
    #[cold]
    fn forget(&self, address: u64) {
        let token = lock(&self.records).take(&self.read.pages, address);
        if let Some(token) = token {
            self.recorder.freed(token, address);
        }
    }
}
