//! The pool: device memory in the order of streams.
//!
//! A block that is freed on a stream may be allocated on the same stream at once, since what the stream does with it comes
//! later. Other streams get it behind an event, or when the work is known to be over. The program's part is that of
//! `cudaFreeAsync`: what it does with a block comes, in the order of streams, after its allocation and before its free,
//! or it says [`Pool::record_stream`] of the streams that come to use it otherwise.
//!
//! **Graphs.** A program that captures a stream says so first ([`Pool::begin_capture`]): what is then allocated on the stream
//! is the graph's own until the graph is given up, and nothing is asked of the driver that would end the capture.
//!
//! Small blocks come from the thread's own cache and go there; everything else is behind a cold call. Locks nest in this
//! order: a thread's cache, then the pool's lock or one of the global caches' locks, never both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::background::Background;
use crate::config::Config;
use crate::device::{Device, Stream};
use crate::driver::Driver;
use crate::error::PoolError;
use crate::ladder::Step;
use crate::large::{Large, NO_ADDRESSES, PoolId};
use crate::pending::LaneId;
use crate::pinned::Pinned;
use crate::recorder::{NoRecorder, Recorder, Sample};
use crate::records::Records;
use crate::sampling::LARGE;
use crate::small::{
    CLASSES, Counters, Home, Knowledge, LARGEST, Page, Pages, Slabs, ThreadCache, class_of, for_each_knowledge,
    pass_by_all_threads, size_of, with_cache, with_current_cache,
};
use crate::state::Core;
use crate::stats::Stats;

/// Calls to the driver that the pool's thread makes while it has the lock: what an allocation may have to wait for.
const CALLS_IN_A_ROUND: u64 = 16;

/// Nanoseconds after which a stream that the program does not name any more is taken for idle, or for gone.
const IDLE_STREAM: u64 = 100_000_000;

/// The memory of a captured graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphPool(PoolId);

/// A pool of the memory of one device. It may be shared between threads.
pub struct Pool<D: Device> {
    /// Ends first, so that what it has of the pool is gone when the pool goes.
    _background: Option<Background>,
    shared: Arc<Shared<D>>,
}

/// Free blocks of a class, by lane.
type Global = Mutex<HashMap<LaneId, Vec<u64>>>;

/// What all threads read at each call: on cache lines that nobody writes to otherwise.
#[repr(align(128))]
struct ReadByAll {
    id: u64,
    pages: Arc<Pages>,
    /// Changes with streams, captures and settings, under the core's lock.
    version: AtomicU64,
}

struct Shared<D: Device> {
    read: ReadByAll,
    driver: Arc<Driver<D>>,
    global_limit: AtomicUsize,
    global: [Global; CLASSES],
    core: Mutex<Core<D>>,
    recorder: Arc<dyn Recorder>,
    /// Taken alone, so that samples of one thread don't keep the others from memory.
    records: Mutex<Records>,
    /// Where blocks come from when there is no memory.
    fallback: Option<Box<Pool<Pinned>>>,
    own: Weak<Shared<D>>,
}

/// How a small request was served.
enum Served {
    /// As usual.
    Block(Result<u64, PoolError>),
    /// Not yet: it is a sample of this class and lane, which stands for so much.
    Sample(usize, LaneId, u64),
}

