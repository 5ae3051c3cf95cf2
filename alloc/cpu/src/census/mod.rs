//! The census: figures that are right when a reader looks, however the program goes idle.
//!
//! The fast path counts nothing, so that a thread knows what it holds only when it has been in the slow path. There are
//! two ways to know it anyway, and a process changes between them:
//!
//! - **Calls are counted.** The fast path of all threads is closed ([`Reason::Count`]): each call takes the slow path,
//!   keeps the thread's counters exact, and publishes them ([`counted_call`]). So begins every process.
//! - **The pool's thread watches.** After [`CALLS_MAX`] counted calls, which is what a thread costs, the fast path is
//!   opened and the thread started ([`crate::process::scavenger`]). It takes a census each [`INTERVAL_MS`]: it walks
//!   the descriptors of all pages and the lists of all threads, while these go on, asks the kernel which pages have
//!   memory, and publishes what it found. When nothing has changed between two, it closes the fast path, takes a last
//!   census ([`look`]) and may end. So an idle program has no wake-ups, and none of its calls goes unseen: each thread
//!   counts itself anew at its next one.
//!
//! A census reads what others write. It writes nothing of theirs but the segment, follows a list only along addresses
//! where a block of that slab begins, and no further than the slab has blocks. What it reads of a thread that runs is
//! off by what that thread does meanwhile; of one that does not run it is exact.
//!
//! Where no thread can be had, threads publish their counters at refills. Where the system has no room for one, they do
//! so until it may have ([`watch_again`]): to count calls for as long would make each of them twenty times as slow.

mod walk;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use poolscope_wire::ClassCounters;

use crate::kernel::os;
use crate::kernel::raw_thread;
use crate::layout::size_class::SizeClass;
use crate::pages::keeper::{self, Watcher};
use crate::segment::counters::{self, TierCounter};
use crate::segment::ownership;
use crate::segment::publish;
use crate::segment::publish::WATCHED;
use crate::sync::reasons::is_counting;
use crate::sync::reasons::{self, Reason};
use crate::sync::spin_lock::{ForkLock, SlowPath, SpinLock};
use crate::threads::detour;
use crate::threads::heaps;
use crate::tiers::notes::{ClassNotes, update};
use crate::tiers::publish as heap_publish;
use crate::tiers::thread_cache::{ClassSlabs, Heap};

use walk::{Found, Pieces, walk};

/// Calls that are counted before the pool's thread is started: they cost about as much as its start.
const CALLS_MAX: u32 = 512;
/// Bytes of pages of the largest pool of which a call takes a census by itself.
const OWN_MAX: u64 = 16 << 20;
/// Milliseconds between two censuses. A reader is to find figures of the last 100.
pub const INTERVAL_MS: u64 = 80;
/// Between two censuses, the thread rests this many times as long as one took.
const REST: u64 = 100;
/// The same while memory goes back, which makes figures wrong until the next census: some seconds at the end of a
/// program's work.
const REST_WHILE_GIVING: u64 = 20;
/// So often the pages are walked for one census while spans come and go meanwhile.
const WALKS_MAX: u32 = 3;

/// Calls counted since the fast path was closed.
static CALLS: AtomicU32 = AtomicU32::new(0);
/// Times that the fast path was closed for counting. A heap with another number has counted nothing since.
static EPOCH: AtomicU32 = AtomicU32::new(1);
/// Counters of the process when the last census was taken.
static USED: AtomicU64 = AtomicU64::new(0);
static CALLS_SEEN: AtomicU64 = AtomicU64::new(0);
/// Nobody watches, and calls are not counted, since there could be no thread.
static LACKS_THREAD: AtomicBool = AtomicBool::new(false);
/// A forked child has to find out what the heaps of its parent's threads hold.
static INHERITED: AtomicBool = AtomicBool::new(false);

impl ClassNotes {
    /// Before the pages are walked, with what the heap's thread has counted as freed.
    fn begin(&self, frees: u64) {
        update(&self.frees, frees);
        update(&self.uncounted, 0);
        update(&self.unsent, 0);
    }

    /// Adds blocks that the heap's thread has freed and not counted.
    fn add_uncounted(&self, blocks: u32) {
        self.uncounted.set(self.uncounted.get() + blocks);
    }
}

static CENSUS: SpinLock<Census> = SpinLock::new(Census { pieces: Pieces::new(), found: Found::new(), changes: 0 });

/// Where the census's own words lie. Some are addresses of pages.
pub fn own_memory() -> (usize, usize) {
    CENSUS.addresses()
}

