//! The lock of the slow paths.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::word::Word;

/// Proof that the calling thread is in the slow path, with [`crate::thread_cache::BUSY`] as its heap. A lock of the
/// pool can't be taken without one: a signal handler that allocates while its thread has a lock would wait for it
/// forever if it could not tell.
#[derive(Clone, Copy)]
pub struct SlowPath(PhantomData<*const ()>);

impl SlowPath {
    /// # Safety
    /// The calling thread's heap is `BUSY` as long as the proof is used.
    pub unsafe fn assume() -> Self {
        SlowPath(PhantomData)
    }
}

/// A test-and-set lock around `T`. Held for short, bounded work only and never across a call that may lock in
/// libc; yields after a short spin. It can be locked and unlocked without a guard, for `fork`.
pub struct SpinLock<T, W: Word = AtomicUsize> {
    state: W,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, which exists once at a time.
unsafe impl<T: Send, W: Word + Sync> Sync for SpinLock<T, W> {}

/// Access to the value; unlocks when dropped.
pub struct Guard<'a, T, W: Word = AtomicUsize>(&'a SpinLock<T, W>);

impl<T> SpinLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        SpinLock { state: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }
}

impl<T, W: Word> SpinLock<T, W> {
    /// Waits for the lock.
    #[inline]
    pub fn lock(&self, _: SlowPath) -> Guard<'_, T, W> {
        self.lock_raw();
        Guard(self)
    }

    /// The value, unless someone has the lock.
    pub fn try_lock(&self, _: SlowPath) -> Option<Guard<'_, T, W>> {
        // Not `then_some`: a guard that is made and dropped unlocks.
        self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Guard(self))
    }

    /// Waits until nobody has the lock, or had it when this began. Writes nothing where nobody has.
    #[inline]
    pub fn pass(&self, slow: SlowPath) {
        if self.state.load(Ordering::Acquire) != 0 {
            drop(self.lock(slow));
        }
    }

    /// Waits for the lock and keeps it until [`SpinLock::unlock_raw`].
    #[inline]
    pub fn lock_raw(&self) {
        let mut tries = 0;
        while self.state.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            tries += 1;
            W::wait(tries);
        }
    }

    /// Unlocks after [`SpinLock::lock_raw`], also in a forked child whose parent held it.
    #[inline]
    pub fn unlock_raw(&self) {
        self.state.store(0, Ordering::Release);
    }
}

impl<T, W: Word> Drop for Guard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock_raw();
    }
}

impl<T, W: Word> Deref for Guard<'_, T, W> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T, W: Word> DerefMut for Guard<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::model;

    /// A lock around a number, which loom finds two threads at if there are any.
    type State = SpinLock<loom::cell::UnsafeCell<u32>, model::AtomicUsize>;

    fn state() -> State {
        SpinLock { state: model::AtomicUsize::new(0), value: UnsafeCell::new(loom::cell::UnsafeCell::new(0)) }
    }

    fn slow() -> SlowPath {
        // SAFETY: no signal handler of this process allocates.
        unsafe { SlowPath::assume() }
    }

    fn increment(guard: &Guard<'_, loom::cell::UnsafeCell<u32>, model::AtomicUsize>) {
        // SAFETY: the lock is held.
        guard.with_mut(|value| unsafe { *value += 1 });
    }

    fn try_increment(state: &State) {
        if let Some(guard) = state.try_lock(slow()) {
            increment(&guard);
        }
    }

    fn value(state: &State) -> u32 {
        // SAFETY: as above.
        state.lock(slow()).with(|value| unsafe { *value })
    }

    #[test]
    fn threads_have_the_lock_one_after_the_other_and_see_what_the_last_one_did() {
        let scenario = model::Scenario {
            state,
            threads: &[
                |state| increment(&state.lock(slow())),
                |state| {
                    increment(&state.lock(slow()));
                    increment(&state.lock(slow()));
                },
            ],
            interruptions: 3,
            end: value,
        };
        assert!(scenario.outcomes().into_iter().eq([3]));
    }

    #[test]
    fn a_lock_that_is_only_tried_is_had_alone_or_not_at_all() {
        let scenario = model::Scenario {
            state,
            threads: &[try_increment, try_increment, try_increment],
            interruptions: 3,
            end: value,
        };
        assert!(scenario.outcomes().into_iter().eq([1, 2, 3]));
    }

    #[test]
    fn a_lock_taken_and_given_back_without_a_guard_excludes_those_with_one() {
        let scenario = model::Scenario {
            state,
            threads: &[
                |state| {
                    state.lock_raw();
                    increment(&core::mem::ManuallyDrop::new(Guard(state)));
                    state.unlock_raw();
                },
                |state| increment(&state.lock(slow())),
            ],
            interruptions: 3,
            end: value,
        };
        assert!(scenario.outcomes().into_iter().eq([2]));
    }
}
