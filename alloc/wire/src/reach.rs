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
    /// The program has said that it is no leak, whatever points to it. What it leads to is in use as well.
    pub const IGNORED: u16 = 5;
    /// Nothing points to it, but it is an immortal string of CPython's. What it leads to is in use.
    pub const INTERNED: u16 = 6;
}

/// What holds a block that is in use: [`LiveRecord::leader`](crate::LiveRecord::leader) of a reachable one. The low
/// bits say what the rest is.
pub mod holder {
    /// Bits that say what the rest is.
    pub const KIND_BITS: u32 = 3;
    /// The address of the word that points to it: in another block, in a module's variable, in other memory.
    pub const WORD: u64 = 0;
    /// The kernel id of the thread on whose stack the pointer lies.
    pub const STACK: u64 = 1;
    /// That of the thread that has it in a register.
    pub const REGISTER: u64 = 2;
    /// That of the thread that has it in thread-local storage, or of which the C library keeps it.
    pub const THREAD: u64 = 3;
    /// Nothing: the block is just being handed out, or it is a thread's stack.
    pub const IN_USE: u64 = 4;
    /// The address in a region that the program has named as a root.
    pub const REGION: u64 = 5;
    /// The descriptor of the instance of epoll that has it as the data of an event.
    pub const DESCRIPTOR: u64 = 6;
    /// The number of the timer that has it as its value.
    pub const TIMER: u64 = 7;

    /// What holds a block: one of the kinds above, and the rest.
    pub const fn split(holder: u64) -> (u64, u64) {
        let kind = holder & ((1 << KIND_BITS) - 1);
        if kind == WORD || kind == REGION { (kind, holder - kind) } else { (kind, holder >> KIND_BITS) }
    }

    /// A thread that holds a block by one of the kinds above.
    pub const fn of_thread(kind: u64, tid: u32) -> u64 {
        (tid as u64) << KIND_BITS | kind
    }

    /// An instance of epoll that holds a block.
    pub const fn of_descriptor(descriptor: u32) -> u64 {
        (descriptor as u64) << KIND_BITS | DESCRIPTOR
    }

    /// A timer that holds a block.
    pub const fn of_timer(timer: u32) -> u64 {
        (timer as u64) << KIND_BITS | TIMER
    }
}

/// Bits of [`ReachRequest::options`].
pub mod option {
    /// A forked child searches in its copy of the memory.
    pub const SNAPSHOT: u64 = 1;
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
    /// The copy of the process for a search could not be made, or ended before the search did.
    pub const NO_COPY: u32 = 9;
    /// The program has turned its leak check off.
    pub const TURNED_OFF: u32 = 10;
    /// The kernel does not say what an instance of epoll keeps for the program.
    pub const NO_EVENTS: u32 = 11;

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
            NO_COPY => "the copy of the process to search in could not be made, or ended early",
            TURNED_OFF => "the program has turned its leak check off (__lsan_is_turned_off, or detect_leaks=0)",
            NO_EVENTS => "the kernel does not say what its instances of epoll wait for (/proc/thread-self/fdinfo)",
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
        /// The request that asked for it; 0 if the process itself did.
        72 request: u64,
        /// Bits of [`option`].
        80 options: u64,
        /// Zero.
        88 reserved: [u64; 5],
    }
}

record! {
    /// How another process asks for a search. The asking one writes its words by the first field last, adds 1 to the
    /// bell and wakes who sleeps on it (`futex`, not private). The program then answers, when the search is over.
    pub struct ReachRequest: 64 {
        /// Any number but 0 that is not the one before. The asking process's.
        0 request: u64,
        /// Bits of [`option`]. The asking process's.
        8 options: u64,
        /// Bits that are no part of an address where the program keeps one. The asking process's.
        16 tag_mask: u64,
        /// The request that was answered last. The program's.
        24 answer: u64,
        /// What the program's thread for this sleeps on. Either side adds to it.
        32 bell: u32,
        /// Kernel id of that thread; 0 if there is none. The program's.
        36 listener: u32,
        /// One more than the filters of system calls that the process began with; 0 if that is not known. The
        /// program's.
        40 filters: u32,
        /// Zero.
        44 reserved: u32,
        /// Zero.
        48 reserved2: [u64; 2],
    }
}
