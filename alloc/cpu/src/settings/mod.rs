//! The settings: one table, from which come the environment's variables, the builder, and the list of the guide
//! (docs/guide/settings.md).
//!
//! | file | what |
//! |---|---|
//! | this one | the table |
//! | `range.rs` | which values a setting takes, how they are written and read |
//! | `signal.rs` | signals by number and by name |
//! | `values.rs` | the types that are more than a number |
//! | `store.rs` | the values in force: one word each, read without a lock |
//! | `environment.rs` | what the process was started with |
//! | `config.rs` | what the program says: the builder, and by name |
//!
//! Who speaks last wins: the defaults, then what the program sets before its first allocation, then the environment
//! (of whoever starts the program), then what the program changes while it runs.

mod config;
mod declare;
mod environment;
mod range;
mod signal;
mod store;
mod values;

use core::ffi::CStr;

pub(crate) use config::on_period_change;
pub use config::{SettingError, get, set, start_with};
pub use environment::COMMAND_VARIABLES;
pub(crate) use environment::start;
pub use poolscope_wire::quantity::Quantity;
pub use range::Range;
pub use store::Current;
pub use values::{Goal, Huge, NodeSet, Numa};

/// Bytes of the first address range when nobody asks for more or less.
pub const DEFAULT_ARENA: u64 = 256 << 30;

/// When a setting can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only before the first allocation of the process.
    AtStart,
    /// At any time.
    Anytime,
}

/// A row of the table.
#[derive(Debug)]
pub struct Setting {
    /// What the builder's method and the C functions call it.
    pub key: &'static str,
    /// Environment variable.
    pub variable: &'static CStr,
    /// Which values it takes.
    pub range: Range,
    /// What holds when nobody says anything, as the word that [`Range`] reads.
    pub default: u64,
    /// When it can change.
    pub change: Change,
    /// What it does.
    pub help: &'static str,
}

