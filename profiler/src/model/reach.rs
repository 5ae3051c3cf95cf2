//! What the process found out about blocks that nothing points to any more (`poolscope_wire::reach`).

use poolscope_wire::ReachRecord;
use poolscope_wire::reach::{holder, outcome, verdict};

use crate::words::figures;

/// What a search found of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
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
    /// The program has said that it is no leak.
    Ignored,
    /// Nothing points to it, but it is an immortal string of CPython's.
    Interned,
}

/// What holds a block that can be reached: the last step of a shortest chain of pointers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub enum Holder {
    /// The word at this address: in another block, in a module's variable, in other memory.
    Word(u64),
    /// The stack of this thread.
    Stack(u32),
    /// A register of this thread.
    Register(u32),
    /// Thread-local storage of this thread, or what the C library keeps of it.
    Thread(u32),
    /// Nothing that is known: it was just being handed out, or is a thread's stack itself.
    InUse,
    /// The word at this address, in a region that the program has named as a root.
    Region(u64),
    /// The instance of epoll with this descriptor, as the data of an event.
    Descriptor(u32),
    /// This timer of the process's, as its value.
    Timer(u32),
}

impl Holder {
    /// What the word of a record says.
    fn of(word: u64) -> Option<Self> {
        let (kind, rest) = holder::split(word);
        match kind {
            _ if word == 0 => None,
            holder::WORD => Some(Holder::Word(rest)),
            holder::STACK => Some(Holder::Stack(rest as u32)),
            holder::REGISTER => Some(Holder::Register(rest as u32)),
            holder::THREAD => Some(Holder::Thread(rest as u32)),
            holder::IN_USE => Some(Holder::InUse),
            holder::REGION => Some(Holder::Region(rest)),
            holder::DESCRIPTOR => Some(Holder::Descriptor(rest as u32)),
            holder::TIMER => Some(Holder::Timer(rest as u32)),
            _ => None,
        }
    }

    /// What holds a block by a record's words.
    pub fn of_record(number: u16, leader: u64) -> Option<Self> {
        matches!(number, verdict::REACHABLE | verdict::POSSIBLE).then(|| Self::of(leader)).flatten()
    }
}

impl Verdict {
    /// Nothing that the program can reach points to the block.
    pub fn is_leaked(self) -> bool {
        matches!(self, Verdict::Direct | Verdict::Indirect(_))
    }

    /// The verdict of a record's words.
    pub fn of(number: u16, leader: u64) -> Self {
        match number {
            verdict::REACHABLE => Verdict::Reachable,
            verdict::POSSIBLE => Verdict::Possible,
            verdict::DIRECT => Verdict::Direct,
            verdict::INDIRECT => Verdict::Indirect(leader),
            verdict::IGNORED => Verdict::Ignored,
            verdict::INTERNED => Verdict::Interned,
            _ => Verdict::Unknown,
        }
    }
}

/// One of the sentences that say why a search failed.
pub type Reason = &'static str;

/// A search for unreachable blocks that a process has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Search {
    /// Why there are no verdicts.
    #[cfg_attr(feature = "reading", serde(with = "crate::model::carried::reason"))]
    pub failed: Option<Reason>,
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
    /// What was looked at, in words.
    pub fn looked_at(&self) -> String {
        let (blocks, bytes) = (figures::count(self.blocks, "block"), figures::grouped(self.bytes));
        format!("checked {blocks}, {bytes} bytes, {} of {} threads stopped", self.stopped, self.threads)
    }

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
