//! What the pool's lock guards: the large blocks, the reserve, the streams by name, the settings and the counters.
//! Blocks go between the tiers here; streams are in `handles`, background work in `upkeep`, what is in use in `usage`.

mod handles;
mod quarantined;
mod report;
mod upkeep;
mod usage;

use std::sync::Arc;

use super::PoolError;
use super::crowd::Crowd;
use super::publisher::Publisher;
use crate::delays::Delays;
use crate::device::{Call, Device, DeviceError, Fault, GRANULE, Stream};
use crate::large::{Held, Large, Request};
use crate::settings::Config;
use crate::small::{CHUNK, Drained, LARGEST, Limits, Lists, PAGE, Pages, SAMPLED, Slabs, size_of};
use crate::streams::{LaneId, Pending};
use crate::watch::Recorder;
use handles::Handles;
use upkeep::Upkeep;
pub use usage::InUse;
use usage::SmallCounts;

/// Chunks that are made ahead for each thread where threads wait for each other, and for all of them at most.
const CHUNKS_OF_A_THREAD: u64 = 2;
const CHUNKS_AHEAD: u64 = 30;
/// Of those that there are, this part is made ahead for them, as a divisor, where that is more; and so many at most.
const CHUNKS_PART: u64 = 4;
const MOST_CHUNKS_AHEAD: u64 = 63;

/// Blocks of slabs of recorded ones that a thread gets at a time.
const SAMPLES_AT_ONCE: usize = 4;

/// Slabs of a class of medium blocks, of one block each, with which others are placed as large ones: enough for a loop
/// over one block.
const MEDIUM_SLABS: usize = 1;
/// The part of what is held that the fitted blocks may be which threads keep, as a divisor; and what they may be in a
/// small pool. More would leave free memory in pieces for longer.
const KEPT_PART: u64 = 16;
const KEPT_IN_SMALL_POOLS: u64 = 12 * LARGEST;
/// What a thread may keep of them in any case.
const LEAST_KEPT: u64 = 2 * LARGEST;

/// What the lock guards.
///
/// The tiers below know nothing of each other. Here they come together: a request becomes one of a lane and a graph,
/// small blocks get their chunks from the large blocks' tier, and what is freed goes back the same way. Bytes in use
/// are those of the large blocks' tier, counted here, and of small blocks, which threads count ([`InUse`]).
pub struct Core<D: Device> {
    /// The large blocks' tier, with the streams' lanes and what is counted.
    pub large: Large<D>,
    /// The reserve of small blocks.
    pub slabs: Slabs,
    pages: Arc<Pages>,
    pub config: Config,
    /// The streams as the program names them.
    handles: Handles,
    /// What the program has, which is asked for without the lock, too.
    pub in_use: Arc<InUse>,
    /// What had been counted of small blocks when the counters were last reset.
    before: SmallCounts,
    /// Whether the pool is a small one, whose medium blocks take what was asked for.
    fits_medium: bool,
    /// What the background work remembers from round to round.
    upkeep: Upkeep,
    pub publisher: Publisher,
    /// What calls were held up by.
    delays: Arc<Delays>,
    /// Who waits for the lock.
    crowd: Arc<Crowd>,
}

impl<D: Device> Core<D> {
    pub fn new(
        mut large: Large<D>,
        pages: Arc<Pages>,
        config: Config,
        now: u64,
        recorder: Arc<dyn Recorder>,
        (delays, crowd, in_use): (Arc<Delays>, Arc<Crowd>, Arc<InUse>),
    ) -> Core<D> {
        let publisher = Publisher::new(recorder, large.device_memory());
        large.set_limit(config.memory_limit);
        large.set_waits(config.wait_for_streams, config.wait_share);
        large.set_piece_divisor(config.piece_divisor);
        Core {
            large,
            slabs: Slabs::new(pages.clone()),
            pages,
            handles: Handles::default(),
            fits_medium: true,
            in_use,
            before: SmallCounts::default(),
            upkeep: Upkeep::new(now, config.driver_calls_per_second),
            config,
            publisher,
            delays,
            crowd,
        }
    }

    pub fn limits(&self) -> Limits {
        let Config { alignment, enable_stats, batch_alloc_count, thread_cache_max_blocks, .. } = self.config;
        Limits { alignment, count: enable_stats, batch: batch_alloc_count, blocks: thread_cache_max_blocks }
    }

