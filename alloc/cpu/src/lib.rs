//! The host tiers of poolscope.
//!
//! ```text
//! malloc, free ── thread cache ── transfer cache ── central cache ── page heap ── frontier ── system
//!                      │
//!                      └ sampler ── stack table, live table ── segment
//! ```
//!
//! | tier | file | lock |
//! |---|---|---|
//! | thread cache | `thread_cache.rs`, `medium_cache.rs` | none: one thread |
//! | transfer cache | `transfer_cache.rs` | none: whole lists by one atomic operation |
//! | central cache | `central_cache.rs` | one for each class |
//! | page heap | `page_heap.rs`, `frontier.rs`, `arena.rs` | one |
//! | system | `system.rs`, `os.rs` | the kernel's |
//!
//! Locks nest in the order limbo, registry, tracer, hardened, sampler, census, central cache, page heap.
//!
//! The crate runs inside `malloc`: no `std`, no allocation of its own, no panic, no lock held across a call into the
//! C library, errno kept. Memory of its own comes from `mmap`.
#![cfg_attr(not(any(test, miri)), no_std)]

mod arena;
mod block;
mod bus_error;
mod capture;
mod census;
mod central_cache;
mod credentials;
pub mod data_ptr;
mod decay;
mod detour;
pub mod device;
mod fork;
mod free;
mod frontier;
mod hardened;
pub mod hooks;
mod idle;
mod inbox;
pub mod kernel_calls;
mod large;
mod lean;
mod mailbox;
mod malloc;
mod mappings;
mod medium_cache;
mod message;
mod os;
mod page_heap;
mod placement;
mod raw_thread;
mod reentrant;
mod registry;
mod remap;
mod reset;
mod sampler;
mod scavenger;
pub mod scope;
mod segment;
pub mod settings;
mod size_class;
mod slab;
mod slot_table;
mod spin_lock;
mod stats;
mod system;
mod thread_cache;
mod thread_pointer;
mod tracer;
mod transfer_cache;
mod word;

pub use bus_error::change_program_action;
pub use free::{free, free_aligned, free_aligned_sized, free_sized};
pub use malloc::{malloc, malloc_aligned, malloc_fast, malloc_zeroed, malloc_zeroed_aligned, realloc, usable_size};
pub use message::{Message, StandardError};
pub use os::{map as map_pages, set_errno, unmap as unmap_pages};
pub use reset::{release_unused, reset};
pub use scavenger::{Paused as PausedScavenger, pause as pause_scavenger};
pub use size_class::{CLASSES, SizeClass};
pub use stats::{TierCounter, all as counters, get as counter, read as read_stats, with_stats};

/// To be called before the process limits its address space to `limit` bytes (`RLIMIT_AS`): gives back what the pool
/// has reserved and not used, so that the limit leaves room for the program's own mappings.
pub fn fit_reservation(limit: usize) {
    if let registry::Entry::Heap(entered) = registry::enter() {
        capture::fit(entered.heap, limit);
        page_heap::fit_reservation(entered.slow, limit);
        sampler::fit(entered.slow, limit);
        hardened::fit(entered.slow, limit);
    }
}

/// To be called by what ends the process without running its exit handlers (`_exit`): removes the segment, or marks it
/// as ended if it is to be kept. A normal exit does this by itself.
pub fn finish() {
    if let registry::Entry::Heap(entered) = registry::enter() {
        tracer::session::finish(entered.slow);
        sampler::finish(entered.slow);
    }
}
