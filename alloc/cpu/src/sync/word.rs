//! The atomic word that the lock-free structures are made of: the hardware's, and in tests loom's, which tries the
//! orders in which threads may run and the values that the memory model lets them see.
//!
//! Orderings are named where the structure is, so that what loom tries is what the program runs.

use core::sync::atomic::{self, AtomicUsize, Ordering};

/// An atomic word; each method is that of [`AtomicUsize`].
pub trait Word {
    /// The value.
    fn load(&self, order: Ordering) -> usize;
    /// Puts `value` there.
    fn store(&self, value: usize, order: Ordering);
    /// Puts `value` there and returns what was there.
    fn swap(&self, value: usize, order: Ordering) -> usize;
    /// Puts `new` in the place of `current`; else says what is there.
    fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize>;
    /// The same, and may fail for no reason.
    fn compare_exchange_weak(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize>;
    /// Adds `value`, around the end of the range, and returns what was there.
    fn fetch_add(&self, value: usize, order: Ordering) -> usize;
    /// Takes `value` away in the same way.
    fn fetch_sub(&self, value: usize, order: Ordering) -> usize;
    /// Puts the bits of `value` in and returns what was there.
    fn fetch_or(&self, value: usize, order: Ordering) -> usize;
    /// A fence.
    fn fence(order: Ordering);
    /// Lets other threads go on before the next of `tries` failed attempts.
    fn wait(tries: u32);
    /// The hardware's word, if it is one.
    fn real(&self) -> Option<&AtomicUsize> {
        None
    }
}

impl Word for AtomicUsize {
    #[inline(always)]
    fn load(&self, order: Ordering) -> usize {
        AtomicUsize::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: usize, order: Ordering) {
        AtomicUsize::store(self, value, order);
    }

    #[inline(always)]
    fn swap(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::swap(self, value, order)
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        AtomicUsize::compare_exchange(self, current, new, success, failure)
    }

    #[inline(always)]
    fn compare_exchange_weak(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        AtomicUsize::compare_exchange_weak(self, current, new, success, failure)
    }

    #[inline(always)]
    fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::fetch_add(self, value, order)
    }

    #[inline(always)]
    fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::fetch_sub(self, value, order)
    }

    #[inline(always)]
    fn fetch_or(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::fetch_or(self, value, order)
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline]
    fn wait(tries: u32) {
        if tries < 64 {
            core::hint::spin_loop();
        } else {
            crate::kernel::os::give_way(tries);
        }
    }

    #[inline]
    fn real(&self) -> Option<&AtomicUsize> {
        Some(self)
    }
}

#[cfg(test)]
pub mod model;
