//! The first page of a segment: what it is, whose it is, and where the regions lie.

use crate::reach::{ReachRecord, ReachRequest};
use crate::record::record;

/// The first eight bytes of a segment.
pub const MAGIC: [u8; 8] = *b"POOLSCOP";

/// Version of the layout that this crate describes.
pub const VERSION: u32 = 13;

/// The oldest version that readers take ([`older`](crate::older)).
pub const OLDEST_VERSION: u32 = 11;

/// Bytes that the header takes at the start of the file.
pub const HEADER_LEN: usize = 4096;

/// Number of regions.
pub const REGION_COUNT: usize = 10;

/// The arrays that make up a segment; the discriminant is the index into [`Header::regions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Region {
    /// Process-wide counters, one word each.
    Tiers = 0,
    /// Size classes.
    Classes = 1,
    /// Thread heaps with their counters per class.
    Threads = 2,
    /// Distinct call stacks with totals.
    Stacks = 3,
    /// Return addresses, one word each, innermost first.
    Frames = 4,
    /// Executables and libraries.
    Modules = 5,
    /// Sampled blocks that are allocated now.
    Live = 6,
    /// Pools of device memory, with their counters.
    Devices = 7,
    /// What lies where in the memory of each of these.
    DeviceMaps = 8,
    /// What each stack had in use when the process had most in use.
    Peaks = 9,
}

impl Region {
    /// All regions, in the order of the header.
    pub const ALL: [Region; REGION_COUNT] = [
        Region::Tiers,
        Region::Classes,
        Region::Threads,
        Region::Stacks,
        Region::Frames,
        Region::Modules,
        Region::Live,
        Region::Devices,
        Region::DeviceMaps,
        Region::Peaks,
    ];

    /// The field's word for it, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Region::Tiers => "tiers",
            Region::Classes => "classes",
            Region::Threads => "threads",
            Region::Stacks => "stacks",
            Region::Frames => "frames",
            Region::Modules => "modules",
            Region::Live => "live",
            Region::Devices => "devices",
            Region::DeviceMaps => "device maps",
            Region::Peaks => "peaks",
        }
    }

    /// Length of one record of this region in bytes.
    pub fn record_len(self) -> usize {
        match self {
            Region::Tiers | Region::Frames => 8,
            Region::Classes => crate::ClassRecord::LEN,
            Region::Threads => crate::THREAD_RECORD_LEN,
            Region::Stacks => crate::StackRecord::LEN,
            Region::Modules => crate::ModuleRecord::LEN,
            Region::Live => crate::LiveRecord::LEN,
            Region::Devices => crate::DeviceRecord::LEN,
            Region::DeviceMaps => crate::MAP_LEN,
            Region::Peaks => crate::PeakRecord::LEN,
        }
    }
}

/// Values of [`Header::state`].
pub mod state {
    /// The writer is still filling the header: read again later.
    pub const STARTING: u32 = 0;
    /// The program runs (or was killed: see the pid, the start time and the boot id).
    pub const LIVE: u32 = 1;
    /// The program ended by `exit`; the file was kept on request.
    pub const EXITED: u32 = 2;
}

/// Bits of [`Header::flags`].
pub mod flags {
    /// Every allocation is recorded; weights are 1.
    pub const EXACT: u32 = 1;
    /// The segment belongs to a forked child that did not `exec`: its live table began as a copy of the parent's.
    pub const FORKED: u32 = 2;
    /// The pool is part of the executable: of several pools of a process, this one is the program's own.
    pub const IN_EXECUTABLE: u32 = 4;
    /// The pool is what the process calls by `malloc`.
    pub const SERVES_MALLOC: u32 = 8;
}

record! {
    /// Where a region lies. `committed` and `count` are raised with release ordering and never fall.
    pub struct RegionEntry: 40 {
        /// Bytes from the start of the file, a multiple of 4096.
        0 offset: u64,
        /// The most bytes that the region can ever take.
        8 capacity: u64,
        /// Bytes that exist in the file now.
        16 committed: u64,
        /// Records that were ever used: readers look at these and no others.
        24 count: u64,
        /// Length of one record in bytes.
        32 record_len: u32,
        /// Zero.
        36 reserved: u32,
    }
}

/// Devices' memories whose peaks are kept; those that come later have none.
pub const DEVICE_PEAKS: usize = 15;

