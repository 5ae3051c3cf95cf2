//! Memory for the library's own code where the pool has none.
//!
//! Capture asks whether there is memory before it allocates, and does without where there is none. But another thread may
//! take it in between, and an allocation of Rust's that fails then ends the program, which asked for nothing. So the last
//! resort is an area of the library's own, which costs nothing before it is touched. It is cut from front to back, and begins
//! anew when nothing of it is in use.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

const BYTES: usize = 256 << 10;

#[repr(align(64))]
struct Area(UnsafeCell<[u8; BYTES]>);

// SAFETY: each part of it has one user, to whom `alloc` gave it.
unsafe impl Sync for Area {}

static AREA: Area = Area(UnsafeCell::new([0; BYTES]));
/// Blocks in use, times 2^32, plus the bytes cut.
static STATE: AtomicU64 = AtomicU64::new(0);
const ONE: u64 = 1 << 32;

/// `size` bytes at a multiple of `align`, a power of two of at most 64; null if the area is used up.
pub fn alloc(size: usize, align: usize) -> *mut u8 {
    let mut from = 0;
    let cut = STATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
        from = (state % ONE) as usize;
        from = from.next_multiple_of(align);
        let end = from.checked_add(size).filter(|&end| end <= BYTES && align <= 64)?;
        Some(state / ONE * ONE + ONE + end as u64)
    });
    match cut {
        // SAFETY: the part ends inside of the area.
        Ok(_) => unsafe { AREA.0.get().cast::<u8>().add(from) },
        Err(_) => core::ptr::null_mut(),
    }
}

/// Takes a block back; false if it is none of the area's.
pub fn free(p: *mut u8) -> bool {
    let offset = (p as usize).wrapping_sub(AREA.0.get() as usize);
    if offset >= BYTES {
        return false;
    }
    let less = |state: u64| Some(if state / ONE == 1 { 0 } else { state - ONE });
    // The closure always has an answer.
    let _ = STATE.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    true
}
