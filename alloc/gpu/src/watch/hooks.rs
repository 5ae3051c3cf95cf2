//! Hooks: functions of the program's that see every allocation and every free of device memory, before and after it.
//!
//! There may be any number; each can go while other threads allocate. While there is one, the version word of every
//! pool has a bit that no thread has learnt, so that every call takes the slow path; without one, the fast path has no
//! instruction for it. A hook may allocate and free device memory: what it does so is reported to nobody. What a pool
//! does for itself isn't either.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub use poolscope_wire::Moment;

use crate::device::Stream;

/// What a hook is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When this is.
    pub moment: Moment,
    /// Number of the device.
    pub device: u32,
    /// Which memory of it the pool gives out: `poolscope_wire::kind::DEVICE` or `PINNED`.
    pub kind: u16,
    /// The block; 0 before an allocation, and after one that found no memory.
    pub address: u64,
    /// Allocations: bytes asked for. Frees: bytes that the block has.
    pub size: u64,
    /// The stream that it is allocated or freed on.
    pub stream: Stream,
}

type Closure = Box<dyn Fn(&Event) + Send + Sync>;

struct Entry {
    number: u64,
    hook: Closure,
    gone: AtomicBool,
    /// Threads that are in it, or about to look whether it is gone.
    users: AtomicUsize,
}

/// A pool whose calls can be sent the long way.
pub(crate) trait Watched: Send + Sync {
    /// Sends them so from now on, or no longer.
    fn set_hooked(&self, hooked: bool);
}

struct State {
    hooks: Vec<Arc<Entry>>,
    numbers: u64,
    pools: Vec<Weak<dyn Watched>>,
}

static STATE: Mutex<State> = Mutex::new(State { hooks: Vec::new(), numbers: 0, pools: Vec::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn tell_pools(&mut self) {
        let hooked = !self.hooks.is_empty();
        self.pools.retain(|pool| pool.upgrade().map(|pool| pool.set_hooked(hooked)).is_some());
    }
}

thread_local! {
    /// Whether this thread's calls are reported to nobody: it is in one that is reported.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A hook that is there until this is dropped, or for good if it is forgotten.
#[must_use = "the hook goes when this is dropped"]
#[derive(Debug)]
pub struct Hook(u64);

impl Hook {
    /// For [`remove`], which does what dropping does.
    pub fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        remove(self.0);
    }
}

/// Adds a hook; it sees what begins from now on, on every thread and of every pool.
/// A hook that panics ends the process.
pub fn add(hook: impl Fn(&Event) + Send + Sync + 'static) -> Hook {
    let mut state = state();
    state.numbers += 1;
    let number = state.numbers;
    let (gone, users) = (AtomicBool::new(false), AtomicUsize::new(0));
    state.hooks.push(Arc::new(Entry { number, hook: Box::new(hook), gone, users }));
    state.tell_pools();
    Hook(number)
}

/// Removes a hook. When this returns, no thread is in it and none will be, unless it was called from a hook: then only
/// the second holds. False if there is no such hook.
pub fn remove(number: u64) -> bool {
    let entry = {
        let mut state = state();
        let Some(at) = state.hooks.iter().position(|entry| entry.number == number) else { return false };
        let entry = state.hooks.remove(at);
        state.tell_pools();
        entry
    };
    // Who calls counts itself in and then looks whether the hook is gone; here it goes, and then they are counted. All
    // four are in one order, so that one of both sees the other.
    entry.gone.store(true, Ordering::SeqCst);
    while !QUIET.get() && entry.users.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    true
}

/// Has a pool hear of hooks, now and later.
pub(crate) fn join(pool: Weak<dyn Watched>) {
    let mut state = state();
    state.pools.push(pool);
    state.tell_pools();
}

/// While it lives, the thread's calls are reported to nobody.
pub(crate) struct Quiet(());

impl Quiet {
    /// `None` if that is so already.
    pub(crate) fn begin() -> Option<Quiet> {
        (!QUIET.replace(true)).then(|| Quiet(()))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.set(false);
    }
}

/// Calls all hooks.
pub(crate) fn call(event: &Event) {
    let hooks = state().hooks.clone();
    for entry in &hooks {
        entry.users.fetch_add(1, Ordering::SeqCst);
        let call = || (entry.hook)(event);
        if !entry.gone.load(Ordering::SeqCst) && catch_unwind(AssertUnwindSafe(call)).is_err() {
            std::process::abort();
        }
        entry.users.fetch_sub(1, Ordering::SeqCst);
    }
}
