//! Blocks with a mapping of their own between two pages that can't be touched: the block ends, as far as its alignment
//! allows, where the second one begins. Freed, the pages between can't be touched either, and have no memory any more.
//!
//! Sampled blocks lie so, those of a mebibyte and more, those of no bytes, and the first ones of the process
//! (`POOLSCOPE_GUARDS`).

use core::sync::atomic::{AtomicUsize, Ordering};

use super::records::{Record, State};
use crate::kernel::os;
use crate::pages::apart;
use crate::settings;

/// Bytes of the kernel's page, or a multiple.
#[cfg(target_arch = "x86_64")]
pub const KERNEL_PAGE: usize = 4096;
/// Bytes of the kernel's page, or a multiple.
#[cfg(not(target_arch = "x86_64"))]
pub const KERNEL_PAGE: usize = 64 * 1024;

/// Mappings at a time. Each takes three of the kernel's, of which a process may have 65,530 (`vm.max_map_count`).
const MAX: usize = 4096;
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Blocks of the process that were to lie so because they were among the first.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// Bytes that can't be touched on either side: an access that misses its block by a mebibyte is found as well.
const WIDE: usize = (1 << 20) + KERNEL_PAGE * 16;
/// The same where addresses are limited.
const NARROW: usize = KERNEL_PAGE;
static GUARD: AtomicUsize = AtomicUsize::new(NARROW);

/// Addresses that a process has from which on guards are wide.
const MANY_ADDRESSES: usize = 1 << 42;

/// To be called before the first block.
pub fn start() {
    let wide = os::address_space_limit() >= MANY_ADDRESSES;
    GUARD.store(if wide { WIDE } else { NARROW }, Ordering::Relaxed);
}

/// Makes the guards of blocks to come narrow.
pub fn narrow() {
    GUARD.store(NARROW, Ordering::Relaxed);
}

/// Whether the next block is one of the first ones, of which all are guarded.
pub fn is_first() -> bool {
    let most = settings::current().guards() as usize;
    FIRST.load(Ordering::Relaxed) < most && FIRST.fetch_add(1, Ordering::Relaxed) < most
}

/// Bytes between the guards of a block of this size.
fn content_len(record: &Record) -> Option<usize> {
    let rounded = record.size.checked_next_multiple_of(record.align())?;
    rounded.checked_next_multiple_of(KERNEL_PAGE).filter(|bytes| *bytes < isize::MAX as usize / 2)
}

/// Bytes of the guard on either side of a block.
pub fn guard_len(record: &Record) -> usize {
    (record.len - content_len(record).unwrap_or(0).min(record.len)) / 2
}

/// Makes a block of `record.size` bytes and fills in where it lies. False if there is no room for it: then it can be
/// had without guards.
pub fn map(record: &mut Record) -> bool {
    let Some(bytes) = content_len(record) else { return false };
    let rounded = record.size.next_multiple_of(record.align());
    let guard = GUARD.load(Ordering::Relaxed);
    if record.align() > KERNEL_PAGE || bytes / 16 > u32::MAX as usize {
        return false;
    }
    if COUNT.fetch_add(1, Ordering::Relaxed) >= MAX {
        COUNT.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    let len = bytes + 2 * guard;
    let base = os::reserve(len);
    // SAFETY: the pages between the guards are the caller's, as is the whole.
    unsafe {
        if base.is_null() || (bytes > 0 && !os::commit(base.add(guard), bytes)) {
            if !base.is_null() {
                os::unmap(base, len);
            }
            COUNT.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
    }
    let front = guard + bytes - rounded;
    record.address = base as usize + front;
    record.front = (front / 16) as u32;
    record.len = len;
    record.guarded = true;
    apart::begin(base as usize + guard, bytes, len);
    true
}

/// Takes the memory of a freed block away and keeps its addresses.
pub fn close(record: &Record) {
    let (from, bytes) = content(record);
    if bytes > 0 {
        // SAFETY: the mapping is this block's, which is not the program's any more.
        unsafe { os::close_pages(from, bytes) };
    }
    apart::end(from as usize, bytes);
}

/// What lies between the guards: its first byte, and how many they are.
fn content(record: &Record) -> (*mut u8, usize) {
    let guard = guard_len(record);
    // SAFETY: the guard is the first part of the mapping.
    (unsafe { record.base().add(guard) }, record.len - 2 * guard)
}

/// Unmaps a block.
pub fn unmap(record: &Record) {
    let (from, bytes) = content(record);
    if record.state == State::Live {
        // Nobody ever had it.
        apart::end(from as usize, bytes);
    }
    // SAFETY: as above.
    unsafe { os::unmap(record.base(), record.len) };
    apart::unmapped(bytes, record.len);
    COUNT.fetch_sub(1, Ordering::Relaxed);
}