struct Census {
    pieces: Pieces,
    found: Found,
    /// A sum over all that changes when threads allocate or free.
    changes: u64,
}

/// Whether the pool's thread is to take censuses.
pub fn is_watching() -> bool {
    WATCHED.load(Ordering::SeqCst) && !is_counting()
}

/// To be called at the end of a thread's slow path, while calls are counted. No lock of the tiers but the limbo's is
/// held.
#[cold]
pub fn counted_call(slow: SlowPath, heap: &'static Heap) {
    let epoch = EPOCH.load(Ordering::Acquire);
    if heap.watch.epoch.get() != epoch {
        heap.empty_outbox(slow);
        heap.count_all();
        // Before it is published: a census that runs meanwhile keeps its hands off.
        heap.watch.epoch.set(epoch);
        heap_publish::publish_classes(heap);
    }
    publish::publish_tiers();
    keeper::listen(slow);
    let mut is_watched = CALLS.fetch_add(1, Ordering::Relaxed) >= CALLS_MAX;
    let is_child =
        INHERITED.load(Ordering::Relaxed) && ownership::own_segment() && INHERITED.swap(false, Ordering::Relaxed);
    if is_child || has_grown() {
        is_watched |= counters::get(TierCounter::SystemUsed) > OWN_MAX;
        if !is_watched {
            take(slow);
        }
    }
    if is_watched {
        watch(slow);
    }
}

/// Calls that change what has memory: those to the system, and those for large blocks.
fn calls() -> u64 {
    [TierCounter::SystemCalls, TierCounter::LargeAllocs, TierCounter::LargeFrees].map(counters::get).iter().sum()
}

/// Spans that were taken from the page heap or came back to it, and calls to the system, which give memory and take it.
fn spans_moved() -> u64 {
    [TierCounter::PageHeapAllocs, TierCounter::PageHeapFrees, TierCounter::SystemCalls].map(counters::get).iter().sum()
}

/// Whether the pool has got so much memory since the last census that the next one will find others with and without.
/// A pool that only records what other pools give out has none.
fn has_grown() -> bool {
    let used = counters::get(TierCounter::SystemUsed);
    used > 0 && used / 2 >= USED.load(Ordering::Relaxed) || calls() != CALLS_SEEN.load(Ordering::Relaxed)
}

/// Has the pool's thread watch, and opens the fast path.
pub fn watch(slow: SlowPath) {
    CALLS.store(0, Ordering::Relaxed);
    if is_counting() && !keeper::may_watch() {
        // Closing the fast path anew at each call would cost far more than the calls. The next attempt comes after as
        // many calls again, or when the pool has grown.
        USED.store(counters::get(TierCounter::SystemUsed), Ordering::Relaxed);
        CALLS_SEEN.store(calls(), Ordering::Relaxed);
        // A child of `vfork` is there for a moment, and calls are its parent's.
        if !ownership::is_child_in_its_memory() {
            LACKS_THREAD.store(true, Ordering::Relaxed);
            WATCHED.store(false, Ordering::SeqCst);
            detour::turn_off(Reason::Count);
        }
        return;
    }
    // In this order: a watcher that is about to end looks whether calls are counted after it has said so.
    WATCHED.store(true, Ordering::SeqCst);
    detour::turn_off(Reason::Count);
    match keeper::watch(slow) {
        Watcher::Runs => {}
        Watcher::NotNow => count_calls(slow),
        Watcher::Never => WATCHED.store(false, Ordering::SeqCst),
    }
}

/// To be called at refills: has the program watched where there could be no thread, and may be one now.
#[inline]
pub fn watch_again(slow: SlowPath) {
    if LACKS_THREAD.load(Ordering::Relaxed) && keeper::may_watch() && LACKS_THREAD.swap(false, Ordering::Relaxed) {
        watch(slow);
    }
}

/// Closes the fast path: from now on each call is counted.
fn count_calls(slow: SlowPath) {
    CALLS.store(0, Ordering::Relaxed);
    EPOCH.fetch_add(1, Ordering::AcqRel);
    detour::turn_on(slow, Reason::Count);
}

/// What the watcher does: one census. Returns the milliseconds until the next one; `None` if calls are counted from now
/// on.
pub fn look(slow: SlowPath) -> Option<u64> {
    let begun = os::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    let changed = take(slow);
    // A traced call is served from the thread's lists, and does not count itself.
    if !changed && !reasons::is_on_for(Reason::Trace) {
        stop_watching(slow);
        return None;
    }
    Some((took_ns(begun) * REST / 1_000_000).max(INTERVAL_MS))
}

