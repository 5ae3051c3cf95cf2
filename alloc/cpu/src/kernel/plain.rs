//! Whether the pool is plain: such a one makes no system calls but those of the C library's allocator.

use core::sync::atomic::{AtomicBool, Ordering};

/// Whether only calls are to be made that the C library's allocator makes, too (`kernel_calls.rs`).
pub fn is_plain() -> bool {
    PLAIN.load(Ordering::Relaxed)
}

/// Has only those calls made from now on, or all.
pub fn be_plain(plain: bool) {
    PLAIN.store(plain, Ordering::Relaxed);
}

static PLAIN: AtomicBool = AtomicBool::new(false);
