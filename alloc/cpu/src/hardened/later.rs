//! Blocks that a signal handler freed which had interrupted the pool: it can't wait for locks, so others free them.

use core::sync::atomic::{AtomicPtr, Ordering};

const PLACES: usize = 256;

static WAITING: [AtomicPtr<u8>; PLACES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; PLACES];
static ANY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

/// Leaves a block for the next thread that allocates. Without a place it is never freed.
pub fn free_later(p: *mut u8) {
    let null = core::ptr::null_mut();
    if WAITING.iter().any(|place| place.compare_exchange(null, p, Ordering::Release, Ordering::Relaxed).is_ok()) {
        ANY.store(p, Ordering::Release);
    }
}

/// Takes what was left.
pub fn take() -> impl Iterator<Item = *mut u8> {
    let null = core::ptr::null_mut();
    let any = !ANY.load(Ordering::Relaxed).is_null() && !ANY.swap(null, Ordering::Acquire).is_null();
    let places = WAITING.iter().take(if any { PLACES } else { 0 });
    places.map(move |place| place.swap(null, Ordering::Acquire)).filter(|p| !p.is_null())
}