record! {
    /// When most memory of a device was in use, by what was recorded of it.
    pub struct DevicePeak: 24 {
        /// Number of the device.
        0 device: u32,
        /// [`kind::DEVICE`](crate::kind::DEVICE) or [`kind::PINNED`](crate::kind::PINNED); 0 if the place was never
        /// used.
        4 kind: u16,
        /// Zero.
        6 reserved: u16,
        /// Bytes in use at the peak that is in [`Region::Peaks`], scaled from the samples; 0 before the first peak.
        8 bytes: u64,
        /// `CLOCK_MONOTONIC` of that peak in nanoseconds.
        16 time_ns: u64,
    }
}

/// Places for [`Ground`]s.
pub const GROUNDS: usize = 32;

record! {
    /// Addresses that the pool uses, whether or not memory is behind each of them.
    pub struct Ground: 16 {
        /// The first; 0 if the place was never used.
        0 from: u64,
        /// The one behind the last.
        8 to: u64,
    }
}

record! {
    /// The first page of a segment.
    pub struct Header: 4096 {
        /// [`MAGIC`], written last.
        0 magic: [u8; 8],
        /// [`VERSION`].
        8 version: u32,
        /// [`HEADER_LEN`].
        12 header_len: u32,
        /// One of [`state`].
        16 state: u32,
        /// Bits of [`flags`].
        20 flags: u32,
        /// Process id, as the program itself sees it.
        24 pid: u32,
        /// Parent's process id at the start.
        28 parent_pid: u32,
        /// Effective user id.
        32 uid: u32,
        /// 1 while the counters are as of the last census ([`census_ns`](Self::census_ns)); otherwise each is as of its
        /// last change. 0 in a segment of before.
        36 is_watched: u32,
        /// Start of the process in clock ticks after boot: field 22 of `/proc/PID/stat`. As all times but the real one,
        /// as it is outside of time namespaces.
        40 start_ticks: u64,
        /// `/proc/sys/kernel/random/boot_id` as 16 bytes.
        48 boot_id: [u8; 16],
        /// Random number that is also in the file's name.
        64 generation: u64,
        /// `CLOCK_REALTIME` at the segment's start, in nanoseconds.
        72 start_realtime_ns: u64,
        /// `CLOCK_MONOTONIC` at the segment's start, in nanoseconds: the same clock as
        /// [`LiveRecord::time_ns`](crate::LiveRecord::time_ns).
        80 start_monotonic_ns: u64,
        /// Mean bytes between two samples; 1 when every allocation is recorded.
        88 period_bytes: u64,
        /// Samples that found no room in the live table: in-use figures miss them.
        96 dropped_live: u64,
        /// Samples whose stack found no room: they count under the stack 0, which has no frames.
        104 dropped_stacks: u64,
        /// Modules that found no room: their frames have no file.
        112 dropped_modules: u64,
        /// Stacks that were cut at the depth limit.
        120 truncated_stacks: u64,
        /// Bytes of a page of the page heap.
        128 page_bytes: u64,
        /// Pools of device memory that found no room in [`Region::Devices`].
        136 dropped_devices: u64,
        /// What a recorder asks for ([`Request`](crate::trace::Request)), 0 for nothing. The recorder's word, not the
        /// program's.
        144 trace_request: u64,
        /// [`check_word`](crate::trace::check_word) of it. The recorder's.
        152 trace_request_check: u64,
        /// `CLOCK_MONOTONIC` in nanoseconds when the recorder was last at work. The recorder's.
        160 trace_heartbeat_ns: u64,
        /// The request that the program answered last.
        168 trace_answer: u64,
        /// One of [`trace_state`](crate::trace::trace_state).
        176 trace_state: u32,
        /// Raised each time that the program calls its recorder, which sleeps on this word (futex(2)): it has answered,
        /// has a new ring or much in one, or ends. 0 in a program that does not call.
        180 trace_calls: u32,
        /// For each [`Unbacked`](crate::stats::Unbacked), the bytes that the counters say have memory and that have
        /// none, in two's complement: as of the last census.
        184 unbacked: [u64; 5],
        /// `CLOCK_MONOTONIC` of the last census in nanoseconds; 0 before the first.
        224 census_ns: u64,
        /// Odd while [`Region::Peaks`] is being written; 0 before the first peak.
        232 peak_seq: u32,
        /// Odd while a census is being written: the counters of threads and classes, and those of the process.
        236 census_seq: u32,
        /// Bytes of host memory in use at the peak that is in [`Region::Peaks`], scaled from the samples.
        240 peak_bytes: u64,
        /// `CLOCK_MONOTONIC` of that peak in nanoseconds.
        248 peak_time_ns: u64,
        /// Indexed by [`Region`].
        256 regions: [RegionEntry; 10],
        /// The same of devices' memories, under [`peak_seq`](Self::peak_seq), too.
        656 device_peaks: [DevicePeak; 15],
        /// Where the totals since the start lie ([`history`](crate::history)), bytes from the start of the file; 0 if
        /// there are none.
        1016 history: u64,
        /// Bytes used of `exe`.
        1024 exe_len: u32,
        /// Bytes used of `cmdline`.
        1028 cmdline_len: u32,
        /// Path of the executable, cut to fit.
        1032 exe: [u8; 820],
        /// Process id of the recorder that the process waits for, as the process sees it; 0 if there is none.
        1852 recorder: u32,
        /// How another process asks for a search for unreachable blocks.
        1856 reach_request: ReachRequest,
        /// What the last search for unreachable blocks looked at.
        1920 reach: ReachRecord,
        /// Arguments as in `/proc/PID/cmdline`, separated by zero bytes, cut to fit.
        2048 cmdline: [u8; 1536],
        /// Addresses that the pool's pages and their descriptors take, in the order in which they were first used. If
        /// all places are taken, there may be more.
        3584 grounds: [Ground; 32],
    }
}

