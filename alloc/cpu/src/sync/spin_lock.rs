//! The lock of the slow paths.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::kernel::this_thread;
use crate::sync::waits;
use crate::sync::word::Word;

/// Proof that the calling thread is in the slow path, with [`crate::tiers::static_heaps::BUSY`] as its heap. A lock of
/// the pool can't be taken without one: a signal handler that allocates while its thread has a lock would wait for it
/// forever if it could not tell.
#[derive(Clone, Copy)]
pub struct SlowPath(PhantomData<*const ()>);

/// Each way into the slow path has a constructor of its own. `tests/tests/import_order.rs` holds who calls which.
impl SlowPath {
    /// The calling thread entered the slow path by itself.
    ///
    /// # Safety
    /// The calling thread's word says `BUSY` as long as the proof is used.
    pub unsafe fn entered() -> Self {
        SlowPath(PhantomData)
    }

    /// The caller is a signal handler, or a function that one called, and interrupted the slow path or entered it.
    ///
    /// # Safety
    /// As for [`SlowPath::entered`]. The interrupted code may hold any lock: the proof is for `try_lock` alone.
    pub unsafe fn in_handler() -> Self {
        SlowPath(PhantomData)
    }

    /// The caller is a thread of the pool's own, which is in the slow path from its start to its end.
    ///
    /// # Safety
    /// As for [`SlowPath::entered`], and no signal interrupts the thread.
    pub unsafe fn own_thread() -> Self {
        SlowPath(PhantomData)
    }

    /// The caller runs between `fork`'s preparation, which entered the slow path, and its end in parent or child.
    ///
    /// # Safety
    /// As for [`SlowPath::entered`].
    pub unsafe fn in_fork() -> Self {
        SlowPath(PhantomData)
    }
}

