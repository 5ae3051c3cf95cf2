//! The keeper of idle memory: whether the pool has a thread of its own that gives it back, and who asks for one.
//!
//! What that thread does is said at the process's start ([`begin`]): it is the scavenger's loop.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::kernel::os;
use crate::kernel::raw_thread::{self, Started};
use crate::segment::bell;
use crate::settings;
use crate::sync::spin_lock::SlowPath;

/// Free bytes with memory behind them that the page heap keeps where no thread can be had.
pub const RETAIN_MIN: usize = 64 << 20;

/// What the thread runs; null before the process has said so.
static BODY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Says what the thread runs. No thread is started before.
pub fn begin(body: extern "C" fn()) {
    BODY.store(body as *mut (), Ordering::Release);
}

/// Bytes that do not call for the thread.
pub const IDLE_MIN: usize = 512 * 1024;

/// Whether there is a thread; also what it sleeps on.
pub static STATE: AtomicU32 = AtomicU32::new(NONE);
pub const NONE: u32 = 0;
pub const RUNNING: u32 = 1;
/// The system let none be started: the page heap releases by itself.
const REFUSED: u32 = 2;
/// There is one that is to end.
pub const ENDING: u32 = 3;
/// There is one that has nothing to do, and sleeps until it is asked for.
pub const LISTENING: u32 = 4;

/// When there was no room for the thread the last time, and how long it is not tried again, in milliseconds: longer
/// with each time. 0 where there was room.
static FAILED_MS: AtomicU64 = AtomicU64::new(0);
static PAUSE_MS: AtomicU64 = AtomicU64::new(0);
const PAUSE_MIN: u64 = 1000;
const PAUSE_MAX: u64 = 60_000;

/// How many ask that there be none, see `scavenger::pause`.
pub static PAUSES: AtomicU32 = AtomicU32::new(0);

/// Whether free memory is given back by somebody else than who frees it.
pub fn is_running() -> bool {
    STATE.load(Ordering::Relaxed) == RUNNING
}

/// Idle bytes of the pool's own from which on they go back by who frees them: there is no scavenger for them.
pub fn retained() -> usize {
    match settings::current().scavenge_ms() {
        None => usize::MAX,
        Some(0) => IDLE_MIN,
        Some(_) if is_running() => usize::MAX,
        Some(_) => RETAIN_MIN,
    }
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
    if matches!(STATE.load(Ordering::Relaxed), NONE | LISTENING) {
        start_cold();
    }
}

#[cold]
fn start_cold() {
    let settings = settings::current();
    let wanted = settings.scavenge_ms().is_some_and(|ms| ms > 0) || settings.gc_ms().is_some();
    if wanted && !settings.plain() {
        start_thread();
    }
}

/// To be called now and then: has a thread listen where others may ask for something. No lock may be held.
#[inline]
pub fn listen(_: SlowPath) {
    if STATE.load(Ordering::Relaxed) == NONE && is_to_listen() {
        start_thread();
    }
}

/// Something else than idle memory may ask for the thread, so that it stays.
static ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Has the thread stay when there is nothing to do, for [`ask`].
pub fn have_asked_for() {
    ASKED_FOR.store(true, Ordering::Release);
}

/// Whether the thread stays when there is nothing to do, and listens.
pub fn is_to_listen() -> bool {
    ASKED_FOR.load(Ordering::Relaxed) || bell::is_there()
}

/// Has the thread look what it is asked for: at once if it listens, soon if it has something to do, and otherwise as
/// soon as there is one. It takes no lock, and a signal handler may call it. False if there will never be one.
pub fn ask() -> bool {
    // Who listens sleeps on this word, so that it can't miss the change.
    let _ = STATE.compare_exchange(LISTENING, RUNNING, Ordering::SeqCst, Ordering::Relaxed);
    wake();
    STATE.load(Ordering::SeqCst) != REFUSED
}

