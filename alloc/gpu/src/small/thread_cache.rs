//! A thread's own free blocks, by stream and class: no lock, no atomic read-modify-write, no call to the driver.
//!
//! A thread has a cache for each pool that it uses. It finds the lane of a stream by comparing it with the one it used
//! last; a word that all threads read, and that changes only with streams, captures and settings,
//! says when what it knows is old.
//!
//! **Who may touch it.** The thread says that it is busy, then looks at that word, then touches its lists. Who wants
//! the lists of another thread holds the pool's lock, changes the word, lets every running thread pass a barrier
//! ([`super::barrier`]), and then looks whether the thread is busy. If it is not, it will find the word changed and
//! wait for the lock before it touches its lists; if it is, its lists are left alone.

use std::cell::{RefCell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};
use std::sync::{Arc, Weak};

use super::classes::CLASSES;
use super::counters::Counters;
use super::current;
use super::fitted::{Fitted, FittedBlock};
use super::list::{Limits, List, wipe_behind};
use crate::device::Stream;
use crate::streams::LaneId;
use crate::watch::sampling::Budgets;

/// Blocks of all classes that a thread keeps for its next samples. Each is of less than a page.
const RECORDED: usize = 32;

/// The free blocks of a thread for a lane.
struct LaneLists {
    classes: [List; CLASSES],
    /// Blocks of slabs of recorded blocks, with their classes.
    recorded: Vec<(usize, u64)>,
    /// Made when the first such block is freed.
    fitted: Option<Box<Fitted>>,
}

impl LaneLists {
    fn new(limits: &Limits) -> LaneLists {
        let classes = std::array::from_fn(|class| List::new(limits, class));
        LaneLists { classes, recorded: Vec::new(), fitted: None }
    }
}

/// Blocks that were taken out of a thread's lists.
#[derive(Default)]
pub struct Drained {
    /// Those of slabs, by lane and class.
    pub of_slabs: Vec<(LaneId, usize, Vec<u64>)>,
    /// Those of slabs of recorded blocks.
    pub recorded: Vec<u64>,
    /// The fitted ones, by lane.
    pub fitted: Vec<(LaneId, u64)>,
}

/// The free blocks of a thread, by lane.
#[derive(Default)]
pub struct Lists {
    lanes: Vec<Option<Box<LaneLists>>>,
    /// Bytes of all fitted blocks.
    fitted_bytes: u64,
}

impl Lists {
    #[inline]
    fn of(&mut self, lane: LaneId) -> Option<&mut LaneLists> {
        self.lanes.get_mut(lane as usize)?.as_deref_mut()
    }

    /// The list of a class and a lane, if the lane has any.
    #[inline]
    pub fn get(&mut self, lane: LaneId, class: usize) -> Option<&mut List> {
        Some(&mut self.of(lane)?.classes[class])
    }

