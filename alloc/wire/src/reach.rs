//! What a search for unreachable blocks found: which blocks nothing in the process points to any more.

use crate::record::record;

/// Values of [`LiveRecord::verdict`](crate::LiveRecord::verdict).
pub mod verdict {
    /// No search has looked at the block.
    pub const NONE: u16 = 0;
    /// A chain of pointers to the starts of blocks leads to it from a root.
    pub const REACHABLE: u16 = 1;
    /// A chain leads to it, and each has a pointer into the middle of a block.
    pub const POSSIBLE: u16 = 2;
    /// Nothing points to it, or nothing but what it leads to itself.
    pub const DIRECT: u16 = 3;
    /// Only leaked blocks point to it.
    pub const INDIRECT: u16 = 4;
}

/// Values of [`ReachRecord::state`]: what came of a search.
pub mod outcome {
    /// There was none.
    pub const NONE: u32 = 0;
    /// The verdicts stand.
    pub const DONE: u32 = 1;
    /// Not every allocation is recorded.
    pub const SAMPLED: u32 = 2;
    /// Blocks found no room in the records.
    pub const NO_ROOM: u32 = 3;
    /// The hardened mode lays blocks out in another way.
    pub const HARDENED: u32 = 4;
    /// The kernel does not say what memory the process has.
    pub const NO_MAPS: u32 = 5;
    /// There was no memory for the search.
    pub const NO_MEMORY: u32 = 6;
    /// Threads can't be listed, or there is no signal to stop them with.
    pub const NO_SIGNAL: u32 = 7;
    /// This processor, or a tool in its place, is not known.
    pub const NO_REGISTERS: u32 = 8;

    /// Why there are no verdicts; `None` if there are some, or nobody searched.
    pub fn reason(outcome: u32) -> Option<&'static str> {
        Some(match outcome {
            NONE | DONE => return None,
            SAMPLED => "not every allocation is recorded",
            NO_ROOM => "not all its blocks found room in the records",
            HARDENED => "it runs in the hardened mode",
            NO_MAPS => "the kernel does not say what memory the process has (/proc/thread-self/maps and pagemap)",
            NO_MEMORY => "there was no memory for the search",
            NO_SIGNAL => "its threads can't be listed, or there is no signal to stop them with",
            NO_REGISTERS => "registers can't be read here",
            _ => "this poolscope does not know why",
        })
    }
}

record! {
    /// What the last search for unreachable blocks looked at.
    pub struct ReachRecord: 128 {
        /// One of [`outcome`].
        0 state: u32,
        /// Threads that the process had, with the one that searched.
        4 threads: u32,
        /// Those of them that were stopped, with the one that searched.
        8 stopped: u32,
        /// Kernel id of one that could not be stopped; 0 if all were.
        12 unstopped: u32,
        /// Searches of this process.
        16 searches: u64,
        /// Blocks that were looked for.
        24 blocks: u64,
        /// Bytes of these.
        32 bytes: u64,
        /// Bytes of roots that were read.
        40 root_bytes: u64,
        /// Nanoseconds for which threads were stopped.
        48 pause_ns: u64,
        /// Nanoseconds that the search took of these.
        56 scan_ns: u64,
        /// `CLOCK_MONOTONIC` at its end in nanoseconds.
        64 time_ns: u64,
        /// Zero.
        72 reserved: [u64; 7],
    }
}
