//! What the pool says of itself: counters, statistics, pictures, and the whole picture where there is no memory.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::Core;
use crate::device::{Device, DeviceError, Stream};
use crate::error::{Holding, OutOfMemory, PoolError};
use crate::ladder::{LadderCounts, Step};
use crate::small::{CLASSES, Counters, size_of};
use crate::stats::Stats;

/// Small blocks that were allocated and freed, by class.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallCounts {
    pub allocations: [u64; CLASSES],
    pub frees: [u64; CLASSES],
}

impl SmallCounts {
    pub fn add(&mut self, counters: &Counters) {
        for class in 0..CLASSES {
            self.allocations[class] += counters.allocations[class].load(Ordering::Relaxed);
            self.frees[class] += counters.frees[class].load(Ordering::Relaxed);
        }
    }

    fn bytes(counts: &[u64; CLASSES]) -> u64 {
        counts.iter().enumerate().map(|(class, count)| count * size_of(class)).sum()
    }

    /// Bytes of the blocks that are allocated.
    pub(super) fn usage(&self) -> u64 {
        SmallCounts::bytes(&self.allocations).saturating_sub(SmallCounts::bytes(&self.frees))
    }
}

/// Counters since the last reset.
#[derive(Default)]
pub struct CoreCounters {
    pub(super) allocated: u64,
    pub(super) freed: u64,
    pub(super) allocations: u64,
    pub(super) frees: u64,
    pub(super) large_hits: u64,
    pub(super) misses: u64,
    pub(super) reserve_hits: u64,
    pub global_hits: u64,
    pub(super) peak: u64,
    pub ladder: LadderCounts,
    /// The small blocks' counts at the reset.
    pub(super) before: SmallCounts,
}

impl<D: Device> Core<D> {
    pub(super) fn publish(&mut self) {
        let stats = self.stats(self.large.driver_calls());
        self.publisher.publish(stats, &self.large);
    }

    /// Ends a visit of the slow path: shows the pool now and then.
    pub(super) fn visited(&mut self) {
        if self.publisher.is_due_after_visit() {
            self.publish();
        }
    }

    /// The error for a request for which nothing has helped.
    pub fn out_of_memory(&mut self, request: u64, stream: Stream, cause: DeviceError, tried: Vec<Step>) -> PoolError {
        self.counters.ladder.refused += 1;
        let large = &self.large;
        let lane_of = |lane| large.lanes.stream_of(lane).0;
        let (mut by_size, mut by_stream) = (BTreeMap::<u64, Holding>::new(), BTreeMap::<u64, Holding>::new());
        let small = self.slabs.held().map(|(class, lane, blocks)| (size_of(class), lane, blocks));
        for (size, lane, blocks) in large.blocks().map(|(size, lane)| (size, lane, 1)).chain(small) {
            for (holdings, of) in [(&mut by_size, size.next_power_of_two()), (&mut by_stream, lane_of(lane))] {
                let holding = holdings.entry(of).or_insert(Holding { of, ..Holding::default() });
                holding.blocks += blocks;
                holding.bytes += size * blocks;
            }
        }
        let sorted = |holdings: BTreeMap<u64, Holding>| {
            let mut holdings: Vec<_> = holdings.into_values().collect();
            holdings.sort_by_key(|holding| std::cmp::Reverse(holding.bytes));
            holdings
        };
        let capturing = large.lanes.is_any_capturing();
        let device = if capturing { None } else { large.device_free() };
        PoolError::OutOfMemory(Box::new(OutOfMemory {
            request,
            stream,
            used: self.usage(),
            held: large.held(),
            limit: large.limit,
            free: large.free_bytes(),
            waiting: large.waiting(),
            largest_hole: large.largest_free(),
            whole_granules: large.whole_granules(),
            device_memory: device.map_or(0, |info| info.total),
            device_free: device.map_or(0, |info| info.free),
            capturing,
            by_size: sorted(by_size),
            by_stream: sorted(by_stream),
            by_stack: Vec::new(),
            tried,
            cause,
        }))
    }

    /// Bytes of blocks that the program has.
    pub(super) fn usage(&self) -> u64 {
        self.large_usage + self.small_usage()
    }

    /// The same of small blocks.
    pub(super) fn small_usage(&self) -> u64 {
        if self.uncounted { self.slabs.out() } else { self.small_counts().usage() }
    }

    pub(super) fn small_counts(&self) -> SmallCounts {
        let mut counts = self.ended;
        self.threads.iter().for_each(|thread| counts.add(&thread.counters));
        counts
    }

    pub fn reset_stats(&mut self) {
        let peak = self.large_usage + self.slabs.out();
        self.counters = CoreCounters { before: self.small_counts(), peak, ..CoreCounters::default() };
    }

    pub fn stats(&self, driver_calls: u64) -> Stats {
        let (counters, large, small) = (&self.counters, self.large.counters, self.small_counts());
        let since = |now: [u64; CLASSES], then: [u64; CLASSES]| std::array::from_fn(|at| now[at] - then[at]);
        let allocations: [u64; CLASSES] = since(small.allocations, counters.before.allocations);
        let frees: [u64; CLASSES] = since(small.frees, counters.before.frees);
        let allocation_count = counters.allocations + allocations.iter().sum::<u64>();
        let cache_hits = allocation_count.saturating_sub(counters.misses);
        let from_below = counters.global_hits + counters.reserve_hits + counters.large_hits;
        Stats {
            total_allocated: counters.allocated + SmallCounts::bytes(&allocations),
            total_freed: counters.freed + SmallCounts::bytes(&frees),
            current_usage: self.usage(),
            peak_usage: counters.peak,
            allocation_count,
            free_count: counters.frees + frees.iter().sum::<u64>(),
            cache_hits,
            thread_hits: cache_hits.saturating_sub(from_below),
            global_hits: counters.global_hits,
            reserve_hits: counters.reserve_hits,
            large_hits: counters.large_hits,
            cache_misses: counters.misses,
            fragmentation_bytes: self.large.fragmented(self.recent_request()),
            largest_hole: self.large.largest_free(),
            ladder_climbed: counters.ladder.of(Step::OwnCaches).tried,
            ladder_own_caches_served: counters.ladder.of(Step::OwnCaches).served,
            ladder_all_caches_tried: counters.ladder.of(Step::AllCaches).tried,
            ladder_all_caches_served: counters.ladder.of(Step::AllCaches).served,
            ladder_pending_frees_tried: counters.ladder.of(Step::PendingFrees).tried,
            ladder_pending_frees_served: counters.ladder.of(Step::PendingFrees).served,
            ladder_defragment_tried: counters.ladder.of(Step::Defragment).tried,
            ladder_defragment_served: counters.ladder.of(Step::Defragment).served,
            ladder_release_tried: counters.ladder.of(Step::Release).tried,
            ladder_release_served: counters.ladder.of(Step::Release).served,
            ladder_pinned_host_tried: counters.ladder.of(Step::PinnedHost).tried,
            ladder_pinned_host_served: counters.ladder.of(Step::PinnedHost).served,
            ladder_refused: counters.ladder.refused,
            held: self.large.held(),
            peak_held: self.large.peak_held(),
            free: self.large.free_bytes(),
            granules_remapped: large.granules_remapped,
            granules_created: large.granules_created,
            granules_released: large.granules_released,
            stitches_reused: large.stitches_reused,
            from_other_streams: large.from_other_streams,
            driver_calls,
        }
    }
}
