//! The pool: device memory in the order of streams.
//!
//! A block that is freed on a stream may be allocated on the same stream at once, since what the stream does with it
//! comes later. Other streams get it behind an event, or when the work is known to be over. The program's part is that
//! of `cudaFreeAsync`: what it does with a block comes, in the order of streams, after its allocation and before its
//! free, or it says [`Pool::record_stream`] of the streams that come to use it otherwise.
//!
//! **Graphs.** A program that captures a stream says so first ([`Pool::begin_capture`]): what is then allocated on the
//! stream is the graph's own until the graph is given up, and nothing is asked of the driver that would end the
//! capture.
//!
//! Small blocks come from the thread's own cache and go there; everything else is behind a cold call. Locks nest in
//! this order: a thread's cache, then the pool's lock or one of the global caches' locks, never both.

mod background;
mod caches;
mod core;
mod crowd;
mod error;
mod ladder;
mod pools;
mod publisher;
mod reclaim;
mod records;
mod shared;
mod slow;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::delays::Delays;
use crate::device::{Device, Driver, Pinned, Stream};
use crate::large::{Large, PoolId};
use crate::settings::Config;
use crate::small::{
    Counters, CurrentCache, FittedState, LARGEST, Mark, Page, Pages, class_of, for_each_stream_cache, is_medium,
    size_of,
};
use crate::watch::hooks::{self, Quiet};
use crate::watch::sampling::{Lives, Place};
use crate::watch::{NoRecorder, Recorder, Stats};
use background::Background;
use core::{Core, InUse};
use crowd::Crowd;
pub use error::{Holding, OutOfMemory, PoolError};
pub use ladder::Step;
pub use pools::{OpenError, Pools};
use shared::{HARDENED, ReadByAll, Shared, lock};

/// Calls to the driver that the pool's thread makes while it has the lock: what an allocation may have to wait for.
const CALLS_IN_A_ROUND: u64 = 4;

/// The memory of a captured graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GraphPool(PoolId);

/// A pool of the memory of one device. It may be shared between threads.
pub struct Pool<D: Device> {
    /// Ends first, so that what it has of the pool is gone when the pool goes. Taken without any other lock.
    background: Mutex<Option<Background>>,
    shared: Arc<Shared<D>>,
}

/// A call for a block that the thread does not have at hand.
#[doc(hidden)]
pub struct Missed(Place);

/// To be called in a thread for which the recorder has another period from now on: its next allocations ask for it.
pub fn refresh_sampling_period() {
    for_each_stream_cache(|stream_cache| stream_cache.budgets.refresh());
}

