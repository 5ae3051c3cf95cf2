//! The scavenger: a thread that gives idle memory back to the system.
//!
//! Memory of free spans goes back smoothly over `POOLSCOPE_SCAVENGE_MS` ([`crate::decay`]), and the caches of threads that
//! sleep before that ([`crate::idle`]), also when the program makes no call any more.
//!
//! The thread is started when there is something to do and ends when there is nothing left. It is the kernel's, not the
//! C library's (`os::thread`): it starts inside `malloc`, whatever locks the program holds, the program stays
//! single-threaded for the C library, and `pthread_exit` of the last thread still ends the process. It blocks all
//! signals, and its only memory is static.
//!
//! The kernel keeps credentials by thread, and the C library's `setuid` and its like change them on the threads that the C
//! library knows. So there is no such thread while they change ([`pause`]), and one that finds at a wake-up that the process
//! has other credentials than itself ([`crate::credentials`]) ends. The next one is started by a thread of the program,
//! and has that thread's.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::decay::Decay;
use crate::os;
use crate::raw_thread::{self, Started};
use crate::settings;
use crate::spin_lock::{SlowPath, SpinLock};
use crate::thread_cache::BUSY;
use crate::{credentials, idle, page_heap, sampler, thread_pointer, tracer};

/// Steps in which free memory decays.
const STEPS: u64 = 16;
/// The shortest and the longest time between two passes, in milliseconds.
const TICK_MIN: u64 = 5;
const TICK_MAX: u64 = 1000;
/// The shortest time without an allocation after which a cache is drained for the sake of a shorter delay.
const GC_MIN: u64 = 100;
/// Bytes that do not call for the thread.
const IDLE_MIN: usize = 512 * 1024;

/// Held during a pass, so that a fork finds no half done one.
static PASS: SpinLock<Decay> = SpinLock::new(Decay::new());

/// Whether there is a thread; also what it sleeps on.
static STATE: AtomicU32 = AtomicU32::new(NONE);
const NONE: u32 = 0;
const RUNNING: u32 = 1;
/// The system let none be started: the page heap releases by itself.
const REFUSED: u32 = 2;
/// There is one that is to end.
const ENDING: u32 = 3;

/// How many ask that there be none, see [`pause`].
static PAUSES: AtomicU32 = AtomicU32::new(0);

/// Whether free memory is given back by somebody else than who frees it.
pub fn is_running() -> bool {
    STATE.load(Ordering::Relaxed) == RUNNING
}

/// To be called when `free` bytes wait, in free spans or in a thread's cache, without being used.
#[inline]
pub fn notice(slow: SlowPath, free: usize) {
    if free >= IDLE_MIN {
        start(slow);
    }
}

/// Starts the thread if there is none. No lock may be held.
#[inline]
pub fn start(_: SlowPath) {
    if STATE.load(Ordering::Relaxed) == NONE {
        start_cold();
    }
}

#[cold]
fn start_cold() {
    let settings = settings::current();
    let wanted = settings.scavenge_ms().is_some_and(|ms| ms > 0) || settings.gc_ms().is_some();
    if !wanted || STATE.compare_exchange(NONE, RUNNING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
        return;
    }
    // Looked at after the state was written, as `pause` writes and looks in the other order: one of them sees the other.
    if PAUSES.load(Ordering::SeqCst) != 0 {
        STATE.store(NONE, Ordering::SeqCst);
        return;
    }
    match raw_thread::start(run) {
        Started::Yes => {}
        // The one before is just ending, or this is a child of `vfork`, in its parent's memory.
        Started::NotNow => STATE.store(NONE, Ordering::Release),
        Started::Never => STATE.store(REFUSED, Ordering::Release),
    }
}

