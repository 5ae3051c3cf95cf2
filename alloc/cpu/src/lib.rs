//! The host tiers of poolscope.
//!
//! ```text
//! malloc, free ── thread cache ── transfer cache ── central cache ── page heap ── arena ── system
//!                      │
//!                      └ sampler ── stack table, live table ── segment
//! ```
//!
//! | tier | file | lock |
//! |---|---|---|
//! | thread cache | `thread_cache.rs` | none: one thread |
//! | transfer cache | `transfer_cache.rs` | none: whole lists by one atomic operation |
//! | central cache | `central_cache.rs` | one for each class |
//! | page heap | `page_heap.rs`, `arena.rs` | one |
//! | system | `os.rs` | the kernel's |
//!
//! Locks nest in the order limbo, registry, sampler, central cache, page heap.
//!
//! The crate runs inside `malloc`: no `std`, no allocation of its own, no panic, no lock held across a call into the
//! C library, errno kept. Memory of its own comes from `mmap`.
#![cfg_attr(not(any(test, miri)), no_std)]

mod arena;
mod block;
mod central_cache;
mod free;
mod large;
mod malloc;
mod message;
mod os;
mod page_heap;
mod reentrant;
mod registry;
mod sampler;
pub mod scope;
mod segment;
mod settings;
mod size_class;
mod slab;
mod spin_lock;
mod stats;
mod thread_cache;
mod thread_pointer;
mod transfer_cache;

pub use free::free;
pub use malloc::{malloc, malloc_aligned, malloc_fast, malloc_zeroed, realloc, usable_size};
pub use message::Message;
pub use os::set_errno;
pub use settings::{DEFAULT_PERIOD, SETTINGS, SettingInfo};
pub use size_class::{CLASSES, SizeClass};
pub use stats::{TierCounter, all as counters, get as counter};

/// Gives the memory of all free spans back to the kernel. Returns the bytes.
pub fn release_free_memory() -> usize {
    let registry::Entry::Heap(entered) = registry::enter() else { return 0 };
    page_heap::release_all(entered.slow)
}

/// To be called by what ends the process without running its exit handlers (`_exit`): removes the segment, or marks it
/// as ended if it is to be kept. A normal exit does this by itself.
pub fn finish() {
    if let registry::Entry::Heap(entered) = registry::enter() {
        sampler::finish(entered.slow);
    }
}
