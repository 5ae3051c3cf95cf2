//! The host tiers of poolscope.
//!
//! ```text
//! malloc, free ── thread cache ── transfer cache ── central cache ── page heap ── frontier ── system
//!                      │
//!                      └ sampler ── stack table, live table ── segment
//! ```
//!
//! Each folder uses only those above it in this table (`tests/tests/import_order.rs`). One call goes up: a thread's
//! first, from `entry` to `process/start.rs`.
//!
//! | folder | what it is for |
//! |---|---|
//! | `kernel` | system calls, the pool's own thread, messages; no types of the pool |
//! | `sync` | the lock and its proof, atomic words that loom checks, why every call takes the slow path |
//! | `settings` | the table of settings |
//! | `layout` | how memory looks: arenas, slabs, size classes, blocks, mailboxes |
//! | `segment` | what other processes see: the file, counters, modules, a recorder's request |
//! | `sampling` | the mathematics of sampling |
//! | `script` | what an interpreter is running, as it keeps it for itself: CPython and Ruby |
//! | `pages` | spans from the kernel and back, tables whose idle pages go back, and who asks for that |
//! | `tiers` | a thread's heap, and what heaps hand to each other |
//! | `threads` | the thread's words, all heaps, how a fast path is closed |
//! | `census` | counters that are right when a reader looks |
//! | `entry` | how a thread enters the slow path; stacks that are captured there |
//! | `sampler` | sampled blocks and their records |
//! | `tracer` | every event, for a recorder |
//! | `collector` | caches of threads that sleep, and of those that have ended |
//! | `serve` | requests of the slow path: where tiers and sampler meet, and the heartbeat |
//! | `hardened` | checked blocks |
//! | `hooks` | functions of the program's that see every call |
//! | `calls` | `malloc`, `free`, `realloc`: the fast paths, and the one slow path behind them |
//! | `process` | start, exit, fork, the scavenger |
//! | `api` | what a program asks for beside memory |
//!
//! The tiers' locks: none for the thread cache (one thread) and the transfer cache (one atomic operation for a list),
//! one for each class of the central cache, one for the page heap.
//!
//! Locks nest in one order, the table `LOCKS` in `process/fork.rs`, by which a fork takes them all.
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
mod reach;
mod sampler;
mod sampling;
mod script;
mod segment;
mod serve;
pub mod settings;
mod sync;
mod threads;
mod tiers;
mod tracer;

pub use api::dump::dump;
pub use api::statistics::{read as read_stats, with_stats};
pub use api::{data_ptr, device, label, leaks, scope, script as interpreter};
pub use calls::free::{delete, free, free_aligned_sized, free_sized};
pub use calls::malloc::{malloc, malloc_aligned, malloc_fast, malloc_zeroed, malloc_zeroed_aligned};
pub use calls::realloc::{realloc, usable_size};
pub use hardened::{Origin, is_on as is_hardened, note_origin, trust_origins};
pub use kernel::kernel_calls;
pub use kernel::message::decimal;
pub use kernel::message::{Message, StandardError};
pub use kernel::os::{map as map_pages, set_errno, sleep_us, unmap as unmap_pages};
pub use kernel::system_call::call as system_call;
pub use layout::size_class::{CLASSES, SizeClass};
pub use process::exit::finish;
pub use process::identity::before_change as before_change_of_identity;
pub use process::reservation::fit as fit_reservation;
pub use process::reset::{release_unused, reset};
pub use process::scavenger::Paused as PausedScavenger;
pub use segment::bus_error::change_program_action;
pub use segment::counters::{TierCounter, all as counters, get as counter};