    fn note_peak(&mut self) {
        self.large.counted.peak_usage = self.large.counted.peak_usage.max(self.in_use.large() + self.slabs.out());
    }

    /// A block of the large blocks' tier, from free memory. `None` if none fits.
    pub fn fit_large(&mut self, size: u64, stream: Stream) -> Result<Option<u64>, PoolError> {
        let request = self.request(size, stream)?;
        self.upkeep.largest_request = self.upkeep.largest_request.max(request.size);
        let address = self.large.fit(&request);
        Ok(self.count_hit(&request, address))
    }

    /// A large block of just that length that was freed last.
    pub fn fit_hot(&mut self, size: u64, stream: Stream) -> Result<Option<u64>, PoolError> {
        let request = self.request(size, stream)?;
        let address = self.large.fit_hot(&request);
        Ok(self.count_hit(&request, address))
    }

    /// Counts what free memory had for a request.
    #[inline]
    fn count_hit(&mut self, request: &Request, address: Option<u64>) -> Option<u64> {
        if address.is_some() {
            self.large.counted.large_hits += 1;
            self.count_large(request.size);
        }
        address
    }

    /// The same, from memory that is put together or created.
    pub fn grow_large(&mut self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let request = self.request(size, stream)?;
        let fits = self.large.fit(&request).or_else(|| self.large.fit_when_merged(&request));
        let address = match fits {
            Some(address) => address,
            None => self.large.grow_or_wait(&request)?,
        };
        let count =
            if fits.is_some() { &mut self.large.counted.large_hits } else { &mut self.large.counted.cache_misses };
        *count += 1;
        self.count_large(request.size);
        Ok(address)
    }

    /// A medium block that takes what was asked for, from free memory. `None` if none fits.
    pub fn fit_fitted(&mut self, size: u64, lane: LaneId, stream: Stream) -> Result<Option<u64>, PoolError> {
        let address = self.fit_large(size, stream)?;
        address.into_iter().for_each(|address| self.give_fitted(address, size, lane));
        Ok(address)
    }

    /// The same, from memory that is put together or created.
    pub fn grow_fitted(&mut self, size: u64, lane: LaneId, stream: Stream) -> Result<u64, PoolError> {
        self.grow_large(size, stream).inspect(|address| self.give_fitted(*address, size, lane))
    }

    /// Whether there are slabs enough of a class of medium blocks, so that others are placed as large ones.
    pub fn has_medium_slabs(&self, class: usize) -> bool {
        self.slabs.count(class) >= MEDIUM_SLABS
    }

    /// Bytes of fitted blocks that a thread keeps at most. All are free memory to it, and to others before the pool
    /// grows.
    pub fn most_kept(&self) -> u64 {
        let all = (self.large.held() / KEPT_PART).max(KEPT_IN_SMALL_POOLS);
        let part = all / self.in_use.threads().len().max(1) as u64;
        if self.config.thread_cache_max_blocks == 0 { 0 } else { part.max(LEAST_KEPT) }
    }

    #[inline]
    fn request(&mut self, size: u64, stream: Stream) -> Result<Request, PoolError> {
        let lane = self.lane(stream)?;
        let pool = if self.handles.is_any_captured() { self.pool_of(lane) } else { 0 };
        let align = self.config.alignment;
        let range = self.large.range();
        if size > range.end - range.start - GRANULE {
            return Err(DeviceError { call: Call::Reserve, fault: Fault::OutOfMemory }.into());
        }
        Ok(Request { size: self.aligned(size), align, lane, stream, pool })
    }

    /// Bytes of a block of the large blocks' tier.
    #[inline]
    fn aligned(&self, size: u64) -> u64 {
        // The alignment is a power of two.
        let align = self.config.alignment;
        (size.max(1) + (align - 1)) & !(align - 1)
    }

    #[inline]
    fn count_large(&mut self, size: u64) {
        let count = u64::from(self.config.enable_stats);
        self.large.counted.allocation_count += count;
        self.large.counted.total_allocated += size * count;
        self.visited();
        self.in_use.add_large(size);
        self.note_peak();
    }

