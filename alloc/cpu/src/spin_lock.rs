//! The lock of the slow paths.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

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
pub struct SpinLock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, which exists once at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Access to the value; unlocks when dropped.
pub struct Guard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        SpinLock { state: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self, _: SlowPath) -> Guard<'_, T> {
        self.lock_raw();
        Guard(self)
    }

    /// The value, unless someone has the lock.
    pub fn try_lock(&self, _: SlowPath) -> Option<Guard<'_, T>> {
        self.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok().then_some(Guard(self))
    }

    /// Waits for the lock and keeps it until [`SpinLock::unlock_raw`].
    #[inline]
    pub fn lock_raw(&self) {
        let mut spins = 0u32;
        while self.state.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins < 64 {
                core::hint::spin_loop();
            } else {
                // SAFETY: a system call without arguments.
                unsafe { libc::sched_yield() };
            }
        }
    }

    /// Unlocks after [`SpinLock::lock_raw`], also in a forked child whose parent held it.
    #[inline]
    pub fn unlock_raw(&self) {
        self.state.store(0, Ordering::Release);
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock_raw();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.0.value.get() }
    }
}
