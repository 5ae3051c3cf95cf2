//! What the pool's lock guards: the large blocks, the reserve, the streams by name, the settings and the counters.

mod report;

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::Config;
use crate::device::{Call, Device, DeviceError, Fault, GRANULE, Stream};
use crate::error::PoolError;
use crate::large::{Large, PoolId, Request};
use crate::pending::{LaneId, Pending};
use crate::picture::Publisher;
use crate::recorder::Recorder;
use crate::small::{CHUNK, Limits, PAGE, Page, SAMPLED, Slabs, ThreadCache, size_of};
use report::{CoreCounters, SmallCounts};

/// What small blocks may hold beyond half as much again as the program has of them.
const HOARD: u64 = CHUNK;
/// Times in a second that caches are emptied because of that, before memory is mapped for small blocks.
const HOARDS: u32 = 32;
/// Tiles that a round of background work looks at for merging while the lock is held.
const TILES_IN_A_ROUND: usize = 512;
const MS: u64 = 1_000_000;
const SECOND: u128 = 1_000_000_000;

/// What the lock guards.
pub struct Core<D: Device> {
    pub large: Large<D>,
    pub slabs: Slabs,
    pub config: Config,
    /// The lanes by handle, and the round in which the driver was last asked for the handle's stream.
    lanes: HashMap<Stream, (LaneId, u64)>,
    /// Rounds of background work.
    round: u64,
    /// The stream that was named last in this round.
    last: Option<(Stream, LaneId)>,
    captures: HashMap<LaneId, PoolId>,
    next_pool: PoolId,
    pub counters: CoreCounters,
    /// Bytes of large blocks that are allocated.
    large_usage: u64,
    /// The largest request of this second or more, and of the one before, by the rounds of background work.
    largest_request: u64,
    largest_before: u64,
    since_largest: u64,
    looked_again: u64,
    pub threads: Vec<Arc<ThreadCache>>,
    /// The counts of threads that have ended, and of blocks that passed by the caches.
    pub ended: SmallCounts,
    /// Whether there was a time in which blocks were not counted: what small blocks take is then what is out of the slabs.
    uncounted: bool,
    /// Calls that the background work may make now; below 0 after a round that took more.
    allowance: i64,
    last_round: u64,
    last_defrag: u64,
    pub publisher: Publisher,
    /// Times in this second that caches may yet be emptied before memory is mapped for small blocks.
    hoards_left: u32,
}

impl<D: Device> Core<D> {
    pub fn new(mut large: Large<D>, slabs: Slabs, config: Config, now: u64, recorder: Arc<dyn Recorder>) -> Core<D> {
        let publisher = Publisher::new(recorder, large.device_memory());
        large.set_limit(config.memory_limit);
        Core {
            large,
            slabs,
            allowance: config.driver_calls_per_second as i64,
            uncounted: !config.enable_stats,
            config,
            lanes: HashMap::new(),
            last: None,
            round: 0,
            captures: HashMap::new(),
            next_pool: 1,
            counters: CoreCounters::default(),
            large_usage: 0,
            largest_request: 0,
            largest_before: 0,
            since_largest: now,
            looked_again: now,
            threads: Vec::new(),
            ended: SmallCounts::default(),
            last_round: now,
            last_defrag: now,
            publisher,
            hoards_left: HOARDS,
        }
    }

    /// The lane of a stream.
    #[inline]
    pub fn lane(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        match self.last {
            Some((last, lane)) if last == stream => Ok(lane),
            _ => self.lane_of_another(stream),
        }
    }

    #[inline(never)]
    fn lane_of_another(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        let known = self.lanes.get(&stream).copied();
        if let Some((lane, round)) = known
            && (round == self.round || self.large.lanes.is_capturing(lane))
        {
            self.last = Some((stream, lane));
            return Ok(lane);
        }
        // Once a round the driver is asked whether the handle is still that stream's; not during its capture.
        let lane = match (self.large.lanes.find(stream), known) {
            (Ok(lane), Some((old, _))) if lane != old => {
                self.large.lanes.lose(old);
                lane
            }
            (Ok(lane), _) => lane,
            (Err(_), Some((old, _))) => old,
            (Err(error), None) => return Err(error.into()),
        };
        self.large.lanes.name(lane);
        if stream != Stream::PER_THREAD {
            self.lanes.insert(stream, (lane, self.round));
            self.last = Some((stream, lane));
        }
        Ok(lane)
    }