/// The settings of a pool's pinned memory.
fn of_pinned(config: &Config) -> Config {
    Config { pinned_fallback: false, ..config.clone() }
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
        let driver = Arc::new(Driver::new(device));
        let large = Large::new(driver.clone())?;
        let pages = Arc::new(Pages::new(large.range()));
        let delays = Arc::new(Delays::default());
        let now = driver.device().now();
        let crowd = Arc::new(Crowd::default());
        let in_use = Arc::new(InUse::new(config.enable_stats));
        let shown = (delays.clone(), crowd.clone(), in_use.clone());
        let core = Core::new(large, pages.clone(), config.clone(), now, recorder.clone(), shown);
        let version = AtomicU64::new(if config.hardened { HARDENED } else { 0 });
        let shared = Arc::new_cyclic(|own| Shared {
            read: ReadByAll { id: POOLS.fetch_add(1, Ordering::Relaxed), pages, version, most_kept: AtomicU64::new(1) },
            driver,
            global_limit: AtomicUsize::new(limit),
            global: std::array::from_fn(|_| Mutex::default()),
            core: Mutex::new(core),
            recorder,
            records: Mutex::default(),
            lives: Lives::new(),
            pinned: OnceLock::new(),
            making_pinned: Mutex::new(()),
            falls_back: AtomicBool::new(config.pinned_fallback),
            crowd,
            in_use,
            delays,
            own: own.clone(),
        });
        shared.recorder.watch(&shared.read.version);
        hooks::join(shared.own.clone());
        let pool = Pool { background: Mutex::new(None), shared };
        if config.pinned_fallback {
            pool.pinned_memory()?;
        }
        pool.start_background(config.background_interval_ms);
        Ok(pool)
    }

    /// Has the background work done so often by a thread of the pool's own; 0: by none.
    fn start_background(&self, interval_ms: u64) {
        let interval = Duration::from_millis(interval_ms);
        let wanted = !interval.is_zero() && !self.shared.driver.device().is_simulated();
        let pool = Arc::downgrade(&self.shared);
        let round = move || {
            let Some(shared) = pool.upgrade() else { return false };
            while shared.maintain(CALLS_IN_A_ROUND) {
                // Whoever waits for the lock goes first.
                std::thread::yield_now();
            }
            true
        };
        let mut background = lock(&self.background);
        // The old one ends before the new one begins.
        *background = None;
        *background = if wanted { Background::start(interval, round) } else { None };
    }

    fn core(&self) -> MutexGuard<'_, Core<D>> {
        self.shared.core()
    }

    /// The device.
    pub fn device(&self) -> &D {
        self.shared.driver.device()
    }

    /// The number that the device is shown by, and which memory of it the pool gives out (`poolscope_wire::kind`).
    pub fn shown_as(&self) -> (u32, u16) {
        self.shared.recorder.shown_as()
    }

    /// A block of at least so many bytes, for work given to the stream from now on. It returns the block's address.
    #[inline]
    pub fn allocate(&self, size: u64, stream: Stream) -> Result<u64, PoolError> {
        self.allocate_quickly(size, stream).or_else(|missed| self.allocate_after(missed, size, stream))
    }

    /// The first half of [`allocate`](Self::allocate), for callers that want no frame around it: a block that the
    /// thread has at hand. Without one, [`allocate_after`](Self::allocate_after) is to be called.
    #[doc(hidden)]
    #[inline(always)]
    pub fn allocate_quickly(&self, size: u64, stream: Stream) -> Result<u64, Missed> {
        // Where this is on the stack tells calls from each other.
        let here = 0_u8;
        let place = Place::new((&raw const here).addr(), size);
        self.pop(size, stream, place).ok_or(Missed(place))
    }

    /// The second half.
    #[doc(hidden)]
    #[inline]
    pub fn allocate_after(&self, missed: Missed, size: u64, stream: Stream) -> Result<u64, PoolError> {
        self.allocate_slowly(size, stream, missed.0)
    }

    /// A block from the list that the thread used last for this stream and class, if there is one.
    #[inline(always)]
    fn pop(&self, size: u64, stream: Stream, place: Place) -> Option<u64> {
        if size > LARGEST {
            return None;
        }
        let shared = &*self.shared;
        let cache = &*CurrentCache::of(shared.read.id)?;
        // SAFETY: this is the owning thread, which has no other reference.
        let stream_cache = unsafe { cache.stream_cache() };
        if !shared.knows(stream_cache, stream) {
            return None;
        }
        let class = class_of(size.max(stream_cache.limits.alignment));
        let counted = stream_cache.budgets.passes(class, size_of(class), place)?;
        let lane = stream_cache.last.1?;
        // SAFETY: as above; the version was seen just now.
        let Some(address) = unsafe { cache.lists() }.get(lane, class)?.blocks.pop() else {
            // SAFETY: as above; neither the list nor what the thread knows is used again.
            return if is_medium(class) { unsafe { shared.pop_fitted(cache, size, counted) } } else { None };
        };
        stream_cache.budgets.count(counted, class, size_of(class));
        if stream_cache.limits.count {
            Counters::add(&cache.counters.allocations[class]);
        }
        shared.read.pages.give(address);
        Some(address)
    }

    /// Frees a block: work that was given to the stream before may still use it.
    /// What is no block of the program's is refused.
    #[inline]
    pub fn free(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        if self.free_quickly(address, stream) { Ok(()) } else { self.free_after(address, stream) }
    }

    /// The first half of [`free`](Self::free), for callers that want no frame around it: whether the thread could take
    /// the block by itself. Otherwise, [`free_after`](Self::free_after) is to be called.
    #[doc(hidden)]
    #[inline(always)]
    pub fn free_quickly(&self, address: u64, stream: Stream) -> bool {
        let (page, mark) = self.shared.read.pages.find(address);
        match page.class() {
            Some(class) => match mark.filter(|mark| mark.is_given()) {
                Some(mark) => self.push(address, class, page, mark, stream),
                None => false,
            },
            None => page.is_fitted() && self.keep(address, page, stream),
        }
    }

    /// The second half.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn free_after(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let (page, mark) = self.shared.read.pages.find(address);
        self.free_slowly(address, page, mark, stream)
    }

    /// Puts a block onto the list that the thread used last for this stream and class, if it is that stream's alone.
    #[inline(always)]
    fn push(&self, address: u64, class: usize, page: Page, mark: Mark<'_>, stream: Stream) -> bool {
        let shared = &*self.shared;
        let Some(cache) = CurrentCache::of(shared.read.id) else { return false };
        // SAFETY: this is the owning thread, which has no other reference.
        let stream_cache = unsafe { cache.stream_cache() };
        let Some(lane) = stream_cache.last.1.filter(|_| shared.knows(stream_cache, stream)) else { return false };
        if !page.is_of(lane) {
            return false;
        }
        // SAFETY: as above; the version was seen just now.
        let Some(list) = unsafe { cache.lists() }.get(lane, class).filter(|list| !list.is_full()) else {
            return false;
        };
        // The mark says that a block begins there.
        mark.take();
        list.blocks.push(address);
        if stream_cache.limits.count {
            Counters::add(&cache.counters.frees[class]);
        }
        true
    }

    /// Keeps a fitted block in the thread's cache, if it is of the stream used last, which alone uses it.
    #[inline(never)]
    fn keep(&self, address: u64, page: Page, stream: Stream) -> bool {
        let shared = &*self.shared;
        let Some(mark) = shared.read.pages.fitted(address) else { return false };
        let FittedState::Given(bytes) = mark.state() else { return false };
        let Some(cache) = CurrentCache::of(shared.read.id) else { return false };
        // SAFETY: this is the owning thread, which has no other reference.
        let stream_cache = unsafe { cache.stream_cache() };
        let Some(lane) = stream_cache.last.1.filter(|_| shared.knows(stream_cache, stream)) else { return false };
        // SAFETY: as above; the version was seen just now.
        page.is_of(lane) && unsafe { shared.keep(&cache, lane, address, bytes, mark, stream_cache.limits.count) }
    }

    /// Whether a thread keeps the fitted block that begins there.
    fn is_kept(&self, address: u64) -> bool {
        self.shared.read.pages.fitted_state(address) == FittedState::Kept
    }

    /// Says that work on this stream uses the block, too: when it is freed,
    /// it waits for what the stream has to do then.
    pub fn record_stream(&self, address: u64, stream: Stream) -> Result<(), PoolError> {
        let (page, mark) = self.shared.read.pages.find(address);
        let result = match page.class() {
            Some(_) if !mark.is_some_and(Mark::is_given) => Err(self.core().no_block(address)),
            None if page.is_fitted() && self.is_kept(address) => Err(self.core().no_block(address)),
            class => self.core().share(address, stream, class.is_some()),
        };
        match self.shared.pinned.get() {
            Some(pinned) if matches!(result, Err(PoolError::NotABlock(_))) => pinned.record_stream(address, stream),
            _ => result,
        }
    }

    /// Bytes that a block of the program's has; `None` if none begins there.
    pub fn size_of(&self, address: u64) -> Option<u64> {
        let (page, mark) = self.shared.read.pages.find(address);
        match page.class() {
            Some(class) => mark.is_some_and(Mark::is_given).then(|| size_of(class)),
            None if page.is_fitted() && self.is_kept(address) => None,
            None => {
                let size = self.core().large.size_of(address);
                size.or_else(|| self.shared.pinned.get()?.size_of(address))
            }
        }
    }

    /// Says that a stream is about to be destroyed. What was freed on it is handed to the other streams; what other
    /// threads have of it in their caches, when they next come by. On an error the stream must stay.
    ///
    /// A program that forgets it should at least not use the pool for two rounds of background work
    /// ([`Config::background_interval_ms`]): until then another stream's request may ask for an event behind the gone
    /// one, and a driver that is asked for a stream that is gone need not answer (that of CUDA 13.0 ends the process). The
    /// pool looks first whether the handle's memory is what it was, which an allocator that writes to free memory changes.
    /// Later the pool does not touch the handle, and the memory serves others once the device has been waited for.
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

    /// Says that the stream's work is about to be captured. Blocks allocated on it until
    /// [`end_capture`](Self::end_capture) are the graph's.
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

    /// Gives up a graph's memory, in the order of a stream that comes after its last launch. Blocks of it that are
    /// still allocated stay so.
    pub fn end_graph(&self, graph: GraphPool, stream: Stream) -> Result<(), PoolError> {
        let mut core = self.core();
        let lane = core.lane(stream)?;
        core.large.end_pool(graph.0, lane);
        Ok(())
    }

    /// Puts free memory for so many blocks of a size into the pool, for a stream.
    pub fn preallocate(&self, size: u64, count: usize, stream: Stream) -> Result<(), PoolError> {
        let _quiet = Quiet::begin();
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

    /// The background work: looks how far the streams are, merges what is over, and gives back what was idle for long,
    /// within the budget of calls. The pool's own thread does it now and then ([`Config::background_interval_ms`]), a
    /// few calls at a time; here all that is due is done at once, with the pool's lock held.
    pub fn maintain(&self) {
        self.shared.maintain(u64::MAX);
    }

    /// Lets another device read and write this pool's memory, what it has now and what will come. The other way round
    /// is another call, on the other pool.
    pub fn enable_peer(&self, peer: &D) -> Result<(), PoolError> {
        let core = self.core();
        self.device().enable_peer(peer)?;
        Ok(core.large.open_to_peers()?)
    }

    /// Merges all free memory that is next to each other, whatever it was used for, once its work is over.
    pub fn defragment(&self) {
        self.core().defragment();
    }

    /// Gives all memory back to the device that is free and known to be past its work: that of the large blocks, of the
    /// global cache and of the caches of all threads. Returns the bytes.
    ///
    /// A thread that is in a call to the pool at this moment keeps its cache, and all other threads do where the kernel
    /// has no `membarrier` (before Linux 4.14, and where a sandbox forbids it).
    pub fn trim_cache(&self) -> u64 {
        self.shared.reclaim_all();
        self.core().trim()
    }

    /// Waits until the work on all freed memory is over, then gives back what [`trim_cache`](Self::trim_cache) does.
    /// Returns the bytes.
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

    /// The pool of pinned host memory for this device's streams, made when it is first asked for. With
    /// [`Config::pinned_fallback`], blocks come from it when there is no other memory;
    /// its blocks may be freed here as well as there.
    pub fn pinned_memory(&self) -> Result<&Pool<Pinned>, PoolError> {
        let shared = &*self.shared;
        if let Some(pinned) = shared.pinned.get() {
            return Ok(pinned);
        }
        let _making = lock(&shared.making_pinned);
        if let Some(pinned) = shared.pinned.get() {
            return Ok(pinned);
        }
        let device = Arc::new(Pinned::new(shared.driver.shared_device()));
        let made = Pool::with_recorder(device, of_pinned(&self.config()), shared.recorder.for_pinned())?;
        Ok(shared.pinned.get_or_init(|| Box::new(made)))
    }

    /// Other settings, from now on: all of them, or, on an error, none.
    pub fn set_config(&self, config: Config) -> Result<(), PoolError> {
        let before = self.config();
        config.check_change_from(&before)?;
        if config.pinned_fallback {
            self.pinned_memory()?;
        }
        if let Some(pinned) = self.shared.pinned.get() {
            pinned.set_config(of_pinned(&config))?;
        }
        self.shared.falls_back.store(config.pinned_fallback, Ordering::Relaxed);
        if config.background_interval_ms != before.background_interval_ms {
            self.start_background(config.background_interval_ms);
        }
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

    /// Has the most that there was (`peak_usage`, `peak_held`) begin anew with what there is.
    pub fn reset_peaks(&self) {
        self.core().reset_peaks();
    }

    /// Writes the counters to the standard error.
    pub fn print_stats(&self) {
        eprint!("{}", self.stats());
    }
}
