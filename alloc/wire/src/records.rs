//! The records that the regions hold.

use crate::record::record;

/// The most size classes that a [`ThreadRecord`] has counters for.
pub const MAX_CLASSES: usize = 136;

/// Bytes of one entry of [`Region::Threads`](crate::Region::Threads): a [`ThreadRecord`] and the counters per class.
pub const THREAD_RECORD_LEN: usize = ThreadRecord::LEN + MAX_CLASSES * ClassCounters::LEN;

/// Bytes that a module's path may take.
pub const MODULE_PATH_MAX: usize = 432;

/// Values of [`LiveRecord::kind`] and [`StackRecord::kind`]: which memory.
pub mod kind {
    /// No block: the slot is free.
    pub const NONE: u16 = 0;
    /// Host memory.
    pub const HOST: u16 = 1;
    /// Memory of a device.
    pub const DEVICE: u16 = 2;
    /// Host memory that a device can read and write, page-locked.
    pub const PINNED: u16 = 3;
    /// No memory: a stack's record that has a function of Python's or Ruby's instead ([`script`](crate::script)).
    pub const FUNCTION: u16 = 4;

    /// All kinds that a block may be of.
    pub const ALL: [u16; 3] = [HOST, DEVICE, PINNED];

    /// The field's word for it.
    pub fn name(kind: u16) -> &'static str {
        match kind {
            HOST => "host",
            DEVICE => "device",
            PINNED => "pinned",
            _ => "unknown",
        }
    }
}

/// Bits of [`StackRecord::flags`].
pub mod stack_flags {
    /// Cut at the depth limit: outer frames are missing.
    pub const TRUNCATED: u16 = 1;
    /// The walk ended before the thread's first frame (no unwind information there).
    pub const INCOMPLETE: u16 = 2;
    /// Its outer frames are another stack's ([`outer`](crate::outer)).
    pub const SHARED: u16 = 4;
}

/// Values of [`ThreadRecord::state`].
pub mod thread_state {
    /// Never used.
    pub const UNUSED: u32 = 0;
    /// A thread allocates from this heap.
    pub const LIVE: u32 = 1;
    /// The thread ended; a later one takes the heap over. Counters go on.
    pub const EXITED: u32 = 2;
}

record! {
    /// One size class.
    pub struct ClassRecord: 80 {
        /// Bytes of each block.
        0 block_bytes: u32,
        /// Bytes of each slab.
        4 slab_bytes: u32,
        /// Blocks in each slab.
        8 slab_blocks: u32,
        /// Zero.
        12 reserved: u32,
        /// Counters, indexed by [`ClassCounter`](crate::ClassCounter).
        16 shared: [u64; 8],
    }
}

const _: () = assert!(size_of::<ClassRecord>() == 16 + 8 * crate::CLASS_COUNTERS.len());

record! {
    /// A thread's heap. [`MAX_CLASSES`] [`ClassCounters`] follow it.
    pub struct ThreadRecord: 64 {
        /// One of [`thread_state`].
        0 state: u32,
        /// Kernel thread id of the thread that has it, or had it last.
        4 tid: u32,
        /// Threads that have had this heap.
        8 uses: u64,
        /// Samples that its threads took.
        16 samples: u64,
        /// Blocks of other heaps that its threads freed.
        24 remote_frees: u64,
        /// Batches in which these were handed over.
        32 remote_batches: u64,
        /// Blocks that other threads freed and that came back to this heap.
        40 remote_returns: u64,
        /// Blocks that its threads got past their cache: large ones, and samples. 0 from older pools.
        48 uncached_allocs: u64,
        /// Their bytes, with those that large ones grew by in place.
        56 uncached_bytes: u64,
    }
}

record! {
    /// A thread heap's counters for one class. Allocations count when a list of blocks is made ready for the
    /// thread, frees when the blocks are gathered in: `allocs - frees` is an upper bound of the blocks in use.
    pub struct ClassCounters: 56 {
        /// Blocks made ready for allocation.
        0 allocs: u64,
        /// Blocks gathered in after they were freed, or made ready and not used.
        8 frees: u64,
        /// Times that the thread cache was empty (misses); `allocs - refills` are its hits.
        16 refills: u64,
        /// Blocks that are among `allocs` and that the thread had not handed to the program when it published its
        /// counters.
        24 cached: u64,
        /// What this thread added to [`ClassCounter::Untouched`](crate::ClassCounter::Untouched), in two's complement:
        /// it may have cut blocks from a slab that another one took from the page heap.
        32 untouched: u64,
        /// Blocks of other heaps that this thread freed and handed over.
        40 sent: u64,
        /// Blocks that arrived here after such a handing over. The sum of all threads' `sent` less that of all
        /// `returned` is on its way.
        48 returned: u64,
    }
}

impl ClassCounters {
    /// Blocks that the program has got.
    pub fn allocated(&self) -> u64 {
        self.allocs.saturating_sub(self.cached)
    }

    /// Whether the thread has had nothing to do with the class.
    pub fn is_unused(&self) -> bool {
        self.allocs | self.frees | self.refills | self.sent | self.returned == 0
    }
}