    /// The lane of a stream, if its small blocks come from slabs.
    pub fn small_lane(&mut self, stream: Stream) -> Result<Option<LaneId>, PoolError> {
        let lane = self.lane(stream)?;
        let small = !self.captures.contains_key(&lane) && lane < Page::LANES && self.config.alignment <= PAGE;
        Ok(small.then_some(lane))
    }

    pub fn limits(&self) -> Limits {
        let Config { alignment, enable_stats, batch_alloc_count, thread_cache_max_blocks, .. } = self.config;
        Limits { alignment, count: enable_stats, batch: batch_alloc_count, blocks: thread_cache_max_blocks }
    }

    /// Forgets a stream that is about to be destroyed.
    pub fn stream_ends(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        let lane = self.lane(stream)?;
        self.large.cool();
        self.large.lanes.retire(lane)?;
        self.lanes.retain(|_, (known, _)| *known != lane);
        self.last = None;
        Ok(lane)
    }

    pub fn begin_capture(&mut self, stream: Stream) -> Result<PoolId, PoolError> {
        let lane = self.lane(stream)?;
        if self.captures.contains_key(&lane) {
            return Err(PoolError::Capture { stream, is: "is being captured already" });
        }
        let pool = self.next_pool;
        self.next_pool += 1;
        self.captures.insert(lane, pool);
        self.large.lanes.set_capturing(lane, true);
        Ok(pool)
    }

    pub fn end_capture(&mut self, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        if self.captures.remove(&lane).is_none() {
            return Err(PoolError::Capture { stream, is: "is not being captured" });
        }
        self.large.lanes.set_capturing(lane, false);
        Ok(())
    }

    fn note_peak(&mut self) {
        self.counters.peak = self.counters.peak.max(self.large_usage + self.slabs.out());
    }

    /// A block of the large blocks' tier, from free memory. `None` if none fits.
    pub fn fit_large(&mut self, size: u64, stream: Stream) -> Result<Option<u64>, PoolError> {
        let request = self.request(size, stream)?;
        self.largest_request = self.largest_request.max(request.size);
        let address = self.large.fit(&request);
        if address.is_some() {
            self.counters.large_hits += 1;
            self.count_large(request.size);
        }
        Ok(address)
    }

    /// The same, from memory that is put together or created.
    pub fn grow_large(&mut self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let request = self.request(size, stream)?;
        let address = match self.large.fit(&request) {
            Some(address) => address,
            None => self.large.grow(&request)?,
        };
        self.counters.misses += 1;
        self.count_large(request.size);
        Ok(address)
    }

    #[inline]
    fn request(&mut self, size: u64, stream: Stream) -> Result<Request, PoolError> {
        let lane = self.lane(stream)?;
        let pool = if self.captures.is_empty() { 0 } else { self.pool_of(lane) };
        let align = self.config.alignment;
        let range = self.large.range();
        if size > range.end - range.start - GRANULE {
            return Err(DeviceError { call: Call::Reserve, fault: Fault::OutOfMemory }.into());
        }
        // The alignment is a power of two.
        Ok(Request { size: (size.max(1) + (align - 1)) & !(align - 1), align, lane, stream, pool })
    }

    /// The pool of the graph that a lane is captured for; 0 for none.
    #[inline(never)]
    fn pool_of(&self, lane: LaneId) -> PoolId {
        self.captures.get(&lane).copied().unwrap_or(0)
    }

    #[inline]
    fn count_large(&mut self, size: u64) {
        let count = u64::from(self.config.enable_stats);
        self.counters.allocations += count;
        self.counters.allocated += size * count;
        self.visited();
        self.large_usage += size;
        self.note_peak();
    }

    /// Frees a block of the large blocks' tier.
    pub fn free_large(&mut self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        let size = self.large.free(address, lane).ok_or(PoolError::NotABlock(address))?;
        let count = u64::from(self.config.enable_stats);
        self.counters.frees += count;
        self.counters.freed += size * count;
        self.large_usage -= size;
        self.visited();
        Ok(())
    }

