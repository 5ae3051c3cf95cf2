//! The pool: device memory in the order of streams.
//!
//! A block that is freed on a stream may be allocated on the same stream at once, since what the stream does with it comes
//! later. Other streams get it behind an event, or when the work is known to be over. The program's part is that of
//! `cudaFreeAsync`: what it does with a block comes, in the order of streams, after its allocation and before its free,
//! or it says [`Pool::record_stream`] of the streams that come to use it otherwise.
//!
//! **Graphs.** A program that captures a stream says so first ([`Pool::begin_capture`]): what is then allocated on the stream
//! is the graph's own until the graph is given up, and nothing is asked of the driver that would end the capture.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::device::{Call, Device, DeviceError, Fault, GRANULE, Stream};
use crate::driver::Driver;
use crate::error::PoolError;
use crate::large::{Large, PoolId, Request};
use crate::pending::LaneId;
use crate::stats::Stats;

const MS: u64 = 1_000_000;
const SECOND: u128 = 1_000_000_000;

/// The memory of a captured graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphPool(PoolId);

/// A pool of the memory of one device. It may be shared between threads.
pub struct Pool<D: Device> {
    driver: Arc<Driver<D>>,
    core: Mutex<Core<D>>,
}

struct Core<D: Device> {
    large: Large<D>,
    config: Config,
    lanes: HashMap<Stream, LaneId>,
    captures: HashMap<LaneId, PoolId>,
    next_pool: PoolId,
    counters: Counters,
    /// Calls that the background work may make now; below 0 after a round that took more.
    allowance: i64,
    last_round: u64,
}

#[derive(Default)]
struct Counters {
    allocated: u64,
    freed: u64,
    usage: u64,
    peak: u64,
    allocations: u64,
    frees: u64,
    misses: u64,
    largest_request: u64,
}

impl<D: Device> Pool<D> {
    /// A pool on a device.
    pub fn new(device: Arc<D>, config: Config) -> Result<Pool<D>, PoolError> {
        config.check()?;
        let driver = Arc::new(Driver::new(device));
        let large = Large::new(driver.clone())?;
        let core = Core {
            large,
            allowance: config.driver_calls_per_second as i64,
            config,
            lanes: HashMap::new(),
            captures: HashMap::new(),
            next_pool: 1,
            counters: Counters::default(),
            last_round: driver.device().now(),
        };
        Ok(Pool { driver, core: Mutex::new(core) })
    }

    fn core(&self) -> MutexGuard<'_, Core<D>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.driver.device()
    }

    /// A block of at least so many bytes, for work given to the stream from now on. It returns the block's address.
    pub fn allocate(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        self.core().allocate(size, stream)
    }

    /// Frees a block: work that was given to the stream before may still use it.
    pub fn free(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        self.core().free(address, stream)
    }

    /// Says that work on this stream uses the block, too: when it is freed, it waits for what the stream has to do then.
    pub fn record_stream(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let mut core = self.core();
        let lane = core.lane(stream)?;
        if core.large.share(address, lane) { Ok(()) } else { Err(PoolError::NotABlock(address)) }
    }

    /// Bytes that a block has.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        self.core().large.size_of(address)
    }

    /// Says that a stream is about to be destroyed. What was freed on it is handed to the other streams. On an error the
    /// stream must stay.
    pub fn stream_ends(&self, stream: Stream) -> Result<(), PoolError> {
        let mut core = self.core();
        let lane = core.lane(stream)?;
        core.large.lanes.retire(lane)?;
        core.lanes.retain(|_, known| *known != lane);
        Ok(())
    }

    /// Says that the stream's work is about to be captured. Blocks allocated on it until [`end_capture`](Self::end_capture)
    /// are the graph's.
    pub fn begin_capture(&self, stream: Stream) -> Result<GraphPool, PoolError> {
        let mut core = self.core();
        let lane = core.lane(stream)?;
        if core.captures.contains_key(&lane) {
            return Err(PoolError::Capture { stream, is: "is being captured already" });
        }
        let pool = core.next_pool;
        core.next_pool += 1;
        core.captures.insert(lane, pool);
        core.large.lanes.set_capturing(lane, true);
        Ok(GraphPool(pool))
    }

    /// Says that the capture is over. The graph's memory stays its own.
    pub fn end_capture(&self, stream: Stream) -> Result<(), PoolError> {
        let mut core = self.core();
        let lane = core.lane(stream)?;
        if core.captures.remove(&lane).is_none() {
            return Err(PoolError::Capture { stream, is: "is not being captured" });
        }
        core.large.lanes.set_capturing(lane, false);
        Ok(())
    }

    /// Gives up a graph's memory, in the order of a stream that comes after its last launch. Blocks of it that are still
    /// allocated stay so.
    pub fn end_graph(&self, graph: GraphPool, stream: Stream) -> Result<(), PoolError> {
        let mut core = self.core();
        let lane = core.lane(stream)?;
        core.large.end_pool(graph.0, lane);
        Ok(())
    }

    /// The background work: looks how far the streams are, merges what is over, and gives back what was idle for long, within
    /// the budget of calls. To be called now and then, by a thread of its own or by a test; it holds the pool's lock for one
    /// round.
    pub fn maintain(&self) {
        let mut core = self.core();
        let now = self.driver.device().now();
        let rate = core.config.driver_calls_per_second;
        let earned = (u128::from(now - core.last_round) * u128::from(rate) / SECOND).min(u128::from(rate)) as u64;
        if earned > 0 || rate == 0 {
            core.last_round = now;
        }
        core.allowance = (core.allowance + earned as i64).min(rate as i64);
        let budget = core.allowance.max(0) as u64;
        let delay = core.config.idle_release_ms * MS;
        let calls = core.large.maintain(now, delay, budget);
        core.allowance -= calls as i64;
        if core.config.enable_defrag && core.is_fragmented() {
            core.large.coalesce();
        }
        core.counters.largest_request = 0;
    }

    /// Merges all free memory that is next to each other, whatever it was used for, once its work is over.
    pub fn defragment(&self) {
        let mut core = self.core();
        core.large.lanes.refresh(u64::MAX);
        core.large.coalesce();
    }

    /// Gives all memory back to the device that is free and whose work is over. Returns the bytes.
    pub fn trim_cache(&self) -> u64 {
        self.core().trim()
    }

    /// Waits until the work on all freed memory is over, then gives all of it back. Returns the bytes.
    pub fn release_all(&self) -> u64 {
        let mut core = self.core();
        core.large.lanes.synchronize();
        core.trim()
    }

    /// The settings.
    pub fn config(&self) -> Config {
        self.core().config.clone()
    }

    /// Other settings, from now on.
    pub fn set_config(&self, config: Config) -> Result<(), PoolError> {
        config.check()?;
        self.core().config = config;
        Ok(())
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.core().stats(self.driver.calls())
    }

    /// Sets the counters back that say so in [`Stats`].
    pub fn reset_stats(&self) {
        let mut core = self.core();
        let usage = core.counters.usage;
        core.counters = Counters { usage, peak: usage, ..Counters::default() };
    }

    /// Writes the counters to the standard error.
    pub fn print_stats(&self) {
        eprint!("{}", self.stats());
    }
}