    /// Makes a block of the large blocks' tier a fitted one, which threads may keep for a lane, and gives it to the
    /// program.
    pub fn give_fitted(&mut self, address: u64, size: u64, lane: LaneId) {
        if !self.config.hardened {
            self.pages.give_fitted(address, self.aligned(size), lane);
        }
    }

    /// Takes blocks back that were in a thread's lists.
    pub fn put_back(&mut self, drained: Drained) {
        for (.., blocks) in drained.of_slabs {
            self.slabs.put_all(blocks);
        }
        self.slabs.put_all(drained.recorded);
        drained.fitted.into_iter().for_each(|(lane, address)| self.put_back_fitted(lane, address));
    }

    /// Takes a fitted block back that a thread has kept for a lane.
    pub fn put_back_fitted(&mut self, lane: LaneId, address: u64) {
        self.pages.take_fitted(address);
        self.in_use.take_large(self.large.free(address, lane).unwrap_or(0));
    }

    /// Takes all fitted blocks back that a thread keeps. They are merged at once where none is kept as it was freed.
    pub fn put_back_all_fitted(&mut self, lists: &mut Lists) {
        if self.large.has_hot() {
            return lists.take_all_fitted(|lane, address| self.put_back_fitted(lane, address));
        }
        lists.take_all_fitted(|lane, address| {
            self.pages.take_fitted(address);
            self.in_use.take_large(self.large.free_at_once(address, lane).unwrap_or(0));
        });
    }

    /// A medium block in exchange for the fitted ones that a thread keeps, of which none has its length: these are
    /// freed, and it is taken from free memory. `None` where it is not as simple as that.
    pub fn exchange_fitted(
        &mut self,
        size: u64,
        class: usize,
        (lane, stream): (LaneId, Stream),
        lists: &mut Lists,
    ) -> Option<u64> {
        if !self.has_medium_slabs(class) || !self.slabs.is_out_of(class) || !self.fits_medium() {
            return None;
        }
        if self.handles.is_any_captured() || self.lane(stream).ok()? != lane {
            return None;
        }
        let request = Request { size: self.aligned(size), align: self.config.alignment, lane, stream, pool: 0 };
        self.upkeep.largest_request = self.upkeep.largest_request.max(request.size);
        self.put_back_all_fitted(lists);
        let address = self.large.fit_or_come_again(&request);
        self.count_hit(&request, address).inspect(|address| self.pages.give_fitted(*address, request.size, lane))
    }

    /// Frees a block of the large blocks' tier.
    pub fn free_large(&mut self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        self.pages.forget_fitted(address);
        let size = if self.config.hardened {
            let size = self.large.set_aside(address, lane, stream);
            self.release_excess();
            size
        } else {
            self.large.free(address, lane)
        };
        let size = size.ok_or_else(|| self.no_block(address))?;
        let count = u64::from(self.config.enable_stats);
        self.large.counted.free_count += count;
        self.large.counted.total_freed += size * count;
        self.in_use.take_large(size);
        self.visited();
        Ok(())
    }

    /// At most `batch` blocks of a class from the reserve. Returns how many.
    pub fn take_from_reserve(&mut self, class: usize, lane: LaneId, batch: usize, into: &mut Vec<u64>) -> usize {
        let mut taken = self.slabs.take(class, lane, batch, into);
        if taken == 0 && self.settle() {
            taken = self.slabs.take(class, lane, batch, into);
        }
        self.large.counted.reserve_hits += u64::from(taken > 0);
        self.note_peak();
        self.visited();
        taken
    }

    /// Whether medium blocks are placed as large ones are, since the pool is a small one: a class's blocks are up to
    /// twice as long as what was asked for, and what is free of them serves nobody else. Where threads wait for each
    /// other, each should have blocks of its own. Without virtual memory, segments would be full of holes.
    pub fn fits_medium(&mut self) -> bool {
        // A pool that swings about the limit stays as it is, or blocks would move between slabs and free memory.
        let limit = if self.fits_medium { self.config.fit_medium_below } else { self.config.fit_medium_below / 4 };
        self.fits_medium = self.large.held() < limit;
        self.fits_medium && !self.crowd.is_there() && self.large.is_virtual()
    }