    /// At most `batch` blocks of a class from the reserve. Returns how many.
    pub fn take_from_reserve(&mut self, class: usize, lane: LaneId, batch: usize, into: &mut Vec<u64>) -> usize {
        let mut taken = self.slabs.take(class, lane, batch, into);
        if taken == 0 && self.settle() {
            taken = self.slabs.take(class, lane, batch, into);
        }
        self.counters.reserve_hits += u64::from(taken > 0);
        self.note_peak();
        self.visited();
        taken
    }

    /// Blocks of a class from a new slab, for which memory is mapped if `grow` allows it. Returns how many.
    pub fn take_from_new_slab(
        &mut self,
        class: usize,
        lane: LaneId,
        stream: Stream,
        grow: bool,
        batch: usize,
        into: &mut Vec<u64>,
    ) -> Result<usize, PoolError> {
        if !self.slabs.add(class, lane) {
            let owner = lane & !SAMPLED;
            let request = Request { size: CHUNK, align: CHUNK, lane: owner, stream, pool: 0 };
            let address = match self.large.fit_chunk(&request) {
                Some(address) => address,
                None if grow => self.large.grow_chunk(&request)?,
                None => return Ok(0),
            };
            self.slabs.add_chunk(address, owner);
            self.slabs.add(class, lane);
        }
        let taken = self.slabs.take(class, lane, batch, into);
        self.counters.misses += 1;
        self.note_peak();
        Ok(taken)
    }

    /// A block of a class that is to be recorded, from a slab of such blocks, for which memory is mapped if `grow` allows it.
    pub fn take_sampled(
        &mut self,
        class: usize,
        lane: LaneId,
        stream: Stream,
        grow: bool,
    ) -> Result<Option<u64>, PoolError> {
        // Only blocks that share a page with others need slabs of their own.
        let key = if size_of(class) < PAGE { lane | SAMPLED } else { lane };
        let mut block = Vec::new();
        if self.take_from_reserve(class, key, 1, &mut block) == 0 {
            self.take_from_new_slab(class, key, stream, grow, 1, &mut block)?;
        }
        let address = block.pop();
        self.ended.allocations[class] += u64::from(address.is_some());
        Ok(address)
    }

    /// Frees a small block that can't go to a thread's cache.
    pub fn free_small(&mut self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        let (class, own) = self.slabs.lane_of(address).ok_or(PoolError::NotABlock(address))?;
        let shared = self.slabs.unshare(address);
        self.ended.frees[class] += 1;
        if lane == own && shared.is_empty() {
            self.slabs.put(address);
            return Ok(());
        }
        let mut pending = Pending::default();
        for lane in shared.into_iter().chain([lane, own]) {
            pending.add(self.large.lanes.now(lane));
        }
        self.slabs.wait(address, pending);
        Ok(())
    }