/// What the thread runs. Returns when there is nothing left to do.
extern "C" fn run() {
    // SAFETY: this thread's word is the busy heap from its start to its end, and no signal interrupts it.
    let slow = unsafe { SlowPath::assume() };
    let mut quiet = 0;
    loop {
        if PAUSES.load(Ordering::SeqCst) != 0 {
            STATE.store(NONE, Ordering::SeqCst);
            return;
        }
        let settings = settings::current();
        let scavenge_ms = settings.scavenge_ms();
        // Memory is to be gone within twice the delay, also what is in a cache at first.
        let gc_ms = settings.gc_ms().map(|ms| ms.min(scavenge_ms.map_or(u64::MAX, |delay| (delay / 2).max(GC_MIN))));
        let tick =
            (scavenge_ms.unwrap_or(u64::MAX) / STEPS).min(gc_ms.unwrap_or(u64::MAX) / 2).clamp(TICK_MIN, TICK_MAX);
        os::sleep_on(&STATE, RUNNING, tick);
        if PAUSES.load(Ordering::SeqCst) != 0 {
            continue;
        }
        if !credentials::are_those_of_the_process() {
            STATE.store(NONE, Ordering::SeqCst);
            return;
        }
        let busy = pass(slow, scavenge_ms, gc_ms);
        quiet = if busy { 0 } else { quiet + 1 };
        if quiet >= 2 {
            STATE.store(NONE, Ordering::SeqCst);
            // What came meanwhile found a thread running: look once more.
            if page_heap::resident_free(slow) < IDLE_MIN
                || STATE.compare_exchange(NONE, RUNNING, Ordering::SeqCst, Ordering::Relaxed).is_err()
            {
                return;
            }
        }
    }
}

/// There is no scavenger as long as this is kept.
#[must_use = "the scavenger may start again when this is dropped"]
pub struct Paused(bool);

impl Drop for Paused {
    fn drop(&mut self) {
        // A child that was forked meanwhile begins with none.
        let mut pauses = if self.0 { PAUSES.load(Ordering::SeqCst) } else { 0 };
        while pauses > 0 {
            match PAUSES.compare_exchange_weak(pauses, pauses - 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(now) => pauses = now,
            }
        }
    }
}

/// To be called before the process changes its credentials: ends the scavenger's thread, which the C library can't change
/// those of, and waits for its end. It may start again, by a thread with the new ones, when the result is dropped.
pub fn pause() -> Paused {
    // A child of `vfork` changes its own credentials, and its parent's memory.
    if raw_thread::is_of_another_process() {
        return Paused(false);
    }
    PAUSES.fetch_add(1, Ordering::SeqCst);
    // A signal handler that interrupted the slow path may have interrupted the start: it can't wait. The thread then ends
    // by itself before it does anything.
    if thread_pointer::get().cast_const() != &raw const BUSY {
        let is_there = |state| matches!(state, RUNNING | ENDING);
        while is_there(STATE.load(Ordering::SeqCst)) || raw_thread::is_alive() {
            let _ = STATE.compare_exchange(RUNNING, ENDING, Ordering::SeqCst, Ordering::Relaxed);
            os::wake(&STATE);
            raw_thread::wait_for_end();
        }
    }
    Paused(true)
}

/// One pass. Whether there is more to do.
fn pass(slow: SlowPath, scavenge_ms: Option<u64>, gc_ms: Option<u64>) -> bool {
    let mut decay = PASS.lock(slow);
    let now = os::clock_ns(libc::CLOCK_MONOTONIC) / 1_000_000;
    let mut busy = false;
    if let Some(after) = gc_ms {
        busy = idle::collect(slow, now, after);
    }
    sampler::release_empty(slow);
    tracer::poll(slow);
    if let Some(delay) = scavenge_ms {
        let free = page_heap::resident_free(slow);
        let allowed = decay.allowed(now, delay, free);
        page_heap::release(slow, free.saturating_sub(allowed));
        busy |= allowed > 0;
    }
    sampler::publish_tiers();
    busy
}

/// Gives back the caches of threads that sleep at this moment, however short.
pub fn collect_sleeping(slow: SlowPath) {
    let _pass = PASS.lock(slow);
    idle::collect_sleeping(slow);
}

/// For `fork`: waits for the end of a pass.
pub fn lock_for_fork() {
    PASS.lock_raw();
}

/// For `fork`: lets go, in parent and child.
pub fn unlock_after_fork() {
    PASS.unlock_raw();
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    raw_thread::forget();
    PAUSES.store(0, Ordering::Release);
    STATE.store(NONE, Ordering::Release);
}
