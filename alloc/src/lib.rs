//! poolscope's pool for Rust programs.
//!
//! ```
//! #[global_allocator]
//! static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
//!
//! fn main() {
//!     assert_eq!(vec![1; 1000].len(), 1000);
//! }
//! ```
//!
//! That line is all: the program's memory comes from the pool's tiers, one allocation in half a mebibyte is sampled
//! with its stack, and `poolscope top PID` shows the heap at any time. Nothing changes until the line is there.
//! [`scope`] records every allocation of a part of one thread, for leak checks in tests.

pub mod scope;
pub mod stats;

use std::alloc::{GlobalAlloc, Layout};

/// The pool as a global allocator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Poolscope;

// SAFETY: the pool's functions return blocks of at least the size and at the alignment asked for, or null, and never
// unwind.
unsafe impl GlobalAlloc for Poolscope {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            poolscope_cpu::malloc(layout.size())
        } else {
            poolscope_cpu::malloc_aligned(layout.size(), layout.align())
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            return poolscope_cpu::malloc_zeroed(layout.size());
        }
        // SAFETY: the caller's promise.
        let p = unsafe { self.alloc(layout) };
        if !p.is_null() {
            // SAFETY: the block holds `size` bytes.
            unsafe { p.write_bytes(0, layout.size()) };
        }
        p
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { poolscope_cpu::free(p) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { poolscope_cpu::realloc(p, new_size, layout.align()) }
    }
}
