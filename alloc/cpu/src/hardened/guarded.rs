//! Blocks with a mapping of their own between two pages that can't be touched: the block ends, as far as its alignment
//! allows, where the second one begins. Freed, the pages between can't be touched either, and have no memory any more.
//!
//! Sampled blocks lie so, and those of a mebibyte and more.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::records::Record;
use crate::kernel::os;

/// Bytes of the kernel's page, or a multiple.
#[cfg(target_arch = "x86_64")]
pub const KERNEL_PAGE: usize = 4096;
/// Bytes of the kernel's page, or a multiple.
#[cfg(not(target_arch = "x86_64"))]
pub const KERNEL_PAGE: usize = 64 * 1024;

/// Mappings at a time. Each takes three of the kernel's, of which a process may have 65,530 (`vm.max_map_count`).
const MAX: usize = 4096;
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Makes a block of `record.size` bytes and fills in where it lies. False if there is no room for it: then it can be
/// had without guards.
pub fn map(record: &mut Record) -> bool {
    let Some(rounded) = record.size.max(1).checked_next_multiple_of(record.align()) else { return false };
    let Some(bytes) = rounded.checked_next_multiple_of(KERNEL_PAGE).filter(|bytes| *bytes < isize::MAX as usize / 2)
    else {
        return false;
    };
    if record.align() > KERNEL_PAGE || bytes / 16 > u32::MAX as usize {
        return false;
    }
    if COUNT.fetch_add(1, Ordering::Relaxed) >= MAX {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    let len = bytes + 2 * KERNEL_PAGE;
    let base = os::reserve(len);
    // SAFETY: the pages between the guards are the caller's, as is the whole.
    unsafe {
        if base.is_null() || !os::commit(base.add(KERNEL_PAGE), bytes) {
            if !base.is_null() {
                os::unmap(base, len);
            }
            COUNT.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
    }
    let front = KERNEL_PAGE + bytes - rounded;
    record.address = base as usize + front;
    record.front = (front / 16) as u32;
    record.len = len;
    record.guarded = true;
    true
}

/// Takes the memory of a freed block away and keeps its addresses.
pub fn close(record: &Record) {
    // SAFETY: the mapping is this block's, which is not the program's any more.
    unsafe { os::close_pages(record.base().add(KERNEL_PAGE), record.len - 2 * KERNEL_PAGE) };
}

/// Unmaps a block.
pub fn unmap(record: &Record) {
    // SAFETY: as above.
    unsafe { os::unmap(record.base(), record.len) };
    COUNT.fetch_sub(1, Ordering::Relaxed);
}