/// To be called in a thread for which the recorder has another period from now on: its next allocations ask for it.
pub fn look_again() {
    for_each_knowledge(|knowledge| knowledge.budgets.look_again());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool<Pinned> {
    /// A pool of locked host memory, for the streams of a device.
    pub fn pinned(device: Arc<dyn Device>, config: Config) -> Result<Pool<Pinned>, PoolError> {
        Pool::new(Arc::new(Pinned::new(device)), config)
    }
}

impl<D: Device> Pool<D> {
    /// A pool on a device.
    pub fn new(device: Arc<D>, config: Config) -> Result<Pool<D>, PoolError> {
        Pool::with_recorder(device, config, Arc::new(NoRecorder))
    }

    /// A pool on a device, of which a recorder is told.
    pub fn with_recorder(device: Arc<D>, config: Config, recorder: Arc<dyn Recorder>) -> Result<Pool<D>, PoolError> {
        static POOLS: AtomicU64 = AtomicU64::new(0);
        config.check()?;
        let limit = config.global_cache_max_blocks;
        let fallback = match config.pinned_fallback {
            true => Some(Box::new(Pool::pinned(device.clone(), Config { pinned_fallback: false, ..config.clone() })?)),
            false => None,
        };
        let driver = Arc::new(Driver::new(device));
        let large = Large::new(driver.clone())?;
        let pages = Arc::new(Pages::new(large.range()));
        let core = Core::new(large, Slabs::new(pages.clone()), config, driver.device().now(), recorder.clone());
        let shared = Arc::new_cyclic(|own| Shared {
            read: ReadByAll { id: POOLS.fetch_add(1, Ordering::Relaxed), pages, version: AtomicU64::new(0) },
            driver,
            global_limit: AtomicUsize::new(limit),
            global: std::array::from_fn(|_| Mutex::default()),
            core: Mutex::new(core),
            recorder,
            records: Mutex::default(),
            fallback,
            own: own.clone(),
        });
        let interval = Duration::from_millis(lock(&shared.core).config.background_interval_ms);
        let wanted = !interval.is_zero() && !shared.driver.device().is_simulated();
        let pool = Arc::downgrade(&shared);
        let round = move || {
            let Some(shared) = pool.upgrade() else { return false };
            while shared.maintain(CALLS_IN_A_ROUND) {
                // Whoever waits for the lock goes first.
                std::thread::yield_now();
            }
            true
        };
        let background = if wanted { Background::start(interval, round) } else { None };
        Ok(Pool { _background: background, shared })
    }

    fn core(&self) -> MutexGuard<'_, Core<D>> {
        lock(&self.shared.core)
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.shared.driver.device()
    }

    /// A block of at least so many bytes, for work given to the stream from now on. It returns the block's address.
    #[inline]
    pub fn allocate(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        match self.pop(size, stream) {
            Some(address) => Ok(address),
            None => self.allocate_slowly(size, stream),
        }
    }

    /// A block from the list that the thread used last for this stream and class, if there is one.
    #[inline]
    fn pop(&self, size: u64, stream: Stream) -> Option<u64> {
        if size > LARGEST {
            return None;
        }
        let shared = &*self.shared;
        let pop = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread, which has no other reference.
            let knowledge = unsafe { cache.knowledge() };
            if !shared.knows(knowledge, stream) {
                return None;
            }
            let class = class_of(size.max(knowledge.limits.alignment));
            if knowledge.budgets.is_due(class, size_of(class)) {
                return None;
            }
            // SAFETY: as above; the version was seen just now.
            let address = unsafe { cache.lists() }.get(knowledge.last.1?, class)?.blocks.pop()?;
            knowledge.budgets.spend(class, size_of(class));
            if knowledge.limits.count {
                Counters::add(&cache.counters.allocations[class]);
            }
            Some(address)
        };
        with_current_cache(shared.read.id, pop)?
    }

    #[cold]
    fn allocate_slowly(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let small = if size <= LARGEST { self.allocate_small(size, stream) } else { None };
        match small.unwrap_or_else(|| self.allocate_large(size, stream)) {
            Err(error) => self.fall_back(size, stream, error),
            block => block,
        }
    }

    /// A block of pinned host memory, if the settings want one where there is no other memory.
    fn fall_back(&self, size: u64, stream: Stream, error: PoolError) -> Result<u64, PoolError> {
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
    fn allocate_small(&self, size: u64, stream: Stream) -> Option<Result<u64, PoolError>> {
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
    fn allocate_sample(
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

    fn allocate_large(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        let weight = self.shared.is_large_sample(size.clamp(1, 1 << 62));
        let address = self.allocate_unrecorded(size, stream)?;
        if let Some(weight) = weight {
            self.shared.record(address, size, weight);
        }
        Ok(address)
    }

    fn allocate_unrecorded(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
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

    /// Frees a block: work that was given to the stream before may still use it.
    #[inline]
    pub fn free(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let page = self.shared.read.pages.get(address);
        let pushed = page.class().is_some_and(|class| self.push(address, class, page, stream));
        if pushed { Ok(()) } else { self.free_slowly(address, page, stream) }
    }

    /// Puts a block onto the list that the thread used last for this stream and class, if it is that stream's alone.
    #[inline]
    fn push(&self, address: u64, class: usize, page: Page, stream: Stream) -> bool {
        let shared = &*self.shared;
        let push = |cache: &ThreadCache| {
            // SAFETY: this is the owning thread, which has no other reference.
            let knowledge = unsafe { cache.knowledge() };
            let Some(lane) = knowledge.last.1.filter(|_| shared.knows(knowledge, stream)) else { return false };
            if !page.has_block(lane, class, address) {
                return false;
            }
            // SAFETY: as above; the version was seen just now.
            let Some(list) = unsafe { cache.lists() }.get(lane, class).filter(|list| !list.is_full()) else {
                return false;
            };
            list.blocks.push(address);
            if knowledge.limits.count {
                Counters::add(&cache.counters.frees[class]);
            }
            true
        };
        with_current_cache(shared.read.id, push).unwrap_or(false)
    }

    #[cold]
    fn free_slowly(&self, address: u64, page: Page, stream: Stream) -> Result<(), PoolError> {
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

    /// Says that work on this stream uses the block, too: when it is freed, it waits for what the stream has to do then.
    pub fn record_stream(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let small = self.shared.read.pages.get(address).class().is_some();
        let result = self.core().share(address, stream, small);
        match &self.shared.fallback {
            Some(fallback) if matches!(result, Err(PoolError::NotABlock(_))) => fallback.record_stream(address, stream),
            _ => result,
        }
    }

    /// Bytes that a block has.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        match self.shared.read.pages.get(address).class() {
            Some(class) => Some(size_of(class)),
            None => {
                let size = self.core().large.size_of(address);
                size.or_else(|| self.shared.fallback.as_ref()?.size_of(address))
            }
        }
    }

    /// Says that a stream is about to be destroyed. What was freed on it is handed to the other streams; what other threads
    /// have of it in their caches, when they next come by. On an error the stream must stay.
    ///
    /// A program that forgets it should at least not use the pool for two rounds of background work
    /// ([`Config::background_interval_ms`]): until then another stream's request may ask for an event behind the gone one, and a driver
    /// that is asked for a stream that is gone need not answer (that of CUDA 13.0 ends the process). Later the pool does not touch
    /// the handle, and the memory serves others once the device has been waited for.
    pub fn stream_ends(&self, stream: Stream) -> Result<(), PoolError> {
        let lane = {
            let mut core = self.core();
            let lane = core.stream_ends(stream)?;
            self.shared.new_version();
            lane
        };
        self.shared.hand_over(lane);
        Ok(())
    }

    /// Says that the stream's work is about to be captured. Blocks allocated on it until [`end_capture`](Self::end_capture)
    /// are the graph's.
    pub fn begin_capture(&self, stream: Stream) -> Result<GraphPool, PoolError> {
        let mut core = self.core();
        let pool = core.begin_capture(stream)?;
        self.shared.new_version();
        Ok(GraphPool(pool))
    }

    /// Says that the capture is over. The graph's memory stays its own.
    pub fn end_capture(&self, stream: Stream) -> Result<(), PoolError> {
        let mut core = self.core();
        core.end_capture(stream)?;
        self.shared.new_version();
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

    /// Puts free memory for so many blocks of a size into the pool, for a stream.
    pub fn preallocate(&self, size: u64, count: usize, stream: Stream) -> Result<(), PoolError> {
        let mut blocks = Vec::with_capacity(count);
        let mut result = Ok(());
        for _ in 0..count {
            match self.allocate(size, stream) {
                Ok(block) => blocks.push(block),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        for block in blocks {
            self.free(block, stream)?;
        }
        result
    }

    /// The background work: looks how far the streams are, merges what is over, and gives back what was idle for long, within
    /// the budget of calls. The pool's own thread does it now and then ([`Config::background_interval_ms`]), a few calls at a time;
    /// here all that is due is done at once, with the pool's lock held.
    pub fn maintain(&self) {
        self.shared.maintain(u64::MAX);
    }

    /// Lets another device read and write this pool's memory, what it has now and what will come. The other way round is another
    /// call, on the other pool.
    pub fn enable_peer(&self, peer: &D) -> Result<(), PoolError> {
        let core = self.core();
        self.device().enable_peer(peer)?;
        Ok(core.large.open_to_peers()?)
    }

    /// Merges all free memory that is next to each other, whatever it was used for, once its work is over.
    pub fn defragment(&self) {
        self.core().defragment();
    }

    /// Gives all memory back to the device that is free and known to be past its work: that of the large blocks, of the global cache
    /// and of the caches of all threads. Returns the bytes.
    ///
    /// A thread that is in a call to the pool at this moment keeps its cache, and all other threads do where the kernel has no
    /// `membarrier` (before Linux 4.14, and where a sandbox forbids it).
    pub fn trim_cache(&self) -> u64 {
        self.shared.reclaim_all();
        self.core().trim()
    }

    /// Waits until the work on all freed memory is over, then gives back what [`trim_cache`](Self::trim_cache) does. Returns
    /// the bytes.
    pub fn release_all(&self) -> u64 {
        self.shared.reclaim_all();
        let mut core = self.core();
        core.wait_for_pending();
        core.trim()
    }

    /// The settings.
    pub fn config(&self) -> Config {
        self.core().config.clone()
    }

    /// The pool of pinned host memory that blocks come from when there is no other memory, if the settings wanted one.
    pub fn fallback(&self) -> Option<&Pool<Pinned>> {
        self.shared.fallback.as_deref()
    }

    /// Other settings, from now on.
    pub fn set_config(&self, config: Config) -> Result<(), PoolError> {
        config.check()?;
        let mut core = self.core();
        self.shared.global_limit.store(config.global_cache_max_blocks, Ordering::Relaxed);
        core.set_config(config);
        self.shared.new_version();
        Ok(())
    }

    /// Waits, on the host, for all work of the device.
    pub fn synchronize(&self) -> Result<(), PoolError> {
        Ok(self.shared.driver.synchronize_all()?)
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let calls = self.shared.driver.calls();
        self.core().stats(calls)
    }

    /// Sets the counters back that say so in [`Stats`].
    pub fn reset_stats(&self) {
        self.core().reset_stats();
    }

    /// Writes the counters to the standard error.
    pub fn print_stats(&self) {
        eprint!("{}", self.stats());
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
        if let Some(token) = self.recorder.allocated(&Sample { address, size, weight }) {
            lock(&self.records).add(&self.read.pages, address, token);
        }
    }

    /// Tells the recorder of a block that is about to be freed, if it is recorded.
    #[cold]
    fn forget(&self, address: u64) {
        let token = lock(&self.records).take(&self.read.pages, address);
        if let Some(token) = token {
            self.recorder.freed(token, address);
        }
    }

    /// A round of background work, with at most so many calls while the lock is held. Returns whether it made as many.
    fn maintain(&self, most: u64) -> bool {
        let now = self.driver.device().now();
        let mut core = lock(&self.core);
        let more = core.maintain(now, most);
        let newly = core.take_newly_lost();
        let silent = if core.large.lanes.is_any_capturing() {
            Vec::new()
        } else {
            core.large.lanes.silence_idle(now, IDLE_STREAM);
            core.large.lanes.silent()
        };
        if !newly.is_empty() || core.is_time_to_look_again(now) {
            self.new_version();
        }
        drop(core);
        newly.into_iter().for_each(|lane| self.hand_over(lane));
        // No lock is held while the host waits for the device.
        if !silent.is_empty() && self.driver.synchronize_all().is_ok() {
            lock(&self.core).large.lanes.hear(&silent);
        }
        more
    }

    /// Puts what the global caches have of a stream that is gone into the reserve.
    fn hand_over(&self, lane: LaneId) {
        let blocks: Vec<_> = self.global.iter().filter_map(|global| lock(global).remove(&lane)).collect();
        lock(&self.core).slabs.put_all(blocks.into_iter().flatten());
    }

    /// Makes all threads look again. The caller holds the core's lock.
    fn new_version(&self) {
        self.read.version.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    fn new_cache(&self) -> Arc<ThreadCache> {
        let mut core = lock(&self.core);
        let cache = Arc::new(ThreadCache::new(self.read.id, self.own.clone(), core.limits()));
        core.threads.push(cache.clone());
        cache
    }

    /// Whether a stream is the one that the thread used last, and nothing has changed since.
    #[inline]
    fn knows(&self, knowledge: &Knowledge, stream: Stream) -> bool {
        // Relaxed: who may use a changed stream or setting has heard of it from the thread that changed it.
        knowledge.version == self.read.version.load(Ordering::Relaxed) && knowledge.last.0 == stream
    }

    /// Sees to it that the cache's last stream is this one, and that it knows the settings.
    fn meet(&self, cache: &ThreadCache, knowledge: &mut Knowledge, stream: Stream) -> Result<(), PoolError> {
        if self.knows(knowledge, stream) { Ok(()) } else { self.learn(cache, knowledge, stream) }
    }

    fn learn(&self, cache: &ThreadCache, knowledge: &mut Knowledge, stream: Stream) -> Result<(), PoolError> {
        if knowledge.version == self.read.version.load(Ordering::Relaxed)
            && let Some(known) = knowledge.known.iter().find(|(known, _)| *known == stream)
        {
            knowledge.last = *known;
            return Ok(());
        }
        let mut core = lock(&self.core);
        let version = self.read.version.load(Ordering::Relaxed);
        if knowledge.version != version {
            knowledge.known.clear();
            // SAFETY: this is the owning thread, which has the lock.
            let lists = unsafe { cache.lists() };
            let blocks = lists.drain();
            let limits = core.limits();
            if std::mem::replace(&mut knowledge.limits, limits) != limits {
                lists.begin_anew();
            }
            for (lane, class, blocks) in blocks {
                if core.large.lanes.is_alive(lane) {
                    lists.get_or_new(lane, class, &knowledge.limits).blocks = blocks;
                } else {
                    blocks.iter().for_each(|address| {
                        core.slabs.put(*address);
                    });
                }
            }
            // What it knew of the last stream is gone, too; an error below must not leave it.
            knowledge.last = (stream, None);
        }
        let met = (stream, core.small_lane(stream)?);
        knowledge.version = version;
        knowledge.known.push(met);
        knowledge.last = met;
        Ok(())
    }

    /// Takes a block from a thread's list, filled by a batch if it is empty.
    fn refill(
        &self,
        cache: &ThreadCache,
        knowledge: &mut Knowledge,
        lane: LaneId,
        class: usize,
    ) -> Result<u64, PoolError> {
        let stream = knowledge.last.0;
        // SAFETY: this is the owning thread; the version was seen before.
        let list = unsafe { cache.lists() }.get_or_new(lane, class, &knowledge.limits);
        if let Some(address) = list.blocks.pop() {
            if knowledge.limits.count {
                Counters::add(&cache.counters.allocations[class]);
            }
            return Ok(address);
        }
        let batch = list.ran_out(&knowledge.limits);
        let mut blocks = Vec::new();
        if let Some(global) = lock(&self.global[class]).get_mut(&lane) {
            blocks = global.split_off(global.len().saturating_sub(batch));
        }
        let mut core = lock(&self.core);
        core.counters.global_hits += u64::from(!blocks.is_empty());
        if blocks.is_empty()
            && core.take_from_reserve(class, lane, batch, &mut blocks) == 0
            && core.take_from_new_slab(class, lane, stream, false, batch, &mut blocks)? == 0
        {
            // SAFETY: as above; `list` is not used again.
            let own = || self.reclaim(unsafe { cache.lists() }.drain());
            let hoards = core.hoards();
            drop(core);
            if hoards {
                own();
            }
            let mut take = |core: &mut Core<D>| core.take_from_new_slab(class, lane, stream, true, batch, &mut blocks);
            let first = take(&mut lock(&self.core));
            self.climb(first, size_of(class), stream, own, take)?;
            core = lock(&self.core);
        }
        drop(core);
        // SAFETY: as above.
        let list = unsafe { cache.lists() }.get_or_new(lane, class, &knowledge.limits);
        list.blocks.append(&mut blocks);
        let address = list.blocks.pop().ok_or(PoolError::NotABlock(0))?;
        if knowledge.limits.count {
            Counters::add(&cache.counters.allocations[class]);
        }
        Ok(address)
    }

    /// Moves blocks of a list that is too long to the global cache, and what is too much there to the reserve.
    fn flush(&self, moved: impl Iterator<Item = u64>, lane: LaneId, class: usize) {
        let mut global = lock(&self.global[class]);
        let blocks = global.entry(lane).or_default();
        blocks.extend(moved);
        let too_many = blocks.len().saturating_sub(self.global_limit.load(Ordering::Relaxed));
        let excess = blocks.split_off(blocks.len() - too_many);
        drop(global);
        if !excess.is_empty() {
            lock(&self.core).slabs.put_all(excess);
        }
    }

    /// Climbs the ladder for a request that found no memory, and tries again after each step; `own` empties the caches of the
    /// calling thread.
    fn climb<T>(
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
            let step = if request > lock(&self.core).most() { Step::PinnedHost } else { step };
            if step == Step::Release && self.driver.device().properties().virtual_memory {
                continue;
            }
            match step {
                Step::OwnCaches => own(),
                Step::AllCaches => self.reclaim_all(),
                Step::PendingFrees => lock(&self.core).wait_for_pending(),
                Step::Defragment => lock(&self.core).defragment_unless_capturing(),
                Step::Release => {
                    lock(&self.core).trim();
                }
                Step::PinnedHost => return Err(lock(&self.core).out_of_memory(request, stream, cause, tried)),
            }
            tried.push(step);
            let mut core = lock(&self.core);
            result = again(&mut core);
            core.counters.ladder.count(step, result.is_ok());
        }
        result
    }

    /// Puts these blocks, which are out of the thread's own lists, and those of the global caches into the reserve, and hands
    /// back the slabs that are empty.
    fn reclaim(&self, own: Vec<(LaneId, usize, Vec<u64>)>) {
        let mut blocks: Vec<u64> = own.into_iter().flat_map(|(.., blocks)| blocks).collect();
        for global in &self.global {
            blocks.extend(lock(global).drain().flat_map(|(_, blocks)| blocks));
        }
        let mut core = lock(&self.core);
        core.slabs.put_all(blocks);
        core.return_slabs();
    }

    /// The same with all blocks of the calling thread's.
    fn reclaim_own(&self) {
        let drain = |cache: &ThreadCache| {
            let _core = lock(&self.core);
            // SAFETY: this is the owning thread; where the version is not the pool's any more, another thread may have the
            // lists, but not while the lock is held here.
            unsafe { cache.lists() }.drain()
        };
        self.reclaim(with_current_cache(self.read.id, drain).unwrap_or_default());
    }

    /// The same with all blocks of all threads. One that is in a call keeps its blocks until its next call.
    fn reclaim_all(&self) {
        self.collect(&mut lock(&self.core));
        self.reclaim(Vec::new());
    }

    /// Puts the blocks of all threads that are in no call into the reserve.
    fn collect(&self, core: &mut Core<D>) {
        self.new_version();
        if !pass_by_all_threads() {
            return;
        }
        let Core { threads, slabs, .. } = core;
        for thread in threads.iter().filter(|thread| thread.is_at_rest()) {
            // SAFETY: the lock is held and the owner at rest; until it is let go, nobody else has the lists.
            for (.., blocks) in unsafe { thread.lists() }.drain() {
                slabs.put_all(blocks);
            }
        }
    }
}

impl<D: Device> Home for Shared<D> {
    fn take_all(&self, cache: &Arc<ThreadCache>) {
        let mut core = lock(&self.core);
        // SAFETY: this is the owning thread, which has the lock.
        for (.., blocks) in unsafe { cache.lists() }.drain() {
            core.slabs.put_all(blocks);
        }
        core.ended.add(&cache.counters);
        core.threads.retain(|thread| !Arc::ptr_eq(thread, cache));
    }
}

impl<D: Device> Drop for Shared<D> {
    fn drop(&mut self) {
        self.recorder.closed();
        let core = self.core.get_mut().unwrap_or_else(PoisonError::into_inner);
        for global in &mut self.global {
            let global = global.get_mut().unwrap_or_else(PoisonError::into_inner);
            core.slabs.put_all(global.drain().flat_map(|(_, blocks)| blocks));
        }
        let Core { threads, slabs, .. } = core;
        for thread in threads.iter() {
            // SAFETY: a thread in a call has a reference to the pool, and there is none any more.
            for (.., blocks) in unsafe { thread.lists() }.drain() {
                slabs.put_all(blocks);
            }
        }
        // What the program still has keeps its slabs.
        core.return_slabs();
    }
}
