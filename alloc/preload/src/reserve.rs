//! Memory for the library's own code where the pool has none.
//!
//! Capture asks whether there is memory before it allocates, and does without where there is none. But another thread
//! may take it in between, and an allocation of Rust's that fails then ends the program, which asked for nothing. So
//! the last resort is an area of the library's own, which is mapped with the first such allocation, as long as there is
//! memory: it counts for a limit of data, and most short programs never need one. It is cut from front to back, and
//! begins anew when nothing of it is in use.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Room for what a capture needs: 33 KiB for a cache, and little for each module.
const BYTES: usize = 64 << 10;

/// Null before the first allocation.
static AREA: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// Blocks in use, times 2^32, plus the bytes cut.
static STATE: AtomicU64 = AtomicU64::new(0);
const ONE: u64 = 1 << 32;

/// To be called before every allocation: has the area be there.
pub fn prepare() {
    if !AREA.load(Ordering::Relaxed).is_null() {
        return;
    }
    let new = poolscope_cpu::map_pages(BYTES);
    if !new.is_null() && AREA.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        // SAFETY: another thread was faster, and nobody knows of this one.
        unsafe { poolscope_cpu::unmap_pages(new, BYTES) };
    }
}

/// `size` bytes at a multiple of `align`, a power of two of at most 64; null if the area is used up, or is not there.
pub fn alloc(size: usize, align: usize) -> *mut u8 {
    let area = AREA.load(Ordering::Acquire);
    if area.is_null() {
        return area;
    }
    let mut from = 0;
    let cut = STATE.fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
        from = (state % ONE) as usize;
        from = from.next_multiple_of(align);
        let end = from.checked_add(size).filter(|&end| end <= BYTES && align <= 64)?;
        Some(state / ONE * ONE + ONE + end as u64)
    });
    match cut {
        // SAFETY: the part ends inside of the area.
        Ok(_) => unsafe { area.add(from) },
        Err(_) => core::ptr::null_mut(),
    }
}

/// Takes a block back; false if it is none of the area's.
pub fn free(p: *mut u8) -> bool {
    let offset = (p as usize).wrapping_sub(AREA.load(Ordering::Relaxed) as usize);
    if offset >= BYTES || AREA.load(Ordering::Relaxed).is_null() {
        return false;
    }
    let less = |state: u64| Some(if state / ONE == 1 { 0 } else { state - ONE });
    // The closure always has an answer.
    let _ = STATE.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    true
}
