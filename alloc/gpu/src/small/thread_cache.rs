//! A thread's own free blocks, by stream and class: no lock, no atomic read-modify-write, no call to the driver.
//!
//! A thread has a cache for each pool that it uses. It finds the lane of a stream by comparing it with the one it used last;
//! a word that all threads read, and that changes only with streams, captures and settings, says when what it knows is old.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::classes::{CLASSES, size_of};
use crate::device::Stream;
use crate::pending::LaneId;

/// Bytes that a list holds at first if that is fewer blocks than the setting allows; two blocks in any case.
const LIST_BYTES: u64 = 1 << 20;

/// The settings that the fast path needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub alignment: u64,
    /// Blocks that move at a time.
    pub batch: usize,
    /// Blocks of each class that a thread keeps for a stream.
    pub blocks: usize,
}

/// The free blocks of a class and a stream.
///
/// A list begins short where blocks are large, and may hold twice as many each time that it runs out of blocks after it had
/// too many: then more of them would have served the program without the global cache. (tcmalloc's lists grow so, too.)
#[derive(Debug, Default)]
pub struct List {
    pub blocks: Vec<u64>,
    /// Blocks that it may hold.
    limit: usize,
    /// It had too many since it last ran out.
    overflowed: bool,
}

impl List {
    #[inline]
    pub fn is_too_long(&self) -> bool {
        self.blocks.len() > self.limit
    }

    fn begin(&mut self, limits: &Limits, class: usize) {
        if self.limit == 0 {
            self.limit = limits.blocks.min((LIST_BYTES / size_of(class)).max(2) as usize);
        }
    }

    /// Says that it has run out. Returns how many blocks it should get.
    pub fn ran_out(&mut self, limits: &Limits, class: usize) -> usize {
        self.begin(limits, class);
        if std::mem::take(&mut self.overflowed) {
            self.limit = (self.limit * 2).min(limits.blocks);
        }
        limits.batch.min(self.limit.div_ceil(2)).max(1)
    }

    /// Takes out what is too much, and then a batch, or half of what it may hold: the blocks that have been in it the longest.
    pub fn overflow(&mut self, limits: &Limits, class: usize) -> impl Iterator<Item = u64> + '_ {
        self.begin(limits, class);
        let mut moved = self.blocks.len().saturating_sub(self.limit);
        if moved > 0 {
            self.overflowed = true;
            moved += limits.batch.min(self.limit / 2);
        }
        self.blocks.drain(..moved)
    }
}

/// What a thread has counted. It alone writes; all may read. On cache lines of its own, two by two as they are fetched.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    pub allocations: [AtomicU64; CLASSES],
    pub frees: [AtomicU64; CLASSES],
}

impl Counters {
    /// Adds one; only the owner may.
    #[inline]
    pub fn add(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The lists of a stream.
type Lists = [List; CLASSES];

/// A thread's cache for one pool.
pub struct ThreadCache {
    pool: u64,
    home: Weak<dyn Home>,
    /// What the pool's word was when the rest was learnt.
    pub version: u64,
    pub limits: Limits,
    /// The stream used last, and its lane; `None` if small blocks of it don't come from here.
    pub last: (Stream, Option<LaneId>),
    /// All streams that it has met since.
    pub known: Vec<(Stream, Option<LaneId>)>,
    lanes: Vec<Option<Box<Lists>>>,
    pub counters: Arc<Counters>,
}

/// The pool that a cache's blocks go back to.
pub trait Home: Send + Sync {
    /// Takes all blocks of a cache whose thread ends.
    fn take_all(&self, cache: &mut ThreadCache);
}

impl ThreadCache {
    pub fn new(pool: u64, home: Weak<dyn Home>, limits: Limits, counters: Arc<Counters>) -> ThreadCache {
        let (last, known) = ((Stream::NULL, None), Vec::new());
        ThreadCache { pool, home, version: u64::MAX, limits, last, known, lanes: Vec::new(), counters }
    }

    /// The list of a class and a lane, if the lane has any.
    #[inline]
    pub fn list(&mut self, lane: LaneId, class: usize) -> Option<&mut List> {
        match self.lanes.get_mut(lane as usize) {
            Some(Some(lists)) => Some(&mut lists[class]),
            _ => None,
        }
    }

    /// The list of a class and a lane, empty if the lane has none.
    pub fn list_or_new(&mut self, lane: LaneId, class: usize) -> &mut List {
        let at = lane as usize;
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, || None);
        }
        &mut self.lanes[at].get_or_insert_default()[class]
    }