/// What the pool's thread does after it has given memory back: what the last census found is not so any more. Returns
/// the milliseconds until it may be done again.
pub fn look_again(slow: SlowPath) -> u64 {
    let begun = os::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
    take(slow);
    took_ns(begun) * REST_WHILE_GIVING / 1_000_000
}

/// What a census has taken that was begun at this time of the thread's.
fn took_ns(begun: u64) -> u64 {
    os::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(begun)
}

/// Before the watcher ends: calls are counted, and what was not counted before is published.
pub fn stop_watching(slow: SlowPath) {
    if is_counting() {
        return;
    }
    count_calls(slow);
    take(slow);
}

/// In a forked child, which has no other thread: calls are counted.
pub fn begin_child() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
    WATCHED.store(false, Ordering::Relaxed);
    LACKS_THREAD.store(false, Ordering::Relaxed);
    INHERITED.store(true, Ordering::Relaxed);
    detour::turn_on_alone(Reason::Count);
}

/// In a forked child that makes a segment. If nobody saw the fork, nobody watches, and nobody can be told to.
pub fn note_child() {
    if raw_thread::is_of_another_process() {
        WATCHED.store(false, Ordering::Relaxed);
        keeper::lose();
    }
}

/// A heap that another thread takes over counts anew.
pub fn forget(heap: &Heap) {
    heap.watch.epoch.set(0);
}

/// Takes a census and publishes it. Whether anything has changed since the last one.
pub fn take(slow: SlowPath) -> bool {
    let mut census = CENSUS.lock(slow);
    let Census { pieces, found, changes: before } = &mut *census;
    let mut walks = 0;
    loop {
        let moved = spans_moved();
        USED.store(counters::get(TierCounter::SystemUsed), Ordering::Relaxed);
        CALLS_SEEN.store(calls(), Ordering::Relaxed);
        heaps::for_each_heap(begin_heap);
        walk(pieces, found);
        walks += 1;
        // A span that changed hands was counted as what it was, and the counters say what it is.
        if walks == WALKS_MAX || spans_moved() == moved {
            break;
        }
    }
    let mut changes = 0;
    let mut add = |part: u64| changes = part.wrapping_add(u64::wrapping_mul(changes, 31));
    let unbacked = found.unbacked();
    publish::publish_census(&unbacked, found.grounds(), || {
        heaps::for_each_heap(|heap| add(publish_heap(heap)));
        [TierCounter::PageHeapAllocs, TierCounter::PageHeapFrees, TierCounter::Samples]
            .into_iter()
            .map(counters::get)
            .for_each(&mut add);
    });
    publish::publish_total(&unbacked);
    core::mem::replace(before, changes) != changes
}

/// Before the pages are walked.
fn begin_heap(heap: &'static Heap) {
    heap.classes().for_each(|(class, of)| of.notes.begin(heap.counters(class).frees));
}

/// Publishes what a heap's thread has and has done; a sum over it.
fn publish_heap(heap: &'static Heap) -> u64 {
    let visits = heap.visits();
    let same_visits = heap.watch.counted_at.replace(visits) == visits;
    heap.outbox.for_each_open(|class, blocks| {
        let unsent = &heap.of(class).notes.unsent;
        unsent.set(unsent.get() + blocks);
    });
    let mut sum = visits;
    let mut add = |part: u64| sum = part.wrapping_add(u64::wrapping_mul(sum, 31));
    for (class, ClassSlabs { notes, .. }) in heap.classes() {
        let mut counters = heap.counters(class);
        if counters.is_unused() {
            continue;
        }
        if !class.is_medium() {
            let list = heap.list(class);
            if !same_visits || notes.list.get().0 != list {
                notes.list.set(heap.count_list(class));
            }
            counters.cached = notes.list.get().1.into();
            counters.frees = notes.frees.get() + u64::from(notes.uncounted.get());
        }
        counters.sent += u64::from(notes.unsent.get()) + heap.exchange.blocks(class) as u64;
        [counters.allocs, counters.frees, counters.cached, counters.sent, counters.returned]
            .into_iter()
            .for_each(&mut add);
        publish_class(heap, class, counters);
    }
    heap_publish::publish_heap(heap);
    sum
}

fn publish_class(heap: &'static Heap, class: SizeClass, counters: ClassCounters) {
    // Its thread has counted everything, and does so with each call.
    let counts_itself = is_counting() && heap.watch.epoch.get() == EPOCH.load(Ordering::Acquire);
    if !counts_itself {
        heap_publish::publish_found(heap, class, counters);
    }
}

/// The lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &CENSUS
}
