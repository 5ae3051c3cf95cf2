//! The garbage collector of thread caches: gives back what threads that sleep keep to themselves.
//!
//! A thread's cache is its own, and its fast path has no instruction for anyone else. So the collector takes a cache
//! only while its thread can't be using it: the thread is blocked in a system call, and the next thing that it does
//! with the pool is the slow path, where it waits for the collector.
//!
//! 1. The thread's fast path is closed ([`crate::threads::detour::take_from_sleeper`]).
//! 2. *Then* the kernel says that the thread is blocked in a system call ([`sleep`]). There is no
//!    system call in the fast path: the thread is not in the middle of it, and when it goes on it finds it closed.
//!    In `vfork` and its like a child has the thread's memory meanwhile: those do not count.
//! 3. Only a signal handler can have interrupted a fast path and be the one that is blocked. So the thread's stack is
//!    searched for registers that lead back into the pool ([`signal_frames`]), and the kernel is asked once more: the
//!    thread must not have been awake since.
//! 4. The word must still say that the path is closed (a thread in the slow path has another one there) and the heap
//!    must not be held open. Then its cache goes back, and the path stays closed: the thread opens it itself.
//!
//! Threads are asked after only if they have not been in the slow path between two looks, `POOLSCOPE_GC_MS` apart:
//! whoever allocates is there every few dozen blocks. One of which the kernel can't say enough is asked after a few
//! times more, and then left alone until it was in the slow path again. Without `/proc`, or where it is not the
//! kernel's own (valgrind, qemu), nothing is collected.

pub mod exit;
mod signal_frames;
mod sleep;

use core::sync::atomic::Ordering;

use crate::entry;
use crate::pages::decay::Decay;
use crate::settings;
use crate::sync::spin_lock::{SlowPath, SpinLock};
use crate::threads::detour;
use crate::threads::heaps;
use crate::tiers::thread_cache::Heap;
use sleep::State;

/// A cache of fewer bytes is not worth a thread that waits for it.
const IDLE_MIN: usize = 64 * 1024;
/// So often a thread is asked after, each time after twice the time, before it is left alone.
const REFUSALS_MAX: u8 = 4;

/// What came of a try to take a cache.
enum Taking {
    /// It was given back.
    Taken,
    /// The thread is not asleep: it may be at any moment.
    Awake,
    /// Nobody knows, or its thread was interrupted in the middle of the pool.
    Refused,
}

/// Gives back the caches of all threads that have not allocated for `after_ms`. Whether any thread has one left that
/// may be had.
pub fn collect(slow: SlowPath, now_ms: u64, after_ms: u64) -> bool {
    let mut left = false;
    heaps::for_each_heap(|heap| {
        if heaps::is_a_threads_own(heap) {
            left |= look_after(heap, now_ms, after_ms, || collect_heap(slow, heap));
        }
    });
    entry::with_limbo(slow, |heap| {
        left |= look_after(heap, now_ms, after_ms, || {
            heap.retire_all(slow);
            Taking::Taken
        });
    });
    left
}

/// Takes a heap's cache by `take`, if its thread has not been in the slow path for long enough.
/// Whether there is one left.
fn look_after(heap: &Heap, now_ms: u64, after_ms: u64, take: impl FnOnce() -> Taking) -> bool {
    let idle = &heap.watch.idle;
    let is_worth_it = heap.idle_bytes() >= IDLE_MIN;
    let visits = heap.visits();
    if idle.visits.replace(visits) != visits {
        idle.since.set(now_ms);
        idle.refusals.set(0);
        idle.collected.set(false);
        return is_worth_it;
    }
    if idle.collected.get() || idle.refusals.get() > REFUSALS_MAX {
        return false;
    }
    if now_ms - idle.since.get() < after_ms << idle.refusals.get() {
        return is_worth_it;
    }
    idle.since.set(now_ms);
    match take() {
        Taking::Taken => {
            idle.collected.set(true);
            false
        }
        Taking::Awake => is_worth_it,
        Taking::Refused => {
            idle.refusals.set(idle.refusals.get() + 1);
            is_worth_it
        }
    }
}

/// Held during a pass of the scavenger, so that a fork finds no half done one. What it holds is how free memory decays.
pub static PASS: SpinLock<Decay> = SpinLock::new(Decay::new());

/// Gives back the caches of all threads that sleep at this moment, however short.
pub fn collect_sleeping(slow: SlowPath) {
    if settings::current().plain() {
        return;
    }
    let _pass = PASS.lock(slow);
    heaps::for_each_heap(|heap| {
        if heaps::is_a_threads_own(heap) {
            collect_heap(slow, heap);
        }
    });
    entry::with_limbo(slow, |heap| heap.retire_all(slow));
}

fn collect_heap(slow: SlowPath, heap: &'static Heap) -> Taking {
    let Some(_closing) = heap.path.closing.try_lock(slow) else { return Taking::Awake };
    if exit::end_if_gone(slow, heap) {
        return Taking::Taken;
    }
    let tid = heap.registration.thread_id.get();
    // One that is awake need not find its fast path closed.
    match sleep::look(tid) {
        State::Asleep(_) => {}
        State::Awake => return Taking::Awake,
        State::Unknown => return Taking::Refused,
    }
    let sleeps_outside_of_the_pool = || {
        let State::Asleep(sleep) = sleep::look(tid) else { return false };
        let word = heap.path.thread_word.load(Ordering::Relaxed).addr();
        !signal_frames::may_lead_into_the_pool(sleep.sp, word)
            && matches!(sleep::look(tid), State::Asleep(still) if still == sleep)
    };
    let retire = || {
        let may_be_taken = !heap.path.held_open.get();
        if may_be_taken {
            heap.retire_all(slow);
        }
        may_be_taken
    };
    if detour::take_from_sleeper(heap, sleeps_outside_of_the_pool, retire) { Taking::Taken } else { Taking::Refused }
}
