//! A place for a hook: how one comes, is called, and goes while other threads call it.
//!
//! Who calls counts itself in, and then looks whether the hook that it saw is still there. Who removes takes the mark
//! of the hook away, and then looks whether anyone is counted. With a sequentially consistent fence between the two
//! steps on either side, at least one of them sees the other: who removes waits, or who calls leaves the hook alone.
//!
//! A hook comes only where nobody is counted: a thread that was found to be in the old one may not have read the
//! function yet, and would call the new one with the old one's context.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::word::Word;

/// A place. Zeroed memory is a free one. Hooks come to it under a lock of the caller's.
pub struct Place<W: Word = AtomicUsize> {
    /// Odd while there is a hook. Of 32 bits; each hook has a number of its own.
    generation: W,
    /// Threads that are in the hook, or about to look whether it is still there.
    users: W,
    hook: W,
    context: W,
}

impl Place {
    /// A free place.
    pub const fn new() -> Self {
        Place {
            generation: AtomicUsize::new(0),
            users: AtomicUsize::new(0),
            hook: AtomicUsize::new(0),
            context: AtomicUsize::new(0),
        }
    }
}

impl<W: Word> Place<W> {
    /// Puts a hook there and returns its number. `None` if there is one, or someone still in the last one.
    pub fn put(&self, hook: usize, context: usize) -> Option<u32> {
        let generation = self.generation.load(Ordering::Relaxed);
        if !generation.is_multiple_of(2) || self.is_in_use() {
            return None;
        }
        self.hook.store(hook, Ordering::Relaxed);
        self.context.store(context, Ordering::Relaxed);
        let number = (generation as u32).wrapping_add(1);
        self.generation.store(number as usize, Ordering::Release);
        Some(number)
    }

    /// Takes the hook with this number away: who looks from now on does not find it. False if it is not there.
    pub fn take(&self, number: u32) -> bool {
        let next = number.wrapping_add(1) as usize;
        !number.is_multiple_of(2)
            && self.generation.compare_exchange(number as usize, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether a thread may be in a hook that was taken away.
    pub fn is_in_use(&self) -> bool {
        W::fence(Ordering::SeqCst);
        self.users.load(Ordering::Acquire) > 0
    }

    /// Calls `call` with the hook and its context, if there is one.
    pub fn call(&self, call: impl FnOnce(usize, usize)) {
        let generation = self.generation.load(Ordering::Relaxed);
        if generation.is_multiple_of(2) {
            return;
        }
        self.users.fetch_add(1, Ordering::Relaxed);
        W::fence(Ordering::SeqCst);
        if self.generation.load(Ordering::Acquire) == generation {
            call(self.hook.load(Ordering::Relaxed), self.context.load(Ordering::Relaxed));
        }
        self.users.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;
    use std::vec::Vec;

    /// What hooks of the model are called with: their number, and a context that goes with it. The context's memory is
    /// there until the hook was removed, which loom holds the callers to.
    struct State {
        place: Place<model::AtomicUsize>,
        contexts: [loom::cell::UnsafeCell<usize>; 2],
        /// Calls of each hook.
        calls: [AtomicUsize; 2],
    }

    // SAFETY: the contexts are loom's, which fails the test if two threads are at one.
    unsafe impl Sync for State {}

    const OLD: usize = 0;
    const NEW: usize = 1;

    impl State {
        fn with_a_hook() -> Self {
            let word = || model::AtomicUsize::new(0);
            let state = State {
                place: Place { generation: word(), users: word(), hook: word(), context: word() },
                contexts: [loom::cell::UnsafeCell::new(OLD), loom::cell::UnsafeCell::new(NEW)],
                calls: [AtomicUsize::new(0), AtomicUsize::new(0)],
            };
            assert_eq!(state.place.put(OLD, OLD), Some(1));
            state
        }

        fn call(&self) {
            self.place.call(|hook, context| {
                assert_eq!(hook, context, "a hook with another one's context");
                // SAFETY: loom fails the test if someone writes at the same time.
                assert_eq!(self.contexts[context].with(|value| unsafe { *value }), hook, "a context that is gone");
                self.calls[hook].fetch_add(1, Ordering::Relaxed);
            });
        }

        /// As the program does it: waits, and then has the context for itself.
        fn remove(&self) {
            assert!(self.place.take(1));
            while self.place.is_in_use() {
                model::AtomicUsize::wait(0);
            }
            // SAFETY: as above.
            self.contexts[OLD].with_mut(|value| unsafe { *value = usize::MAX });
        }

        fn calls(&self) -> Vec<usize> {
            self.calls.iter().map(|calls| calls.load(Ordering::Relaxed)).collect()
        }
    }

    #[test]
    fn nobody_is_in_a_hook_that_was_removed() {
        let scenario = model::Scenario {
            state: State::with_a_hook,
            threads: &[State::call, State::call, State::remove],
            interruptions: 2,
            end: State::calls,
        };
        assert!(scenario.outcomes().into_iter().eq([[0, 0], [1, 0], [2, 0]]));
    }

    #[test]
    fn a_hook_that_takes_anothers_place_is_called_with_its_own_context() {
        let scenario = model::Scenario {
            state: State::with_a_hook,
            threads: &[
                |state| {
                    state.call();
                    state.call();
                },
                // From a hook: without waiting, and with a new hook at once, here or in another place.
                |state| {
                    assert!(state.place.take(1));
                    assert!(state.place.put(NEW, NEW).is_none_or(|number| number == 3));
                },
            ],
            interruptions: 3,
            end: State::calls,
        };
        assert!(scenario.outcomes().into_iter().eq([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0]]));
    }

    #[test]
    fn a_hook_is_removed_once() {
        let scenario = model::Scenario {
            state: || (State::with_a_hook(), AtomicUsize::new(0)),
            threads: &[remove_and_count, remove_and_count],
            interruptions: 3,
            end: |(_, removed)| removed.load(Ordering::Relaxed),
        };
        assert!(scenario.outcomes().into_iter().eq([1]));
    }

    fn remove_and_count((state, removed): &(State, AtomicUsize)) {
        removed.fetch_add(usize::from(state.place.take(1)), Ordering::Relaxed);
    }
}
