//! A thread's word as a gate to its fast path: open, it holds the thread's heap, and closed, the detour. While its
//! thread is in the slow path it holds neither, and nobody else changes it.
//!
//! The owner changes it by plain stores. Others change it by compare-and-exchange from the one value to the other, and
//! look at it again where they need to know.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::word::Word;

/// A gate. Who closes or opens it for its owner holds a lock of the owner's heap meanwhile.
pub struct Gate<'a, W: Word = AtomicUsize> {
    /// The owner's word.
    pub word: &'a W,
    /// Its value while the fast path is open.
    pub open: usize,
    /// Its value while it is closed.
    pub closed: usize,
}

impl<W: Word> Gate<'_, W> {
    /// Closes it, if it is open. False if it is not: it is closed already, or the owner is in the slow path.
    pub fn close(&self) -> bool {
        self.word.compare_exchange(self.open, self.closed, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Whether it is closed, and the owner not in the slow path.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::SeqCst) == self.closed
    }

    /// Calls `take` while the owner sleeps and will find the gate closed. `sleeps` asks the kernel. It stays closed if
    /// `take` says that it took something, or if there are reasons for it.
    pub fn take_from_sleeper(
        &self,
        reasons: &impl Word,
        sleeps: impl FnOnce() -> bool,
        take: impl FnOnce() -> bool,
    ) -> bool {
        // In this order: an owner that sleeps *after* its gate was closed is not in the middle of its fast path, and
        // finds the gate closed when it goes on.
        let closed = self.close();
        if sleeps() && self.is_closed() && take() {
            return true;
        }
        // Who adds a reason closes the gate after this, under the lock, or has been here before:
        // then the reason is seen.
        if closed && reasons.load(Ordering::Relaxed) == 0 {
            let _ = self.word.compare_exchange(self.closed, self.open, Ordering::SeqCst, Ordering::Relaxed);
        }
        false
    }
}

/// Notes one more reason to keep gates closed, and calls `barrier`, which must be one for every running thread: an
/// owner that [`leave`]s before sees its gate closed by whoever called this, one that leaves after it closes the gate
/// itself. False if the reason was noted before.
pub fn add_reason(reasons: &impl Word, reason: usize, barrier: impl FnOnce()) -> bool {
    let is_new = reasons.fetch_or(reason, Ordering::SeqCst) & reason == 0;
    if is_new {
        barrier();
    }
    is_new
}

/// What the owner does at the end of its slow path: opens its gate, unless there are reasons not to.
/// `set` stores to its word.
#[inline(always)]
pub fn leave(reasons: &impl Word, open: usize, closed: usize, set: impl Fn(usize)) {
    set(open);
    if reasons.load(Ordering::Relaxed) != 0 {
        set(closed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;

    const HEAP: usize = 1;
    const DETOUR: usize = 2;
    const BUSY: usize = 3;

    /// A thread, its word and its cache.
    struct State {
        word: model::AtomicUsize,
        reasons: model::AtomicUsize,
        /// The lock of the heap. A spin lock would spin for ever in a model.
        closing: loom::sync::Mutex<()>,
        /// The word that a spin lock's holder writes, and that the owner of the heap looks at.
        is_closing: model::AtomicUsize,
        /// What the kernel knows of the thread, under a lock of its own: a thread that sleeps has done what it did
        /// before, and who asks sees that.
        asleep: loom::sync::Mutex<bool>,
        /// Nobody may touch it while another one does, which loom sees to.
        cache: loom::cell::UnsafeCell<()>,
        taken: AtomicUsize,
    }

    // SAFETY: the cache is loom's, which fails the test if two threads are at it.
    unsafe impl Sync for State {}

    impl State {
        fn new() -> Self {
            State {
                word: model::AtomicUsize::new(HEAP),
                reasons: model::AtomicUsize::new(0),
                closing: loom::sync::Mutex::new(()),
                is_closing: model::AtomicUsize::new(0),
                asleep: loom::sync::Mutex::new(false),
                cache: loom::cell::UnsafeCell::new(()),
                taken: AtomicUsize::new(0),
            }
        }

        fn gate(&self) -> Gate<'_, model::AtomicUsize> {
            Gate { word: &self.word, open: HEAP, closed: DETOUR }
        }

        fn touch_cache(&self) {
            self.cache.with_mut(|_| ());
        }

        fn sleep(&self) {
            *self.asleep.lock().unwrap() = true;
            *self.asleep.lock().unwrap() = false;
        }

        /// The owner's store. Not a store to loom, which does not put those behind other threads' exchanges of the same
        /// word.
        fn set(&self, value: usize) {
            self.word.swap(value, Ordering::Relaxed);
        }

        /// As in `entry::enter` and where an entry is dropped.
        fn slow_path(&self, sleeps: bool) {
            let detoured = self.word.load(Ordering::Relaxed) == DETOUR;
            self.set(BUSY);
            // `SpinLock::pass`.
            if detoured && self.is_closing.load(Ordering::Acquire) != 0 {
                drop(self.closing.lock().unwrap());
            }
            self.touch_cache();
            if sleeps {
                self.sleep();
                self.touch_cache();
            }
            leave(&self.reasons, HEAP, DETOUR, |value| {
                self.set(value);
                // What the barrier of `add_reason` makes of a running thread.
                model::AtomicUsize::fence(Ordering::SeqCst);
            });
        }

        /// One `malloc`.
        fn call(&self) {
            match self.word.load(Ordering::Relaxed) {
                HEAP => self.touch_cache(),
                _ => self.slow_path(false),
            }
        }

        fn collect(&self) {
            let Ok(_closing) = self.closing.try_lock() else { return };
            self.is_closing.store(1, Ordering::Relaxed);
            let take = || {
                self.touch_cache();
                self.taken.fetch_add(1, Ordering::Relaxed);
                true
            };
            self.gate().take_from_sleeper(&self.reasons, || *self.asleep.lock().unwrap(), take);
            self.is_closing.store(0, Ordering::Release);
        }

        fn turn_on(&self) {
            if add_reason(&self.reasons, 1, || model::AtomicUsize::fence(Ordering::SeqCst)) {
                let _closing = self.closing.lock().unwrap();
                self.gate().close();
            }
        }

        fn end(&self) -> (usize, usize) {
            (self.taken.load(Ordering::Relaxed), self.word.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_cache_is_taken_only_while_its_thread_sleeps_outside_the_slow_path() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| {
                    state.call();
                    state.sleep();
                    state.call();
                },
                State::collect,
            ],
            interruptions: 3,
            end: State::end,
        };
        // Taken from a thread that goes on: its next call opens the gate again.
        assert_eq!(scenario.outcomes(), [(0, HEAP), (1, HEAP)].into());
    }

    #[test]
    fn no_cache_is_taken_from_a_thread_that_sleeps_in_the_slow_path() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[|state| state.slow_path(true), State::collect, State::collect],
            interruptions: 2,
            end: State::end,
        };
        assert_eq!(scenario.outcomes(), [(0, HEAP)].into());
    }

    #[test]
    fn a_detour_is_seen_by_a_thread_that_leaves_the_slow_path_meanwhile() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[|state| state.slow_path(false), State::turn_on, State::collect],
            interruptions: 2,
            end: State::end,
        };
        assert_eq!(scenario.outcomes(), [(0, DETOUR)].into());
    }
}