declare::settings! {
    /// Mean bytes between two samples; 0 or 1 records every allocation.
    period: u64 = 512 << 10, "POOLSCOPE_PERIOD", Of(Bytes { min: 0, max: 1 << 40 }), Anytime;

    /// Samples a second that the process takes, about: where they come faster, the period is raised. A shorter period
    /// allows as many more; 0 for no limit.
    sample_rate: u64 = 10_000, "POOLSCOPE_SAMPLE_RATE", Of(Number { min: 0, max: 1_000_000_000 }), Anytime;

    /// Folder of the segments; made with mode 0700 if it is missing.
    dir: Option<&'static CStr> = 0, "POOLSCOPE_DIR", Folder { default: "/dev/shm/poolscope-UID" }, AtStart;

    /// 1 keeps the segment after a normal exit.
    keep: bool = 0, "POOLSCOPE_KEEP", Switch, Anytime;

    /// File that a copy of the segment is written to at a normal exit, for `poolscope` to read. `%p` in it becomes the
    /// process id. Without it the last one's stays, of processes that inherit the variable.
    dump_at_exit: Option<&'static CStr> = 0, "POOLSCOPE_DUMP_AT_EXIT", Folder { default: "none" }, AtStart;

    /// Signal at which the process writes a copy of its segment, 0 for none. A handler of the program's own for the
    /// signal takes its place.
    dump_signal: u64 = 0, "POOLSCOPE_DUMP_SIGNAL", Signal, AtStart;

    /// 1 writes a copy of the segment when a request finds no memory, once in 60 seconds at most.
    dump_at_refusal: bool = 0, "POOLSCOPE_DUMP_AT_REFUSAL", Switch, Anytime;

    /// Folder of the copies that a signal or a refusal asks for: `poolscope.PID.NUMBER.segment`.
    dump_dir: Option<&'static CStr> = 0, "POOLSCOPE_DUMP_DIR", Folder { default: "/tmp" }, AtStart;

    /// 1 looks for blocks that nothing points to when the process ends; every allocation has to be recorded.
    /// `poolscope check` sets it.
    leak_check: bool = 0, "POOLSCOPE_LEAK_CHECK", Switch, Anytime;

    /// Bytes of a block that the process loses on purpose when it ends, as proof that a search finds it; 0 for none.
    /// `poolscope check --prove` sets it.
    leak_plant: u64 = 0, "POOLSCOPE_LEAK_PLANT", Of(Number { min: 0, max: 1 << 20 }), Anytime;

    /// 1 has a copy of the process look for such blocks, so that its threads wait for the copy only.
    /// `poolscope check --snapshot` sets it.
    leak_snapshot: bool = 0, "POOLSCOPE_LEAK_SNAPSHOT", Switch, Anytime;

    /// Bits that are no part of an address where the program keeps tags in its pointers, as a decimal number.
    /// `poolscope check --tag-mask` sets it.
    leak_tag_mask: u64 = 0, "POOLSCOPE_LEAK_TAG_MASK", Of(Number { min: 0, max: u64::MAX }), Anytime;

    /// Process id of a recorder that the program waits for at its start, if that is its parent:
    /// `poolscope record` sets it.
    recorder: u64 = 0, "POOLSCOPE_RECORDER", Of(Number { min: 0, max: u32::MAX as u64 }), AtStart;

    /// 1 has each process that inherits it wait for that recorder, and forked ones at their first allocation, as long
    /// as the recorder runs: `poolscope record --children` sets it.
    record_children: bool = 0, "POOLSCOPE_RECORD_CHILDREN", Switch, AtStart;

    /// 1 says on standard error when the pool has to do without something, such as its segment.
    verbose: bool = 0, "POOLSCOPE_VERBOSE", Switch, Anytime;

    /// What to spare where there is the choice; it says what POOLSCOPE_THREAD_CACHE, POOLSCOPE_SCAVENGE_MS and
    /// POOLSCOPE_GC_MS are if they are not set: `memory` 1M, 1000 and 500, `speed` 256M, 60000 and 30000. While a
    /// program grows, a fourth as much may lie idle with `memory` as with `balanced`, and any amount with `speed`.
    goal: Goal = Goal::Balanced as u64, "POOLSCOPE_GOAL", OneOf(Goal::NAMES), AtStart;

    /// Bytes that thread caches may hold beyond what the threads have in use: each its share, but at least 1M or, if
    /// that is less, all of it. If it is not set, they hold at most 16M while at most 32M are in use, then less and
    /// less: at 64M a 32nd of it, or 4M; or, where that is more, 8M for each thread but one.
    thread_cache: u64 = 128 << 20, "POOLSCOPE_THREAD_CACHE", Of(Bytes { min: 64 << 10, max: 1 << 30 }), Anytime;

    /// Time over which idle memory goes back to the system.
    scavenge_ms: Option<u64> = 10_000, "POOLSCOPE_SCAVENGE_MS", Milliseconds { min: 0, max: 3_600_000 }, Anytime;

    /// Time without an allocation after which a thread's cache is drained;
    /// half of POOLSCOPE_SCAVENGE_MS if that is less.
    gc_ms: Option<u64> = 5_000, "POOLSCOPE_GC_MS", Milliseconds { min: 1, max: 3_600_000 }, Anytime;

    /// Huge pages: what the system gives by itself; none; transparent ones for what lies beyond the first 64 MiB; or
    /// explicit ones (hugetlb) as far as they go, and transparent ones then.
    huge: Huge = Huge::System as u64, "POOLSCOPE_HUGE", OneOf(Huge::NAMES), AtStart;

    /// NUMA nodes that memory comes from: as the system has it, each thread's own as long as it has memory, all in
    /// turn, or those listed and no others.
    numa: Numa = 0, "POOLSCOPE_NUMA", NumaPolicy, AtStart;

    /// 1 looks for double frees, overflows and use after free, at a cost.
    hardened: bool = 0, "POOLSCOPE_HARDENED", Switch, AtStart;

    /// Blocks of the process, its first ones, that lie between pages which can't be touched, with POOLSCOPE_HARDENED.
    guards: u64 = 1_000, "POOLSCOPE_GUARDS", Of(Number { min: 0, max: 1 << 20 }), AtStart;

    /// 1 makes no system calls but those of the C library's allocator: nothing is sampled, no other process sees the
    /// heap, and idle memory goes back when blocks are freed.
    plain: bool = 0, "POOLSCOPE_PLAIN", Switch, AtStart;

    /// Bytes of the first address range that is reserved; more is reserved when it is used up. Blocks in the first
    /// range are freed fastest.
    arena: u64 = DEFAULT_ARENA, "POOLSCOPE_ARENA", Of(PowerOfTwo { min: 64 << 20, max: 1 << 40 }), AtStart;
}

/// The settings in force.
#[inline(always)]
pub fn current() -> Current {
    Current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_consistent() {
        for setting in &SETTINGS {
            let name = setting.variable.to_str().unwrap();
            assert_eq!(name.strip_prefix("POOLSCOPE_").unwrap().to_ascii_lowercase(), setting.key);
            assert!(setting.range.allows(setting.default), "{name}");
            assert!(setting.help.ends_with('.') && !setting.help.contains('|'), "{name}: {}", setting.help);
            // A folder is kept as the address of its text, which only the environment and a literal keep for good.
            let folder = matches!(setting.range, Range::Folder { .. });
            assert!(!folder || setting.change == Change::AtStart, "{name}");
        }
    }
}