record! {
    /// A distinct call stack and the totals of what was ever sampled from it, already scaled to all allocations.
    pub struct StackRecord: 64 {
        /// Hash of the frames, the kind and the device.
        0 hash: u64,
        /// Index of the innermost frame in [`Region::Frames`](crate::Region::Frames), or of the word before it that says
        /// where the outer ones are.
        8 first_frame: u32,
        /// Number of frames, with those that it shares.
        12 depth: u16,
        /// Made by [`StackRecord::describe`]: bits 0 to 3 of [`stack_flags`], bits 4 to 7 one of [`kind`], from bit 8
        /// on the number of the device.
        14 flags_and_kind: u16,
        /// Samples taken.
        16 alloc_samples: u64,
        /// Objects allocated, in units of 1/65536.
        24 alloc_objects: u64,
        /// Bytes allocated.
        32 alloc_bytes: u64,
        /// Sampled blocks freed.
        40 free_samples: u64,
        /// Objects freed, in units of 1/65536.
        48 free_objects: u64,
        /// Bytes freed.
        56 free_bytes: u64,
    }
}

impl StackRecord {
    /// The word [`flags_and_kind`](StackRecord::flags_and_kind). Devices have numbers below 256; of larger ones, the
    /// low byte counts.
    pub const fn describe(flags: u16, kind: u16, device: u32) -> u16 {
        flags & 0xf | (kind & 0xf) << 4 | (device as u16 & 0xff) << 8
    }

    /// Bits of [`stack_flags`].
    pub fn flags(&self) -> u16 {
        self.flags_and_kind & 0xf
    }

    /// One of [`kind`].
    pub fn kind(&self) -> u16 {
        self.flags_and_kind >> 4 & 0xf
    }

    /// Number of the device; 0 for host memory.
    pub fn device(&self) -> u32 {
        u32::from(self.flags_and_kind >> 8)
    }
}

record! {
    /// What a stack had in use when the process had most in use; the index is the stack's.
    pub struct PeakRecord: 16 {
        /// Objects, in units of 1/65536.
        0 objects: u64,
        /// Bytes.
        8 bytes: u64,
    }
}

record! {
    /// An executable or a library, as it was mapped when a frame in it was first seen.
    pub struct ModuleRecord: 512 {
        /// Odd while the record is being written.
        0 seq: u32,
        /// Bytes used of `build_id`.
        4 build_id_len: u16,
        /// Bytes used of `path`; the whole length if the path was cut.
        6 path_len: u16,
        /// First address.
        8 start: u64,
        /// Address after the last.
        16 end: u64,
        /// What was added to the file's virtual addresses.
        24 load_bias: u64,
        /// Stacks below this index were taken before the module was seen at these addresses:
        /// their frames are not in it.
        32 first_stack: u32,
        /// Stacks from this index on were taken after it was found gone; `u32::MAX` while it is loaded.
        36 last_stack: u32,
        /// Which file it is, if it has no build id ([`crate::file_number`]); 0 if it has one,
        /// or nobody knows.
        40 file: u64,
        /// The note `NT_GNU_BUILD_ID`, cut to fit.
        48 build_id: [u8; 32],
        /// The file.
        80 path: [u8; 432],
    }
}

/// A number for a file in one state: its inode, its length in bytes, and the time of its last change in seconds and
/// nanoseconds. Never 0.
pub fn file_number(inode: u64, bytes: u64, modified: (i64, u64)) -> u64 {
    let words = [inode, bytes, modified.0 as u64, modified.1];
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = words.into_iter().fold(1, mix);
    (hash ^ hash >> 29) | 1
}

record! {
    /// A sampled block that is allocated now.
    pub struct LiveRecord: 64 {
        /// Odd while the record is being written.
        0 seq: u32,
        /// Index into [`Region::Stacks`](crate::Region::Stacks).
        4 stack: u32,
        /// Where the block lies.
        8 address: u64,
        /// Bytes that the program asked for.
        16 size: u64,
        /// Objects that this sample stands for, in units of 1/65536: `1 / p` for the probability `p` with which
        /// a block of its class is sampled.
        24 weight: u64,
        /// `CLOCK_MONOTONIC` of the allocation in nanoseconds. It is older than the segment only if a forked child has
        /// the block from its parent.
        32 time_ns: u64,
        /// Kernel id of the thread that allocated it.
        40 tid: u32,
        /// The leak checker's scope that it was allocated in; 0 outside of any.
        44 scope: u32,
        /// One of [`kind`]; [`kind::NONE`] in a free slot.
        48 kind: u16,
        /// What the last search for unreachable blocks found: one of [`verdict`](crate::reach::verdict).
        50 verdict: u16,
        /// Device number; 0 for host memory.
        52 device: u32,
        /// The address of the leaked block that leads to this one, if it is leaked indirectly. What holds it
        /// ([`holder`](crate::reach::holder)), if it can be reached. 0 if neither is known.
        56 leader: u64,
    }
}
