//! framehop's caches: a few for the whole process, each used by one capture at a time.
//!
//! A capture tries the cache that its thread used last, then the others from the first on; so a program has as many as
//! it has captures at the same time, not as it has threads. The lock of a cache is tried, never waited for.
//!
//! framehop makes a cache in memory of the global allocator. That may be the pool itself, in the middle of an
//! allocation; the caller of a capture sees to it that such allocations are served and not captured.

extern crate alloc;

use crate::stack::thread_pointer;
use crate::unwinder::{Cache, new_cache};
use alloc::alloc::{Layout, alloc, dealloc};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Captures that can go by tables at the same time. The next ones fall back.
pub(crate) const CACHES: usize = 32;

/// One cache, on cache lines of its own.
#[repr(align(64))]
struct Slot {
    /// The control block of the thread that has it, or 0.
    holder: AtomicUsize,
    cache: UnsafeCell<Option<Cache>>,
}

// SAFETY: the cache is only touched by its holder.
unsafe impl Sync for Slot {}

static SLOTS: [Slot; CACHES] = [const { Slot { holder: AtomicUsize::new(0), cache: UnsafeCell::new(None) } }; CACHES];

impl Slot {
    fn try_lock(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == 0
            && self.holder.compare_exchange(0, thread_pointer(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// A cache, for the length of one capture.
pub(crate) struct Taken {
    slot: &'static Slot,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.slot.holder.store(0, Ordering::Release);
    }
}

impl Taken {
    /// The cache itself.
    pub(crate) fn cache(&mut self) -> Option<&mut Cache> {
        // SAFETY: the slot is locked by this value.
        unsafe { &mut *self.slot.cache.get() }.as_mut()
    }
}

/// A cache that nobody uses, `last` if possible, which is then updated. `None` if all are in use, or without memory.
pub(crate) fn take(last: &mut usize) -> Option<Taken> {
    let slot = match SLOTS.get(*last).filter(|slot| slot.try_lock()) {
        Some(slot) => slot,
        None => {
            let (index, slot) = SLOTS.iter().enumerate().find(|(_, slot)| slot.try_lock())?;
            *last = index;
            slot
        }
    };
    let taken = Taken { slot };
    // SAFETY: just locked.
    let cache = unsafe { &mut *slot.cache.get() };
    if cache.is_none() {
        if !can_allocate(size_of_cache()) {
            return None;
        }
        *cache = Some(new_cache());
    }
    Some(taken)
}

/// What a cache takes: 512 rules of 16 bytes, and rows of 192 registers, of which framehop keeps four.
const fn size_of_cache() -> usize {
    48 << 10
}

/// Whether `bytes` bytes can be had: framehop ends the process where there is no memory, so it is asked for first.
pub(crate) fn can_allocate(bytes: usize) -> bool {
    let Ok(layout) = Layout::from_size_align(bytes.max(1), 16) else {
        return false;
    };
    // SAFETY: the size is not zero, and what was allocated is given back as it was.
    unsafe {
        let block = alloc(layout);
        if !block.is_null() {
            dealloc(block, layout);
        }
        !block.is_null()
    }
}

/// In a forked child: the caches that other threads had in use are free again, and empty, as they may be half written.
/// Their memory stays the child's, unused: to free it would be a call of the allocator in the middle of a fork. A
/// cache of the thread itself is in use still, if a signal handler forked.
pub(crate) fn reset_after_fork() {
    for slot in &SLOTS {
        let holder = slot.holder.load(Ordering::Relaxed);
        if holder != 0 && holder != thread_pointer() {
            // SAFETY: the holder does not exist in the child, and no other thread does yet.
            core::mem::forget(unsafe { (*slot.cache.get()).take() });
            slot.holder.store(0, Ordering::Release);
        }
    }
}
