//! Whose the segment is: this process's own, or that of the parent that it was forked from.
//!
//! The answer is a word in a page that the kernel wipes in a forked child,
//! so that it is right also where nobody saw the fork.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::kernel::os;
use crate::segment::Segment;

/// A word that is 1 in the process that made the segment and 0 in its forked children. Behind it is that process's id.
static OWN_SEGMENT: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// Takes the word's page from the kernel.
pub fn start() {
    OWN_SEGMENT.store(os::map_wiped_on_fork().cast(), Ordering::Release);
}

/// Says that the segment is this process's.
pub fn mark_own() {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    if !word.is_null() {
        // SAFETY: the word begins a mapped page.
        unsafe {
            (*word.add(1)).store(u64::from(os::process_id()), Ordering::Relaxed);
            (*word).store(1, Ordering::Release);
        }
    }
}

/// Whether the caller is a child of `vfork`: it runs in the memory of the process that made the segment.
pub fn is_child_in_its_memory() -> bool {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    if word.is_null() {
        return false;
    }
    // SAFETY: the word begins a mapped page.
    let (own, maker) = unsafe { ((*word).load(Ordering::Acquire), (*word.add(1)).load(Ordering::Relaxed)) };
    own == 1 && maker != u64::from(os::process_id())
}

/// Whether the segment is this process's own, and not that of the parent it was forked from.
pub fn own_segment() -> bool {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    // SAFETY: the word is a mapped page, or there is none (then forks are noticed by `fork_child` alone).
    word.is_null() || unsafe { (*word).load(Ordering::Relaxed) == 1 }
}

/// In a forked child, under the lock: the segment is the parent's, also where the kernel can't wipe the word.
pub fn disown_segment() {
    let word = OWN_SEGMENT.load(Ordering::Relaxed);
    if word.is_null() {
        Segment::detach();
    } else {
        // SAFETY: the word is a mapped page.
        unsafe { (*word).store(0, Ordering::Release) };
    }
}
