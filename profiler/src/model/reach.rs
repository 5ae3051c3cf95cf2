//! What the process found out about blocks that nothing points to any more (`poolscope_wire::reach`).

use poolscope_wire::ReachRecord;
use poolscope_wire::reach::{outcome, verdict};

/// What a search found of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// None has looked at it.
    #[default]
    Unknown,
    /// The program can reach it.
    Reachable,
    /// It can, if a pointer into the middle of a block is one.
    Possible,
    /// Nothing points to it, or nothing but what it leads to itself.
    Direct,
    /// Only leaked blocks point to it; the address of the one that leads to it.
    Indirect(u64),
}

impl Verdict {
    /// The verdict of a record's words.
    pub fn of(number: u16, leader: u64) -> Self {
        match number {
            verdict::REACHABLE => Verdict::Reachable,
            verdict::POSSIBLE => Verdict::Possible,
            verdict::DIRECT => Verdict::Direct,
            verdict::INDIRECT => Verdict::Indirect(leader),
            _ => Verdict::Unknown,
        }
    }
}

/// A search for unreachable blocks that a process has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Why there are no verdicts.
    pub failed: Option<&'static str>,
    /// Threads that the process had.
    pub threads: u32,
    /// Those of them that were stopped, with the one that searched.
    pub stopped: u32,
    /// Kernel id of one that could not be stopped.
    pub unstopped: Option<u32>,
    /// Blocks that were looked for.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes of roots.
    pub root_bytes: u64,
    /// Nanoseconds for which threads were stopped.
    pub pause_ns: u64,
    /// Nanoseconds that the search took of these.
    pub scan_ns: u64,
}

impl Search {
    /// The last search of a process; `None` if there was none.
    pub fn of(record: &ReachRecord) -> Option<Self> {
        (record.state != outcome::NONE).then(|| Search {
            failed: outcome::reason(record.state),
            threads: record.threads,
            stopped: record.stopped,
            unstopped: Some(record.unstopped).filter(|&tid| tid != 0),
            blocks: record.blocks,
            bytes: record.bytes,
            root_bytes: record.root_bytes,
            pause_ns: record.pause_ns,
            scan_ns: record.scan_ns,
        })
    }
}