    fn of_or_new(&mut self, lane: LaneId, limits: &Limits) -> &mut LaneLists {
        let at = lane as usize;
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, || None);
        }
        self.lanes[at].get_or_insert_with(|| Box::new(LaneLists::new(limits)))
    }

    /// The list of a class and a lane, empty if the lane has none.
    pub fn get_or_new(&mut self, lane: LaneId, class: usize, limits: &Limits) -> &mut List {
        &mut self.of_or_new(lane, limits).classes[class]
    }

    /// Takes a block of a class out of those that are to be recorded.
    pub fn take_recorded(&mut self, lane: LaneId, class: usize) -> Option<u64> {
        let recorded = &mut self.of(lane)?.recorded;
        let at = recorded.iter().rposition(|(of, _)| *of == class)?;
        let (_, address) = recorded.swap_remove(at);
        wipe_behind(recorded, 1);
        Some(address)
    }

    /// Keeps a block of a slab of recorded ones, if there is room for it.
    pub fn keep_recorded(&mut self, lane: LaneId, class: usize, address: u64, limits: &Limits) -> bool {
        let recorded = &mut self.of_or_new(lane, limits).recorded;
        let is_room = recorded.len() < RECORDED.min(limits.blocks);
        if is_room {
            recorded.push((class, address));
        }
        is_room
    }

    /// Takes a fitted block of at least so many bytes, and not many more.
    #[inline]
    pub fn take_fitted(&mut self, lane: LaneId, bytes: u64) -> Option<FittedBlock> {
        let block = self.of(lane)?.fitted.as_mut()?.take(bytes)?;
        self.fitted_bytes -= block.bytes;
        Some(block)
    }

    /// Keeps a fitted block, if there is room for it among so many bytes.
    #[inline]
    pub fn keep_fitted(&mut self, lane: LaneId, block: FittedBlock, most: u64) -> bool {
        let bytes = self.fitted_bytes + block.bytes;
        let Some(fitted) = self.of(lane).and_then(|lists| lists.fitted.as_mut()) else { return false };
        let kept = bytes <= most && fitted.put(block);
        if kept {
            self.fitted_bytes = bytes;
        }
        kept
    }

    /// Makes room for fitted blocks of a lane: takes those out that have been there for the longest, half of them.
    pub fn make_room_for_fitted(&mut self, lane: LaneId, limits: &Limits, take: impl FnMut(LaneId, u64)) {
        self.of_or_new(lane, limits).fitted.get_or_insert_with(Fitted::new);
        self.take_oldest_fitted(2, take);
    }

    /// Takes all fitted blocks out.
    pub fn take_all_fitted(&mut self, take: impl FnMut(LaneId, u64)) {
        self.take_oldest_fitted(1, take);
    }

    /// Takes this part of each lane's out, as a divisor.
    fn take_oldest_fitted(&mut self, part: u32, mut take: impl FnMut(LaneId, u64)) {
        for (lane, lists) in self.lanes.iter_mut().enumerate() {
            if self.fitted_bytes == 0 {
                break;
            }
            if let Some(fitted) = lists.as_mut().and_then(|lists| lists.fitted.as_mut()) {
                self.fitted_bytes -= fitted.take_oldest(part, |address| take(lane as LaneId, address));
            }
        }
    }

    /// Bytes of all fitted blocks.
    #[inline]
    pub fn fitted_bytes(&self) -> u64 {
        self.fitted_bytes
    }

    /// Takes all blocks out.
    pub fn drain(&mut self) -> Drained {
        let mut all = Drained::default();
        self.take_all_fitted(|lane, address| all.fitted.push((lane, address)));
        for (lane, lists) in self.lanes.iter_mut().enumerate() {
            let recorded = lists.iter_mut().flat_map(|lists| std::mem::take(&mut lists.recorded));
            all.recorded.extend(recorded.map(|(_, address)| address));
            for (class, list) in lists.iter_mut().flat_map(|lists| lists.classes.iter_mut().enumerate()) {
                if !list.blocks.is_empty() {
                    all.of_slabs.push((lane as LaneId, class, std::mem::take(&mut list.blocks)));
                }
            }
        }
        all
    }

    /// Forgets how long the lists have become, which are empty.
    pub fn begin_anew(&mut self) {
        self.lanes.clear();
    }
}

/// What a thread knows of its pool.
pub struct StreamCache {
    /// What the pool's word was when the rest was learnt.
    pub version: u64,
    pub limits: Limits,
    /// The stream used last, and its lane; `None` if small blocks of it don't come from here.
    pub last: (Stream, Option<LaneId>),
    /// All streams that it has met since.
    pub known: Vec<(Stream, Option<LaneId>)>,
    /// How far it is from its next samples.
    pub budgets: Budgets,
}

/// The pool that a cache's blocks go back to.
pub trait PoolHandle: Send + Sync {
    /// Takes all blocks of a cache whose thread ends.
    fn take_all(&self, cache: &Arc<ThreadCache>);
}

/// A thread's cache for one pool.
pub struct ThreadCache {
    pool: u64,
    home: Weak<dyn PoolHandle>,
    busy: AtomicBool,
    stream_cache: UnsafeCell<StreamCache>,
    lists: UnsafeCell<Lists>,
    pub counters: Counters,
}

// SAFETY: `stream_cache` is touched by the owning thread alone, `lists` by one thread at a time, as the module says.
// All else is atomic or does not change.
unsafe impl Sync for ThreadCache {}
// SAFETY: as above; nothing in it belongs to a thread by itself.
unsafe impl Send for ThreadCache {}

impl ThreadCache {
    /// One that knows nothing of its pool yet, not even the settings.
    pub fn new(pool: u64, home: Weak<dyn PoolHandle>) -> ThreadCache {
        let (last, known, budgets) = ((Stream::NULL, None), Vec::new(), Budgets::new());
        let limits = Limits { alignment: 1, count: false, batch: 1, blocks: 0 };
        let stream_cache = StreamCache { version: u64::MAX, limits, last, known, budgets };
        ThreadCache {
            pool,
            home,
            busy: AtomicBool::new(false),
            stream_cache: UnsafeCell::new(stream_cache),
            lists: UnsafeCell::default(),
            counters: Counters::default(),
        }
    }

    /// What the thread knows.
    ///
    /// # Safety
    /// The caller is the owning thread, in [`with_cache`], and has no other reference from here.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the caller says that there is no other")]
    pub unsafe fn stream_cache(&self) -> &mut StreamCache {
        // SAFETY: the caller's.
        unsafe { &mut *self.stream_cache.get() }
    }

