//! The scavenger: a thread that gives idle memory back to the system, and that watches what the program does
//! ([`crate::census`]).
//!
//! Memory of free spans goes back smoothly over `POOLSCOPE_SCAVENGE_MS` ([`crate::pages::decay`]), and the caches of
//! threads that sleep before that ([`crate::collector`]), also when the program makes no call any more.
//!
//! The thread is started when there is something to do and ends when there is nothing left. Where every allocation is
//! recorded, it then sleeps until another process asks for a search for unreachable blocks, and where a signal asks for
//! copies of the segment, until that comes. It is the kernel's, not the
//! C library's ([`crate::kernel::raw_thread`]): it starts inside `malloc`, whatever locks the program holds, the
//! program stays single-threaded for the C library, and `pthread_exit` of the last thread still ends the process. It
//! blocks all signals, and its only memory is static.
//!
//! The kernel keeps credentials by thread, and the C library's `setuid` and its like change them on the threads that
//! the C library knows. So there is no such thread while they change ([`pause`]), and one that finds at a wake-up that
//! the process has other credentials than itself ([`crate::kernel::credentials`]) ends. The next one is started by a
//! thread of the program, and has that thread's. Nor is there one while the process enters namespaces, which takes a
//! process with one thread.

use core::sync::atomic::Ordering;

use crate::census;
use crate::collector;
use crate::collector::PASS;
use crate::hardened;
use crate::kernel::credentials;
use crate::kernel::last_thread;
use crate::kernel::os;
use crate::kernel::raw_thread;
use crate::pages::keeper::{self, ENDING, IDLE_MIN, LISTENING, NONE, PAUSES, RUNNING, STATE};
use crate::pages::page_heap;
use crate::reach;
use crate::sampler::{self, copies};
use crate::segment::bell;
use crate::segment::counters::{self, TierCounter};
use crate::segment::publish;
use crate::settings;
use crate::sync::spin_lock::SlowPath;
use crate::threads::thread_pointer;
use crate::tiers::static_heaps::BUSY;
use crate::tracer;

/// Steps in which free memory decays.
const STEPS: u64 = 16;
/// The shortest and the longest time between two passes, in milliseconds.
const TICK_MIN: u64 = 5;
const TICK_MAX: u64 = 1000;
/// The shortest time without an allocation after which a cache is drained for the sake of a shorter delay.
const GC_MIN: u64 = 100;
/// Passes in a row without anything to do after which the thread may end.
const QUIET: u32 = 2;
/// Milliseconds that the thread sleeps while it only listens: at first, and at most. Each time is twice the one before,
/// so that the thread finds within as long again that it is alone. An idle process is woken so rarely that it costs
/// nothing.
const LISTENING_MIN: u64 = 60_000;
const LISTENING_MAX: u64 = 3_600_000;

/// What the thread runs. Returns when there is nothing left to do.
pub extern "C" fn run() {
    // SAFETY: this thread's word is the busy heap from its start to its end, and no signal interrupts it.
    let slow = unsafe { SlowPath::own_thread() };
    // Passes in a row that found nothing to do; when the last one was, and when the next census is to be.
    let (mut quiet, mut passed_ms, mut look_ms) = (QUIET, 0, None);
    // Memory was given back since the last census; until when no other is taken for its sake.
    let (mut is_stale, mut rests_until) = (false, 0);
    let now = || os::clock_ns(libc::CLOCK_MONOTONIC) / 1_000_000;
    bell::listen(os::thread_id(), credentials::filters());
    loop {
        let rung = bell::rung();
        if PAUSES.load(Ordering::SeqCst) != 0 {
            return end(slow);
        }
        if let Some(asked) = bell::take() {
            reach::answer(slow, asked);
            continue;
        }
        if copies::is_asked_for() {
            copies::answer(slow);
            continue;
        }
        let settings = settings::current();
        let scavenge_ms = settings.scavenge_ms();
        // Memory is to be gone within twice the delay, also what is in a cache at first.
        let gc_ms = settings.gc_ms().map(|ms| ms.min(scavenge_ms.map_or(u64::MAX, |delay| (delay / 2).max(GC_MIN))));
        // Without a delay, who frees gives back.
        let steps = scavenge_ms.filter(|&ms| ms > 0).unwrap_or(u64::MAX) / STEPS;
        let tick = steps.min(gc_ms.unwrap_or(u64::MAX) / 2).clamp(TICK_MIN, TICK_MAX);
        look_ms = census::is_watching().then(|| look_ms.unwrap_or_else(|| now() + census::INTERVAL_MS));
        let rest_ms = look_ms.map_or(tick, |at| at.saturating_sub(now()).min(tick));
        if !bell::is_there() || !bell::sleep(rung, rest_ms) {
            os::sleep_on(&STATE, RUNNING, rest_ms);
        }
        if PAUSES.load(Ordering::SeqCst) != 0 {
            continue;
        }
        if !credentials::are_those_of_the_process() {
            return end(slow);
        }
        last_thread::end_with_the_process();
        let now_ms = now();
        if now_ms - passed_ms >= tick {
            passed_ms = now_ms;
            let given_back = memory_moved();
            let busy = pass(slow, now_ms, scavenge_ms, gc_ms, quiet < QUIET);
            is_stale |= memory_moved() != given_back;
            quiet = if busy { 0 } else { (quiet + 1).min(QUIET) };
        }
        if look_ms.is_some_and(|at| at <= now_ms) && census::is_watching() {
            is_stale = false;
            look_ms = census::look(slow).map(|rest| now() + rest);
            sampler::catch_up(slow);
        }
        if is_stale && (rests_until <= now_ms || quiet >= QUIET) {
            is_stale = false;
            rests_until = now() + census::look_again(slow);
        }
        if quiet >= QUIET && !census::is_watching() {
            let idle = if keeper::is_to_listen() { LISTENING } else { NONE };
            if STATE.compare_exchange(RUNNING, idle, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                continue;
            }
            // What came meanwhile found a thread running: look once more.
            let rung = bell::rung();
            let gives_back = scavenge_ms.is_some_and(|ms| ms > 0);
            let is_needed = (gives_back && page_heap::resident_free(slow) >= IDLE_MIN) || census::is_watching();
            if idle == LISTENING {
                let is_asked = bell::is_asked() || copies::is_asked_for();
                if !is_needed && !is_asked {
                    listen(rung);
                }
                let _ = STATE.compare_exchange(LISTENING, RUNNING, Ordering::SeqCst, Ordering::Relaxed);
            } else if !is_needed || STATE.compare_exchange(NONE, RUNNING, Ordering::SeqCst, Ordering::Relaxed).is_err()
            {
                return;
            }
        }
    }
}