    /// Notes that a block is used on another stream, too.
    pub fn share(&mut self, address: u64, stream: Stream, small: bool) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        if !small {
            return if self.large.share(address, lane) { Ok(()) } else { Err(PoolError::NotABlock(address)) };
        }
        let (_, own) = self.slabs.lane_of(address).ok_or(PoolError::NotABlock(address))?;
        if lane != own {
            self.slabs.share(address, lane);
        }
        Ok(())
    }

    /// Looks whether blocks that wait for other streams are free by now. Returns whether one is.
    fn settle(&mut self) -> bool {
        for lane in self.slabs.awaited() {
            self.large.lanes.poll(lane);
        }
        let lanes = &self.large.lanes;
        self.slabs.settle(|point| lanes.is_done(point))
    }

    /// Hands the slabs back that are empty.
    /// Returns whether a chunk went back.
    pub fn return_slabs(&mut self) -> bool {
        self.settle();
        let empty = self.slabs.take_empty();
        for (address, lane) in &empty {
            self.large.free(*address, *lane);
        }
        !empty.is_empty()
    }

    /// Whether threads should ask again which streams are behind the handles that they know: once a second.
    pub fn is_time_to_look_again(&mut self, now: u64) -> bool {
        let due = now.saturating_sub(self.looked_again) >= SECOND as u64;
        if due {
            self.looked_again = now;
        }
        due
    }

    /// The streams that were found to be gone. Their handles are forgotten.
    pub fn take_newly_lost(&mut self) -> Vec<LaneId> {
        let lost = self.large.lanes.take_newly_lost();
        if !lost.is_empty() {
            self.lanes.retain(|_, (lane, _)| !lost.contains(lane));
            self.last = None;
        }
        lost
    }

    /// A round of the background work, with at most so many calls to the driver. Returns whether it made as many.
    pub fn maintain(&mut self, now: u64, most: u64) -> bool {
        self.round += 1;
        self.last = None;
        self.large.lanes.next_round();
        let rate = self.config.driver_calls_per_second;
        let passed = now.saturating_sub(self.last_round);
        let earned = (u128::from(passed) * u128::from(rate) / SECOND).min(u128::from(rate)) as u64;
        if earned > 0 || rate == 0 {
            self.last_round = now;
        }
        self.allowance = (self.allowance + earned as i64).min(rate as i64);
        self.return_slabs();
        let delay = self.config.idle_release_ms.saturating_mul(MS);
        let calls = self.large.maintain(now, delay, most.min(self.allowance.max(0) as u64));
        self.allowance -= calls as i64;
        let interval = self.config.defrag_interval_ms.saturating_mul(MS);
        let due = self.config.enable_defrag && now.saturating_sub(self.last_defrag) >= interval;
        if due && !self.large.is_coalescing() && self.is_fragmented() {
            self.last_defrag = now;
            self.large.begin_to_coalesce();
        }
        self.large.coalesce_some(TILES_IN_A_ROUND);
        if now.saturating_sub(self.since_largest) >= SECOND as u64 {
            self.largest_before = std::mem::take(&mut self.largest_request);
            self.since_largest = now;
            self.hoards_left = HOARDS;
        }
        if self.publisher.is_due() {
            self.publish();
        }
        calls >= most
    }

    /// The largest request of the last second or two.
    fn recent_request(&self) -> u64 {
        self.largest_request.max(self.largest_before)
    }

    fn is_fragmented(&self) -> bool {
        let fragmented = self.large.free_below(self.recent_request());
        fragmented as f64 > self.config.defrag_threshold * self.large.held() as f64
    }

    /// Merges what is free, and whose work is over.
    pub fn defragment(&mut self) {
        self.large.cool();
        self.large.lanes.refresh(u64::MAX, true);
        self.return_slabs();
        self.large.coalesce();
    }

    /// The same, but not while a graph is captured: what can't be waited for would spoil what it is merged with.
    pub fn defragment_unless_capturing(&mut self) {
        if !self.large.lanes.is_any_capturing() {
            self.defragment();
        }
    }

    /// Bytes of the largest request that could ever be served.
    pub fn most(&self) -> u64 {
        self.large.limit.min(self.large.device_memory())
    }

    /// Waits on the host until the work behind freed memory is over, unless a graph is captured.
    pub fn wait_for_pending(&mut self) {
        // Blocks that waited for other streams may be the last ones of their slabs, which then wait for their own.
        loop {
            // What is kept as it was freed has no point yet that could be waited for.
            self.large.cool();
            self.large.lanes.synchronize();
            if !self.return_slabs() {
                return;
            }
        }
    }

    /// Gives everything back that is free and whose work is over. Returns the bytes.
    pub fn trim(&mut self) -> u64 {
        let held = self.large.held();
        self.defragment();
        self.large.maintain(0, 0, u64::MAX);
        held - self.large.held()
    }

    /// Whether small blocks hold so much more than the program has of them that what caches have should be used before memory is
    /// mapped for a large block.
    pub fn hoards(&self) -> bool {
        let used = self.small_usage();
        self.slabs.chunk_bytes() > used + used / 2 + HOARD
    }

    /// The same before memory is mapped for small blocks, so often in a second. What a program swings by has to stay in caches, or
    /// they are emptied again and again while other threads wait.
    pub fn is_hoard_due(&mut self) -> bool {
        let due = self.hoards_left > 0 && self.hoards();
        self.hoards_left -= u32::from(due);
        due
    }

    /// Other settings, from now on.
    pub fn set_config(&mut self, config: Config) {
        self.uncounted |= !config.enable_stats;
        self.large.set_limit(config.memory_limit);
        self.config = config;
    }
}