    /// Lets all lists begin anew, with other settings.
    pub fn set_limits(&mut self, limits: Limits) {
        if self.limits != limits {
            self.limits = limits;
            self.lanes.iter_mut().flatten().flat_map(|lists| lists.iter_mut()).for_each(|list| list.limit = 0);
        }
    }

    /// Takes all blocks out, with their lanes and classes.
    pub fn drain(&mut self) -> Vec<(LaneId, usize, Vec<u64>)> {
        let mut all = Vec::new();
        for (lane, lists) in self.lanes.iter_mut().enumerate() {
            for (class, list) in lists.iter_mut().flat_map(|lists| lists.iter_mut().enumerate()) {
                if !list.blocks.is_empty() {
                    all.push((lane as LaneId, class, std::mem::take(&mut list.blocks)));
                }
            }
        }
        all
    }
}

/// All caches of a thread.
struct Caches(Vec<ThreadCache>);

impl Drop for Caches {
    fn drop(&mut self) {
        for cache in &mut self.0 {
            if let Some(home) = cache.home.upgrade() {
                home.take_all(cache);
            }
        }
    }
}

thread_local! {
    static CACHES: RefCell<Caches> = const { RefCell::new(Caches(Vec::new())) };
}

/// Does something with the thread's cache for a pool, which is made if there is none. `None` where the thread is ending and
/// has no caches any more.
#[inline]
pub fn with_cache<R>(
    pool: u64,
    make: impl FnOnce() -> ThreadCache,
    work: impl FnOnce(&mut ThreadCache) -> R,
) -> Option<R> {
    let with = |caches: &RefCell<Caches>| {
        let caches = &mut caches.borrow_mut().0;
        // The pool used last is first.
        match caches.first() {
            Some(first) if first.pool == pool => {}
            _ => bring_forward(caches, pool, make),
        }
        work(&mut caches[0])
    };
    CACHES.try_with(with).ok()
}

#[cold]
fn bring_forward(caches: &mut Vec<ThreadCache>, pool: u64, make: impl FnOnce() -> ThreadCache) {
    caches.retain(|cache| cache.pool == pool || cache.home.strong_count() > 0);
    match caches.iter().position(|cache| cache.pool == pool) {
        Some(at) => caches.swap(0, at),
        None => {
            caches.push(make());
            let last = caches.len() - 1;
            caches.swap(0, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, List};

    #[test]
    fn a_list_that_overflows_and_runs_out_may_hold_more() {
        let limits = Limits { alignment: 256, batch: 16, blocks: 64 };
        let class = super::CLASSES - 1;
        let mut list = List::default();
        let mut held = Vec::new();
        for _ in 0..10 {
            list.blocks.clear();
            assert!(list.ran_out(&limits, class) >= 1);
            while !list.is_too_long() {
                list.blocks.push(0);
            }
            held.push(list.blocks.len() - 1);
            let moved = list.overflow(&limits, class).count();
            assert!(moved > 0 && !list.is_too_long());
        }
        assert_eq!(held, [2, 4, 8, 16, 32, 64, 64, 64, 64, 64]);
    }

    #[test]
    fn a_list_that_only_runs_out_or_only_overflows_stays_short() {
        let limits = Limits { alignment: 256, batch: 16, blocks: 64 };
        let class = super::CLASSES - 1;
        let mut list = List::default();
        (0..10).for_each(|_| assert_eq!(list.ran_out(&limits, class), 1));
        for _ in 0..10 {
            list.blocks.extend([0; 5]);
            list.overflow(&limits, class).for_each(drop);
            assert!(!list.is_too_long() && list.blocks.len() <= 2);
        }
    }
}