/// Why a header is not one that this crate can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than a header takes.
    TooShort {
        /// Bytes that are there.
        len: u64,
    },
    /// The first bytes are not [`MAGIC`]: another file, or a program that has only just started.
    NotASegment,
    /// A layout of another version.
    Version {
        /// The version that the file states.
        found: u32,
    },
    /// An entry of the region table contradicts the layout.
    Region {
        /// Which one.
        region: Region,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl core::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HeaderError::TooShort { len } => {
                write!(f, "{len} bytes are too few for a segment, which begins with {HEADER_LEN}")
            }
            HeaderError::NotASegment => f.write_str("not a poolscope segment (its first bytes are others)"),
            HeaderError::Version { found } => write!(
                f,
                "segment of version {found}, this poolscope reads versions {OLDEST_VERSION} to {VERSION}: use the poolscope that came with the library"
            ),
            HeaderError::Region { region, why } => write!(f, "damaged segment: region {}: {why}", region.name()),
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    /// The entry of one region.
    pub fn region(&self, region: Region) -> RegionEntry {
        self.regions[region as usize]
    }

    /// Reads and checks the header of a file of `file_len` bytes whose first bytes are `bytes`.
    ///
    /// After this, every region's used records (`count * record_len`) lie inside its committed part, which lies
    /// inside the file and inside the region's capacity; regions don't overlap the header or each other.
    pub fn parse(bytes: &[u8], file_len: u64) -> Result<Header, HeaderError> {
        let header = Header::from_bytes(bytes).ok_or(HeaderError::TooShort { len: bytes.len() as u64 })?;
        if header.magic != MAGIC {
            return Err(HeaderError::NotASegment);
        }
        if !(OLDEST_VERSION..=VERSION).contains(&header.version) {
            return Err(HeaderError::Version { found: header.version });
        }
        let mut end_of_last = HEADER_LEN as u64;
        for region in Region::ALL {
            let entry = header.region(region);
            let fail = |why| Err(HeaderError::Region { region, why });
            if entry.record_len as usize != region.record_len() {
                return fail("records of another length");
            }
            if entry.offset % 4096 != 0 || entry.offset < end_of_last {
                return fail("overlaps what lies before it");
            }
            let Some(end) = entry.offset.checked_add(entry.capacity) else {
                return fail("ends past the largest file");
            };
            if entry.committed > entry.capacity {
                return fail("has more bytes committed than it may take");
            }
            // A region that nothing was committed of may lie past the end of the file.
            if entry.committed > 0 && entry.offset + entry.committed > file_len {
                return fail("reaches past the end of the file (was it cut off?)");
            }
            if entry.count.checked_mul(u64::from(entry.record_len)).is_none_or(|used| used > entry.committed) {
                return fail("counts more records than are committed");
            }
            end_of_last = end;
        }
        Ok(header)
    }
}
