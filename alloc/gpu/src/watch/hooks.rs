//! Hooks: functions of the program's that see every allocation and every free of device memory, before and after it.
//!
//! There may be any number; each can go while other threads allocate. While there is one, the version word of every
//! pool has a bit that no thread has learnt, so that every call takes the slow path; without one, the fast path has no
//! instruction for it. A hook may allocate and free device memory: what it does so is reported to nobody. What a pool
//! does for itself isn't either.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

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
    /// Threads that are in it have it locked for reading. `None` once it was removed.
    hook: RwLock<Option<Closure>>,
    /// It is to be called no more, although threads may be in it.
    gone: AtomicBool,
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
    let hook: RwLock<Option<Closure>> = RwLock::new(Some(Box::new(hook)));
    state.hooks.push(Arc::new(Entry { number, hook, gone: AtomicBool::new(false) }));
    state.tell_pools();
    Hook(number)
}

/// Removes a hook. When this returns, no thread is in it, none will be, and what it keeps was dropped. A hook that calls
/// this waits for nobody: threads that are calling the other one go on, and what it keeps is dropped after them. False
/// if there is no such hook.
pub fn remove(number: u64) -> bool {
    let entry = {
        let mut state = state();
        let Some(at) = state.hooks.iter().position(|entry| entry.number == number) else { return false };
        let entry = state.hooks.remove(at);
        state.tell_pools();
        entry
    };
    entry.gone.store(true, Ordering::Relaxed);
    if !QUIET.get() {
        // Who calls hooks may hold the entry for longer, with nothing in it.
        let hook = entry.hook.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(hook);
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
        // Only who removes it locks it for writing. That one is not waited for: it waits for threads in the hook, and
        // these may wait for this one.
        let Ok(hook) = entry.hook.try_read() else { continue };
        let Some(hook) = hook.as_ref().filter(|_| !entry.gone.load(Ordering::Relaxed)) else { continue };
        if catch_unwind(AssertUnwindSafe(|| hook(event))).is_err() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use super::*;

    /// Numbers that no pool has, one for each test: hooks see what all tests do.
    fn event(device: u32) -> Event {
        Event {
            moment: Moment::BeforeAlloc,
            device,
            kind: poolscope_wire::kind::DEVICE,
            address: 0,
            size: 1,
            stream: Stream::LEGACY,
        }
    }

    /// A hook that says when a thread is in it for a device, and keeps that one until it is told.
    fn waiting(device: u32) -> (Hook, Receiver<()>, Sender<()>) {
        let (entered, is_in) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let may_leave = Mutex::new(may_leave);
        let hook = add(move |event| {
            if event.device == device {
                entered.send(()).expect("the test waits");
                may_leave.lock().expect("no other thread is here").recv().expect("the test lives");
            }
        });
        (hook, is_in, leave)
    }

    #[test]
    fn who_waits_in_a_hook_that_is_being_removed_may_wait_for_another_caller() {
        const DEVICE: u32 = 7_000_001;
        const OTHER: u32 = 7_000_002;
        let (first, is_in_first, leave_first) = waiting(OTHER);
        let (hook, is_in, leave) = waiting(DEVICE);
        std::thread::scope(|threads| {
            // The other caller knows both hooks, and is in the first.
            let other = threads.spawn(|| call(&event(OTHER)));
            is_in_first.recv().expect("it is called");
            threads.spawn(|| call(&event(DEVICE)));
            is_in.recv().expect("it is called");
            let removed = threads.spawn(move || drop(hook));
            // Long enough for it to wait; what follows holds whether it does or not.
            std::thread::sleep(Duration::from_millis(50));
            leave_first.send(()).expect("it waits");
            other.join().expect("it ends");
            assert!(!removed.is_finished(), "a thread is in the hook");
            leave.send(()).expect("it waits");
        });
        drop(first);
    }

    #[test]
    fn what_a_hook_keeps_is_dropped_as_it_goes_also_while_a_thread_is_in_another() {
        const DEVICE: u32 = 7_000_000;
        let (other, is_in, leave) = waiting(DEVICE);
        let kept = Arc::new(());
        let later = add({
            let kept = kept.clone();
            move |event| assert!(event.device != DEVICE, "{kept:?}: it is gone")
        });
        std::thread::scope(|threads| {
            threads.spawn(|| call(&event(DEVICE)));
            is_in.recv().expect("it is called");
            drop(later);
            assert_eq!(Arc::strong_count(&kept), 1);
            leave.send(()).expect("it waits");
        });
        drop(other);
    }
}
