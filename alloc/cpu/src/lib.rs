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
//! | thread cache | `tiers/thread_cache.rs`, `tiers/medium_cache.rs` | none: one thread |
//! | transfer cache | `tiers/transfer_cache.rs` | none: whole lists by one atomic operation |
//! | central cache | `tiers/central_cache.rs` | one for each class |
//! | page heap | `pages/page_heap.rs`, `pages/frontier.rs`, `layout/arena.rs` | one |
//! | system | `pages/system.rs`, `kernel/os.rs` | the kernel's |
//!
//! Locks nest in the order limbo, registry, tracer, hardened, sampler, census, central cache, page heap.
//!
//! The crate runs inside `malloc`: no `std`, no allocation of its own, no panic, no lock held across a call into the
//! C library, errno kept. Memory of its own comes from `mmap`.
#![cfg_attr(not(any(test, miri)), no_std)]

mod api;
mod calls;
mod census;
mod collector;
mod entry;
mod hardened;
pub mod hooks;
mod kernel;
mod layout;
mod pages;
mod process;
mod sampler;
mod sampling;
mod segment;
mod serve;
pub mod settings;
mod sync;
mod threads;
mod tiers;
mod tracer;

pub use api::statistics::{read as read_stats, with_stats};
pub use api::{data_ptr, device, scope};
pub use calls::free::{free, free_aligned, free_aligned_sized, free_sized};
pub use calls::malloc::{
    malloc, malloc_aligned, malloc_fast, malloc_zeroed, malloc_zeroed_aligned, realloc, usable_size,
};
pub use kernel::kernel_calls;
pub use kernel::message::{Message, StandardError};
pub use kernel::os::{map as map_pages, set_errno, unmap as unmap_pages};
pub use layout::size_class::{CLASSES, SizeClass};
pub use process::reset::{release_unused, reset};
pub use process::scavenger::{Paused as PausedScavenger, pause as pause_scavenger};
pub use segment::bus_error::change_program_action;
pub use segment::counters::{TierCounter, all as counters, get as counter};

/// To be called before the process limits its address space to `limit` bytes (`RLIMIT_AS`): gives back what the pool
/// has reserved and not used, so that the limit leaves room for the program's own mappings.
pub fn fit_reservation(limit: usize) {
    if let entry::registry::Entry::Heap(entered) = entry::registry::enter() {
        entry::capture::fit(entered.heap, limit);
        pages::page_heap::fit_reservation(entered.slow, limit);
        sampler::fit(entered.slow, limit);
        hardened::fit(entered.slow, limit);
    }
}

/// To be called by what ends the process without running its exit handlers (`_exit`): removes the segment, or marks it
/// as ended if it is to be kept. A normal exit does this by itself.
pub fn finish() {
    if let entry::registry::Entry::Heap(entered) = entry::registry::enter() {
        tracer::session::finish(entered.slow);
        sampler::finish(entered.slow);
    }
}
