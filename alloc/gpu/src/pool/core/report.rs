//! What the pool says of itself: counters, statistics, pictures, and the whole picture where there is no memory.

use std::collections::BTreeMap;

use super::super::ladder::Step;
use super::super::{Holding, OutOfMemory, PoolError};
use super::Core;
use super::usage::SmallCounts;
use crate::delays::{self, Cause};
use crate::device::{Device, DeviceError, Stream};
use crate::small::{CLASSES, size_of};
use crate::watch::Stats;

impl<D: Device> Core<D> {
    pub(super) fn publish(&mut self) {
        let stats = self.stats(self.large.driver_calls());
        let Core { publisher, large, .. } = self;
        delays::work(|| large.now(), || publisher.publish(stats, large));
    }

    /// Ends a visit of the slow path: shows the pool now and then.
    pub(super) fn visited(&mut self) {
        if self.publisher.is_due_after_visit() {
            self.publish();
        }
    }

    /// The error for a request for which nothing has helped.
    pub fn out_of_memory(&mut self, request: u64, stream: Stream, cause: DeviceError, tried: Vec<Step>) -> PoolError {
        self.large.counted.ladder_refused += 1;
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
            limit: large.limit(),
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

    pub fn reset_stats(&mut self) {
        self.before = self.in_use.counts();
        self.delays.reset();
        let counted = &mut self.large.counted;
        // What the granules went through is of the whole time.
        *counted = Stats {
            granules_remapped: counted.granules_remapped,
            granules_created: counted.granules_created,
            granules_released: counted.granules_released,
            stitches_reused: counted.stitches_reused,
            from_other_streams: counted.from_other_streams,
            ..Stats::default()
        };
        self.reset_peaks();
    }

    pub fn reset_peaks(&mut self) {
        self.large.counted.peak_usage = self.in_use.large() + self.slabs.out();
        self.large.reset_peak_held();
    }

    pub fn stats(&self, driver_calls: u64) -> Stats {
        let (counted, small) = (&self.large.counted, self.in_use.counts());
        let since = |now: [u64; CLASSES], then: [u64; CLASSES]| std::array::from_fn(|at| now[at] - then[at]);
        let allocations: [u64; CLASSES] = since(small.allocations, self.before.allocations);
        let frees: [u64; CLASSES] = since(small.frees, self.before.frees);
        let (fitted, before) = (&small.fitted, &self.before.fitted);
        let allocation_count =
            counted.allocation_count + allocations.iter().sum::<u64>() + fitted.allocations - before.allocations;
        let cache_hits = allocation_count.saturating_sub(counted.cache_misses);
        let free_count = counted.free_count + frees.iter().sum::<u64>() + fitted.frees - before.frees;
        let delays = &*self.delays;
        // What is not counted was not held up either, as far as one can know.
        let calls = (allocation_count + free_count).max(delays.held_up());
        let from_below = counted.global_hits + counted.reserve_hits + counted.large_hits;
        Stats {
            total_allocated: counted.total_allocated + SmallCounts::bytes(&allocations) + fitted.allocated_bytes
                - before.allocated_bytes,
            total_freed: counted.total_freed + SmallCounts::bytes(&frees) + fitted.freed_bytes - before.freed_bytes,
            current_usage: self.usage(),
            allocation_count,
            free_count,
            cache_hits,
            thread_hits: cache_hits.saturating_sub(from_below),
            fragmentation_bytes: self.large.fragmented(self.recent_request()),
            held: self.large.held(),
            peak_held: self.large.peak_held(),
            free: self.large.free_bytes(),
            largest_hole: self.large.largest_free(),
            stream_waits: self.large.lanes.waits(),
            streams_held_up_ns: self.large.lanes.held_up(),
            driver_calls,
            sample_period: self.in_use.threads().iter().map(|thread| thread.counters.period()).max().unwrap_or(0),
            held_up: delays.held_up(),
            wait_p50_ns: delays.quantile(500, calls),
            wait_p99_ns: delays.quantile(990, calls),
            wait_p999_ns: delays.quantile(999, calls),
            wait_longest_ns: delays.longest(),
            waited_for_lock_ns: delays.by(Cause::Lock),
            waited_for_driver_ns: delays.by(Cause::Driver),
            waited_for_work_ns: delays.by(Cause::Work),
            ..counted.clone()
        }
    }
}