/// A test-and-set lock around `T`. Held for short, bounded work only and never across a call that may lock in
/// libc; yields after a short spin. It can be locked and unlocked without a guard, for `fork`. It lies in memory that
/// is never unmapped: who waits for it is noted ([`waits`]).
///
/// Where a lock is taken under another one, what the outer one guards is in order: a forked child may have to go on
/// from there ([`ForkLock::let_go_in_child`]).
pub struct SpinLock<T, W: Word = AtomicUsize> {
    /// Who has it ([`holder`]), with [`FORKING`] if for a `fork`; 0 if nobody has.
    state: W,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, which exists once at a time.
unsafe impl<T: Send, W: Word + Sync> Sync for SpinLock<T, W> {}

/// Added to who has a lock, which is an even number.
const FORKING: usize = 1;
/// Who has tried so often in vain is noted as one that waits.
const NOTED_FROM: u32 = 128;

/// The calling thread, which has the same number in a forked child.
#[inline(always)]
fn holder() -> usize {
    this_thread::address()
}

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
        self.state.compare_exchange(0, holder(), Ordering::Acquire, Ordering::Relaxed).is_ok().then(|| Guard(self))
    }

    /// Where it lies with its value: the first address and the one behind the last.
    pub fn addresses(&self) -> (usize, usize) {
        let from = (&raw const *self).addr();
        (from, from + size_of_val(self))
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
    fn lock_raw(&self) {
        if !self.try_raw() {
            self.wait_raw();
        }
    }

    #[inline]
    fn try_raw(&self) -> bool {
        self.state.compare_exchange_weak(0, holder(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn wait_raw(&self) {
        let mut tries = 0;
        let mut noted = None;
        while !self.try_raw() {
            tries += 1;
            if tries == NOTED_FROM {
                // SAFETY: locks lie in memory that is never unmapped.
                noted = self.state.real().map(|word| unsafe { waits::note(holder(), word) });
            }
            W::wait(tries);
        }
        drop(noted);
    }

    /// Unlocks, also in a forked child where who held it is not there.
    #[inline]
    pub fn unlock_raw(&self) {
        self.state.store(0, Ordering::Release);
    }

    /// For `fork`: waits until no other thread has the lock, and keeps it until [`SpinLock::unlock_after_fork`]; a lock
    /// of the calling thread's, which a signal handler interrupted, stays as it is, and so does one of a thread that
    /// waits for the calling one. False if `is_over` says so before.
    pub fn lock_for_fork(&self, is_over: impl Fn() -> bool) -> bool {
        lock_state_for_fork(&self.state, &is_over)
    }

    /// Whether the calling thread has it for a `fork`.
    pub fn is_locked_for_fork(&self) -> bool {
        self.state.load(Ordering::Relaxed) == holder() | FORKING
    }

    /// For `fork`, in parent and child: unlocks what [`SpinLock::lock_for_fork`] locked.
    pub fn unlock_after_fork(&self) {
        if self.is_locked_for_fork() {
            self.unlock_raw();
        }
    }

    /// For `fork`, in the child after [`SpinLock::lock_for_fork`] said true: also unlocks what a thread has that is not
    /// here, and that waited for another lock when this process was made.
    pub fn unlock_in_child(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state != 0 && state != holder() {
            self.unlock_raw();
        }
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

/// [`SpinLock::lock_for_fork`]: one function for all locks, whatever they guard.
#[inline(never)]
fn lock_state_for_fork<W: Word>(lock: &W, is_over: &dyn Fn() -> bool) -> bool {
    let mut tries = 0;
    while let Err(state) = lock.compare_exchange(0, holder() | FORKING, Ordering::Acquire, Ordering::Relaxed) {
        if state & !FORKING == holder() {
            return true;
        }
        tries += 1;
        if tries % 32 == 0 {
            if waits::is_stuck(state & !FORKING, holder(), |state| state & !FORKING) {
                return true;
            }
            if is_over() {
                return false;
            }
        }
        W::wait(tries);
    }
    true
}

/// In a forked child: no other thread waits for a lock.
pub fn forget_who_waits() {
    waits::forget_others(holder());
}

/// What a fork takes before it, and lets go after it in both processes.
pub trait ForkLock: Sync {
    /// Takes it. False if `is_over` says so before.
    fn take(&self, is_over: &dyn Fn() -> bool) -> bool;
    /// Lets it go, if this thread took it.
    fn let_go(&self);
    /// The same in the child, if all could be taken: also of threads that waited for the one that forked.
    fn let_go_in_child(&self);
}

impl<T: Send> ForkLock for SpinLock<T> {
    fn take(&self, is_over: &dyn Fn() -> bool) -> bool {
        self.lock_for_fork(is_over)
    }

    fn let_go(&self) {
        self.unlock_after_fork();
    }

    fn let_go_in_child(&self) {
        self.unlock_in_child();
    }
}

impl<T: Send, const N: usize> ForkLock for [SpinLock<T>; N] {
    fn take(&self, is_over: &dyn Fn() -> bool) -> bool {
        self.iter().all(|lock| lock.lock_for_fork(is_over))
    }

    fn let_go(&self) {
        self.iter().for_each(SpinLock::unlock_after_fork);
    }

    fn let_go_in_child(&self) {
        self.iter().for_each(SpinLock::unlock_in_child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;

    /// A lock around a number, which loom finds two threads at if there are any.
    type State = SpinLock<loom::cell::UnsafeCell<u32>, model::AtomicUsize>;

    fn state() -> State {
        SpinLock { state: model::AtomicUsize::new(0), value: UnsafeCell::new(loom::cell::UnsafeCell::new(0)) }
    }

    fn slow() -> SlowPath {
        // SAFETY: no signal handler of this process allocates.
        unsafe { SlowPath::entered() }
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

    #[test]
    fn a_fork_leaves_the_locks_of_its_own_thread_and_waits_for_those_of_others() {
        let lock = SpinLock::new(());
        // Its own, interrupted.
        let guard = lock.lock(slow());
        assert!(lock.lock_for_fork(|| panic!("nobody else has it")));
        lock.unlock_after_fork();
        assert!(lock.try_lock(slow()).is_none(), "it was not the fork's");
        drop(guard);
        // Nobody's.
        assert!(lock.lock_for_fork(|| panic!("nobody has it")));
        assert!(lock.try_lock(slow()).is_none());
        lock.unlock_after_fork();
        // Another thread's.
        let guard = lock.lock(slow());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(!lock.lock_for_fork(|| true));
                lock.unlock_after_fork();
            });
        });
        assert!(lock.try_lock(slow()).is_none());
        drop(guard);
        assert!(lock.try_lock(slow()).is_some());
    }

    #[test]
    fn a_fork_leaves_a_lock_whose_thread_waits_for_it_and_the_child_unlocks_it() {
        static OWN: SpinLock<()> = SpinLock::new(());
        static OTHERS: SpinLock<()> = SpinLock::new(());
        // Interrupted, in this thread.
        let guard = OWN.lock(slow());
        let other = std::thread::spawn(|| {
            let _outer = OTHERS.lock(slow());
            drop(OWN.lock(slow()));
        });
        while OTHERS.state.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert!(OTHERS.lock_for_fork(|| false), "its thread will not let it go before");
        OTHERS.unlock_after_fork();
        assert!(OTHERS.try_lock(slow()).is_none(), "in the parent it is still the other thread's");
        // What the child would do. Nobody else looks at the lock here before the other thread ends.
        OTHERS.unlock_in_child();
        OWN.unlock_in_child();
        assert!(OTHERS.try_lock(slow()).is_some());
        assert!(OWN.try_lock(slow()).is_none(), "what was interrupted goes on in the child");
        drop(guard);
        other.join().expect("it ends");
    }
}