/// Sleeps until somebody asks for something. `rung` is what the bell said before the reasons to stay awake were looked
/// at.
fn listen(rung: u32) {
    let mut rest_ms = LISTENING_MIN;
    while STATE.load(Ordering::SeqCst) == LISTENING && PAUSES.load(Ordering::SeqCst) == 0 && bell::rung() == rung {
        last_thread::end_with_the_process();
        keeper::sleep_listening(rung, rest_ms);
        rest_ms = (rest_ms * 2).min(LISTENING_MAX);
    }
}

/// Ends the thread although there may be something to do.
fn end(slow: SlowPath) {
    census::stop_watching(slow);
    sampler::catch_up(slow);
    STATE.store(NONE, Ordering::SeqCst);
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

/// To be called before the process changes its credentials, which the C library can't change for the scavenger's
/// thread, and before what the kernel lets a process do only while it has one thread. Ends the thread, and waits until
/// it is gone. It may start again, by a thread with the new credentials, when the result is dropped.
pub fn pause() -> Paused {
    // A child of `vfork` changes its own credentials, and its parent's memory.
    if raw_thread::is_of_another_process() {
        return Paused(false);
    }
    PAUSES.fetch_add(1, Ordering::SeqCst);
    // A signal handler that interrupted the slow path may have interrupted the start: it can't wait. The thread then
    // ends by itself before it does anything.
    if thread_pointer::get().cast_const() != &raw const BUSY {
        let is_there = |state| matches!(state, RUNNING | ENDING | LISTENING);
        while is_there(STATE.load(Ordering::SeqCst)) || raw_thread::is_alive() {
            for state in [RUNNING, LISTENING] {
                let _ = STATE.compare_exchange(state, ENDING, Ordering::SeqCst, Ordering::Relaxed);
            }
            keeper::wake();
            raw_thread::wait_for_end();
        }
        raw_thread::wait_until_gone();
    }
    Paused(true)
}

/// Changes when a pass gives memory back: a cache to the page heap, or pages to the system.
fn memory_moved() -> (u64, u64) {
    (counters::get(TierCounter::PageHeapFrees), counters::get(TierCounter::SystemReleased))
}

/// One pass. Whether there is more to do, or, after one without, anything worth it.
fn pass(slow: SlowPath, now: u64, scavenge_ms: Option<u64>, gc_ms: Option<u64>, was_busy: bool) -> bool {
    let mut decay = PASS.lock(slow);
    let mut busy = false;
    if let Some(after) = gc_ms {
        busy = collector::collect(slow, now, after);
    }
    if gc_ms.or(scavenge_ms).is_some() {
        sampler::release_empty(slow);
    }
    busy |= tracer::session::look_after(slow);
    let mut notes = hardened::look_after(slow, now, gc_ms, scavenge_ms);
    if let Some(delay) = scavenge_ms {
        let free = page_heap::resident_free(slow);
        let allowed = decay.allowed(now, delay, free);
        page_heap::release(slow, free.saturating_sub(allowed));
        busy |= allowed > 0 && (was_busy || free >= IDLE_MIN);
        notes = notes.saturating_add(sampler::release_idle_records(slow, now, delay));
    }
    busy |= notes > 0 && (was_busy || notes >= IDLE_MIN);
    publish::publish_tiers();
    busy
}