    /// How many chunks are made ahead where threads wait for each other: a driver charges for a piece of memory,
    /// whatever its length. The more there are already, the more are still to come.
    fn chunks_ahead(&self) -> usize {
        if !self.crowd.is_there() {
            return 0;
        }
        let part = self.slabs.chunk_bytes() / CHUNK / CHUNKS_PART;
        let of_threads = CHUNKS_OF_A_THREAD * self.in_use.threads().len() as u64;
        of_threads.min(CHUNKS_AHEAD).max(part.min(MOST_CHUNKS_AHEAD)) as usize
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
        let owner = lane & !SAMPLED;
        let request = Request { size: CHUNK, align: CHUNK, lane: owner, stream, pool: 0 };
        if !self.slabs.add(class, lane) {
            let address = match self.large.fit_chunk(&request) {
                Some(address) => address,
                None if grow => self.large.grow_chunk(&request, self.chunks_ahead())?,
                None => return Ok(0),
            };
            self.slabs.add_chunk(address, owner);
            self.slabs.add(class, lane);
        }
        let mut taken = self.slabs.take(class, lane, batch, into);
        // Where threads wait for each other, each is to come by as seldom as may be.
        while taken < batch && self.crowd.is_there() {
            if !self.slabs.add(class, lane) {
                let Some(address) = self.large.fit_ready_chunk(&request) else { break };
                self.slabs.add_chunk(address, owner);
                self.slabs.add(class, lane);
            }
            taken += self.slabs.take(class, lane, batch - taken, into);
        }
        self.large.counted.cache_misses += 1;
        self.note_peak();
        Ok(taken)
    }

    /// A block of a class that is to be recorded, from a slab of such blocks, for which memory is mapped if `grow`
    /// allows it. With it come some `more`, for the thread's next ones.
    pub fn take_sampled(
        &mut self,
        class: usize,
        lane: LaneId,
        stream: Stream,
        grow: bool,
        more: &mut Vec<u64>,
    ) -> Result<Option<u64>, PoolError> {
        // Only blocks that share a page with others need slabs of their own.
        let (key, batch) = if size_of(class) < PAGE { (lane | SAMPLED, SAMPLES_AT_ONCE) } else { (lane, 1) };
        if self.take_from_reserve(class, key, batch, more) == 0 {
            self.take_from_new_slab(class, key, stream, grow, batch, more)?;
        }
        let address = more.pop();
        if address.is_some() {
            self.in_use.allocated_by_pass(class);
        }
        Ok(address)
    }

    /// Frees a small block that can't go to a thread's cache.
    pub fn free_small(&mut self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        let (class, own) = self.slabs.lane_of(address).ok_or(PoolError::NotABlock(address))?;
        let shared = self.slabs.unshare(address);
        self.in_use.freed_by_pass(class);
        let mut pending = Pending::default();
        if lane != own || !shared.is_empty() {
            for lane in shared.into_iter().chain([lane, own]) {
                pending.add(self.large.lanes.now(lane));
            }
        }
        if self.config.hardened {
            self.large.quarantine.add(Held { address, size: size_of(class), stream, pending, tile: None });
            self.release_excess();
        } else {
            self.put(address, pending);
        }
        Ok(())
    }

    /// Notes that a block is used on another stream, too.
    pub fn share(&mut self, address: u64, stream: Stream, small: bool) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        if !small {
            if !self.large.share(address, lane) {
                return Err(self.no_block(address));
            }
            if self.pages.get(address).is_fitted() {
                self.pages.share_fitted(address);
            }
            return Ok(());
        }
        let (_, own) = self.slabs.lane_of(address).ok_or(PoolError::NotABlock(address))?;
        if lane != own {
            self.slabs.share(address, lane);
        }
        Ok(())
    }

    /// Looks whether blocks that wait for other streams are free by now. Returns whether one is.
    fn settle(&mut self) -> bool {
        if !self.slabs.is_any_waiting() {
            return false;
        }
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

    /// Other settings, from now on.
    pub fn set_config(&mut self, config: Config) {
        if !config.enable_stats {
            self.in_use.stop_counting();
        }
        self.large.set_limit(config.memory_limit);
        self.large.set_waits(config.wait_for_streams, config.wait_share);
        self.large.set_piece_divisor(config.piece_divisor);
        self.config = config;
    }
}