impl<D: Device> Core<D> {
    fn lane(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        if let Some(&lane) = self.lanes.get(&stream) {
            return Ok(lane);
        }
        let lane = self.large.lanes.find(stream)?;
        if stream != Stream::PER_THREAD {
            self.lanes.insert(stream, lane);
        }
        Ok(lane)
    }

    fn allocate(&mut self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let lane = self.lane(stream)?;
        let pool = self.captures.get(&lane).copied().unwrap_or(0);
        let align = self.config.alignment;
        let most = self.large.range().end - self.large.range().start - GRANULE;
        if size > most {
            return Err(self.out_of_memory(size, DeviceError { call: Call::Reserve, fault: Fault::OutOfMemory }));
        }
        let rounded = size.max(1).next_multiple_of(align);
        let request = Request { size: rounded, align, lane, stream, pool };
        self.counters.largest_request = self.counters.largest_request.max(rounded);
        let address = match self.large.fit(&request) {
            Some(address) => address,
            None => {
                self.counters.misses += 1;
                self.grow(&request)?
            }
        };
        let counters = &mut self.counters;
        counters.allocations += 1;
        counters.allocated += rounded;
        counters.usage += rounded;
        counters.peak = counters.peak.max(counters.usage);
        Ok(address)
    }

    fn grow(&mut self, request: &Request) -> Result<u64, PoolError> {
        self.large.grow(request).map_err(|cause| self.out_of_memory(request.size, cause))
    }

    fn out_of_memory(&self, request: u64, cause: DeviceError) -> PoolError {
        PoolError::OutOfMemory {
            request,
            used: self.counters.usage,
            held: self.large.held(),
            free: self.large.free_bytes(),
            largest_free: self.large.largest_free(),
            cause,
        }
    }

    fn free(&mut self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        let size = self.large.free(address, lane).ok_or(PoolError::NotABlock(address))?;
        self.counters.frees += 1;
        self.counters.freed += size;
        self.counters.usage -= size;
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        let held = self.large.held();
        self.large.lanes.refresh(u64::MAX);
        self.large.coalesce();
        self.large.maintain(0, 0, u64::MAX);
        held - self.large.held()
    }

    fn is_fragmented(&self) -> bool {
        let fragmented = self.large.free_below(self.counters.largest_request);
        fragmented as f64 > self.config.defrag_threshold * self.large.held() as f64
    }

    fn stats(&self, driver_calls: u64) -> Stats {
        let (counters, large) = (&self.counters, self.large.counters);
        Stats {
            total_allocated: counters.allocated,
            total_freed: counters.freed,
            current_usage: counters.usage,
            peak_usage: counters.peak,
            allocation_count: counters.allocations,
            free_count: counters.frees,
            cache_hits: counters.allocations.saturating_sub(counters.misses),
            cache_misses: counters.misses,
            fragmentation_bytes: self.large.free_below(counters.largest_request),
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
