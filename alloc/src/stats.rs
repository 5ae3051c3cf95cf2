//! The pool's statistics: [`stats`] as a structure, [`stats_json`], and [`stats_text`] in the layout of tcmalloc.
//!
//! ```
//! # #[global_allocator]
//! # static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
//! # fn main() {
//! let buffer = vec![0u8; 1 << 20];
//! let stats = poolscope_alloc::stats();
//! assert!(stats.usage().in_use >= 1 << 20);
//! println!("{}", poolscope_alloc::stats_text());
//! # drop(buffer);
//! # }
//! ```

pub use poolscope_cpu::{TierCounter, counter, counters};
pub use poolscope_wire::stats::{ClassStats, Stats, Usage, json, text};
pub use poolscope_wire::{ClassCounter, ClassCounters};

/// What the pool has done so far, and where its bytes are. [`Stats`] says what is exact. About 17 KiB.
pub fn stats() -> Stats {
    let mut stats = Stats::EMPTY;
    poolscope_cpu::read_stats(&mut stats);
    stats
}

/// The statistics as JSON; [`json`] describes it. `poolscope stats PID --json` prints the same.
pub fn stats_json() -> String {
    let stats = stats();
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = json::write(&stats, &mut out);
    out
}

/// The statistics as text, in the layout of tcmalloc. `poolscope stats PID` prints the same.
pub fn stats_text() -> String {
    let stats = stats();
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = text::write(&stats, &mut out);
    out
}