/// Sleeps until somebody asks, or for `ms` milliseconds. `rung` is what the bell said before the reasons to stay awake
/// were looked at.
pub fn sleep_listening(rung: u32, ms: u64) {
    if !bell::is_there() || !bell::sleep(rung, ms) {
        os::sleep_on(&STATE, LISTENING, ms);
    }
}

/// Wakes the thread.
pub fn wake() {
    os::wake(&STATE);
    bell::ring();
}

/// Whether an attempt to have the program watched is worth its cost: there is a thread, or one might be started.
pub fn may_watch() -> bool {
    if STATE.load(Ordering::Relaxed) != NONE {
        return true;
    }
    PAUSES.load(Ordering::Relaxed) == 0 && !had_no_room() && !raw_thread::is_of_another_process()
}

/// Whether the system had no room for a thread a moment ago, so that it is not asked again yet.
fn had_no_room() -> bool {
    let pause_ms = PAUSE_MS.load(Ordering::Relaxed);
    pause_ms > 0 && os::clock_ns(libc::CLOCK_MONOTONIC) / 1_000_000 < FAILED_MS.load(Ordering::Relaxed) + pause_ms
}

/// What came of [`watch`].
pub enum Watcher {
    /// There is a thread that watches.
    Runs,
    /// Not at this moment.
    NotNow,
    /// The system lets none be started.
    Never,
}

/// To be called when the program is to be watched, whether or not there is idle memory. No lock may be held.
pub fn watch(_: SlowPath) -> Watcher {
    if settings::current().plain() {
        return Watcher::Never;
    }
    if matches!(STATE.load(Ordering::SeqCst), NONE | LISTENING) {
        start_thread();
    }
    match STATE.load(Ordering::SeqCst) {
        RUNNING => {
            // It may sleep longer than until the next census.
            wake();
            Watcher::Runs
        }
        REFUSED => Watcher::Never,
        _ => Watcher::NotNow,
    }
}

fn start_thread() {
    if STATE.compare_exchange(LISTENING, RUNNING, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
        return wake();
    }
    // A child of `vfork` would leave the state to its parent, in whose memory it is.
    if raw_thread::is_of_another_process() {
        return;
    }
    let body = BODY.load(Ordering::Acquire);
    if body.is_null() {
        return;
    }
    if had_no_room() {
        return;
    }
    let pause_ms = PAUSE_MS.load(Ordering::Relaxed);
    if STATE.compare_exchange(NONE, RUNNING, Ordering::SeqCst, Ordering::Relaxed).is_err() {
        return;
    }
    // Looked at after the state was written, as `pause` writes and looks in the other order:
    // one of them sees the other.
    if PAUSES.load(Ordering::SeqCst) != 0 {
        STATE.store(NONE, Ordering::SeqCst);
        return;
    }
    // SAFETY: only `begin` stores there, and it takes just such a function.
    let body = unsafe { core::mem::transmute::<*mut (), extern "C" fn()>(body) };
    match raw_thread::start(body) {
        Started::Yes => PAUSE_MS.store(0, Ordering::Relaxed),
        // The one before is just ending.
        Started::NotNow => STATE.store(NONE, Ordering::Release),
        Started::NoRoom => {
            PAUSE_MS.store((pause_ms * 2).clamp(PAUSE_MIN, PAUSE_MAX), Ordering::Relaxed);
            FAILED_MS.store(os::clock_ns(libc::CLOCK_MONOTONIC) / 1_000_000, Ordering::Relaxed);
            STATE.store(NONE, Ordering::Release);
        }
        Started::Never => STATE.store(REFUSED, Ordering::Release),
    }
}

/// In a child of the bare system call, which has none: it stayed with the parent, whatever the state says.
pub fn lose() {
    for there in [RUNNING, LISTENING] {
        let _ = STATE.compare_exchange(there, NONE, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// In a forked child: the thread stayed with the parent.
pub fn forget() {
    raw_thread::forget();
    PAUSES.store(0, Ordering::Release);
    PAUSE_MS.store(0, Ordering::Relaxed);
    STATE.store(NONE, Ordering::Release);
}
