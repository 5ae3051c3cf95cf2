//! The pool's settings: what they are, and how a program changes them.
//!
//! ```
//! # #[global_allocator]
//! # static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
//! use poolscope_alloc::config;
//!
//! # fn main() -> Result<(), config::SettingError> {
//! poolscope_alloc::config().period(64 << 10).scavenge_ms(Some(1000)).apply()?;
//! assert_eq!(config::current().period(), 64 << 10);
//!
//! let error = poolscope_alloc::config().thread_cache(1).apply().unwrap_err();
//! assert_eq!(error.to_string(), "thread_cache takes bytes from 64K to 1G");
//! # Ok(())
//! # }
//! ```
//!
//! What only counts at the start has to be known before the first allocation, and the standard library allocates before
//! `main`. So it goes with the allocator:
//!
//! ```
//! #[global_allocator]
//! static POOL: poolscope_alloc::Configured =
//!     poolscope_alloc::Configured(poolscope_alloc::config().arena(4 << 30).huge(poolscope_alloc::config::Huge::Off));
//!
//! # fn main() {
//! assert_eq!(poolscope_alloc::config::current().arena(), 4 << 30);
//! # }
//! ```
//!
//! These are the program's defaults: the environment, which whoever starts the program sets, has the last word.

use std::alloc::{GlobalAlloc, Layout};

pub use poolscope_cpu::settings::{
    Change, Config, Current, Goal, Huge, NodeSet, Numa, Range, SETTINGS, Setting, SettingError, current,
};

use crate::Poolscope;

/// Settings to be changed: name them, then [`Config::apply`] them or give them to [`Configured`].
pub const fn config() -> Config {
    Config::new()
}

/// The pool as a global allocator that has its settings with it.
#[derive(Clone, Copy, Debug)]
pub struct Configured(pub Config);

impl Configured {
    #[inline(never)]
    fn alloc_slow(&self, layout: Layout) -> *mut u8 {
        poolscope_cpu::settings::start_with(&self.0);
        // SAFETY: the layout is the caller's.
        unsafe { Poolscope.alloc(layout) }
    }
}

// SAFETY: as for `Poolscope`, which does everything.
unsafe impl GlobalAlloc for Configured {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that has a block at hand has allocated before: the settings are in force.
        match poolscope_cpu::malloc_fast(layout.size(), layout.align()) {
            Some(p) => p,
            None => self.alloc_slow(layout),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        poolscope_cpu::settings::start_with(&self.0);
        // SAFETY: the caller's promise.
        unsafe { Poolscope.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Poolscope.dealloc(p, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { Poolscope.realloc(p, layout, new_size) }
    }
}