    /// The thread's blocks.
    ///
    /// # Safety
    /// The caller has no other reference from here, and is the owning thread, in [`with_cache`] and with the pool's
    /// version seen since, or has the pool's lock; or it is another one that has the lock and found
    /// [`Self::is_at_rest`].
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "the caller says that there is no other")]
    pub unsafe fn lists(&self) -> &mut Lists {
        // SAFETY: the caller's.
        unsafe { &mut *self.lists.get() }
    }

    /// Whether the owner is in no call. To be asked with the pool's lock held, after its version was changed and all
    /// threads have passed a barrier: until the lock is let go, the owner does not touch its lists then.
    pub fn is_at_rest(&self) -> bool {
        !self.busy.load(Ordering::Acquire)
    }
}

/// All caches of a thread.
struct Caches(Vec<Arc<ThreadCache>>);

impl Drop for Caches {
    fn drop(&mut self) {
        current::set(ptr::null());
        for cache in &self.0 {
            if let Some(home) = cache.home.upgrade() {
                home.take_all(cache);
            }
        }
    }
}

thread_local! {
    static CACHES: RefCell<Caches> = const { RefCell::new(Caches(Vec::new())) };
}

/// The cache that the calling thread used last, which is busy until this is dropped.
pub struct CurrentCache(*const ThreadCache);

impl CurrentCache {
    /// If it is the one for a pool, and the thread is in no call to it.
    #[inline(always)]
    pub fn of(pool: u64) -> Option<CurrentCache> {
        // SAFETY: the current cache is one of `CACHES`, which only this thread changes, and not without this pointer.
        let cache = unsafe { current::get().as_ref() }?;
        if cache.pool != pool || cache.busy.load(Ordering::Relaxed) {
            return None;
        }
        cache.busy.store(true, Ordering::Relaxed);
        // The processor's order is kept by the barrier of whoever looks at it.
        compiler_fence(Ordering::SeqCst);
        Some(CurrentCache(cache))
    }
}

impl std::ops::Deref for CurrentCache {
    type Target = ThreadCache;

    #[inline(always)]
    fn deref(&self) -> &ThreadCache {
        // SAFETY: as above; a busy cache stays among them.
        unsafe { &*self.0 }
    }
}

impl Drop for CurrentCache {
    #[inline(always)]
    fn drop(&mut self) {
        self.busy.store(false, Ordering::Release);
    }
}

/// Does something with the thread's cache for a pool, which is made if there is none. `None` where the thread is ending
/// and has no caches any more.
pub fn with_cache<R>(
    pool: u64,
    make: impl FnOnce() -> Arc<ThreadCache>,
    work: impl FnOnce(&ThreadCache) -> R,
) -> Option<R> {
    // SAFETY: as above.
    let known = unsafe { current::get().as_ref() }.is_some_and(|cache| cache.pool == pool);
    if !known {
        find(pool, make)?;
    }
    CurrentCache::of(pool).map(|cache| work(&cache))
}

/// Does something with what the thread knows of each of its pools, if it is in no call to them.
pub fn for_each_stream_cache(work: impl Fn(&mut StreamCache)) {
    let each = |caches: &RefCell<Caches>| {
        let Ok(caches) = caches.try_borrow() else { return };
        for cache in caches.0.iter().filter(|cache| cache.is_at_rest()) {
            // SAFETY: this is the owning thread, and it is in no call that has a reference.
            work(unsafe { cache.stream_cache() });
        }
    };
    let _ = CACHES.try_with(each);
}

#[cold]
fn find(pool: u64, make: impl FnOnce() -> Arc<ThreadCache>) -> Option<()> {
    let find = |caches: &RefCell<Caches>| {
        current::set(ptr::null());
        let caches = &mut caches.borrow_mut().0;
        caches.retain(|cache| cache.pool == pool || cache.home.strong_count() > 0);
        let at = caches.iter().position(|cache| cache.pool == pool).unwrap_or_else(|| {
            caches.push(make());
            caches.len() - 1
        });
        current::set(Arc::as_ptr(&caches[at]));
    };
    CACHES.try_with(find).ok()
}

#[cfg(test)]
mod tests {
    use super::{Limits, Lists};

    #[test]
    fn no_copy_of_a_recorded_blocks_address_stays_where_it_was_taken_from() {
        let limits = Limits { alignment: 256, count: true, batch: 16, blocks: 64 };
        let mut lists = Lists::default();
        (0..4).for_each(|block| assert!(lists.keep_recorded(0, block % 2, 100 + block as u64, &limits)));
        (0..2).for_each(|class| assert!(lists.take_recorded(0, class).is_some()));
        let recorded = &mut lists.of(0).unwrap().recorded;
        assert_eq!(recorded.len(), 2);
        // SAFETY: an entry that was there, and is wiped.
        assert_eq!(unsafe { recorded.as_ptr().add(2).read() }, (0, 0));
    }
}
