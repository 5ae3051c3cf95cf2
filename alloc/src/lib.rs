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
//! [`Pool`] is the same for single containers, in a program that stays on its own allocator, and [`DataPtr`] is an
//! owned buffer to pass to other libraries and languages. [`config()`] changes the pool's settings, [`stats()`] says
//! what the pool did, [`hooks`] see every call, [`reset`] gives back what nobody uses, and [`scope`] records every
//! allocation of a part of one thread, for leak checks in tests. With the feature `gpu`,
//! `gpu` has pools of device memory.

mod allocator;
pub mod config;
pub mod data_ptr;
mod dump;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod hooks;
pub mod label;
pub mod scope;
pub mod stats;

pub use allocator::Pool;
pub use config::{Configured, config};
pub use data_ptr::DataPtr;
pub use dump::dump;
pub use poolscope_cpu::{release_unused, reset};
pub use stats::{stats, stats_json, stats_text};

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
        poolscope_cpu::malloc_zeroed_aligned(layout.size(), layout.align())
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { poolscope_cpu::free_aligned_sized(p, layout.align(), layout.size()) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { poolscope_cpu::realloc(p, new_size, layout.align()) }
    }
}
