//! The shared segment of poolscope, byte for byte.
//!
//! A program on the pool keeps one file, its *segment*, in which any other process of the same user can read
//! what the heap holds: state, not only events. This crate is the contract between the writer (the tiers, in the
//! program) and the readers (the profiler and everything on it). It has no dependency, allocates nothing and
//! contains no `unsafe`: the writer maps the file and stores through the types below, a reader copies bytes out
//! of the file and parses the copy.
//!
//! # Where it lies
//!
//! `/dev/shm/poolscope-UID/PID.GENERATION`, the folder with mode 0700 and the file with mode 0600. `GENERATION`
//! is 16 hexadecimal digits, drawn anew by every image: `exec` keeps the pid. `POOLSCOPE_DIR` names another
//! folder.
//!
//! # Layout
//!
//! All numbers are little-endian. The [`Header`] takes the first [`HEADER_LEN`] bytes. It holds one
//! [`RegionEntry`] for each [`Region`]; a region is an array of records of one length:
//!
//! | region | record | what |
//! |---|---|---|
//! | [`Region::Tiers`] | one word | process-wide counters, in the order of [`TIER_COUNTERS`] |
//! | [`Region::Classes`] | [`ClassRecord`] | the table of size classes, with counters that are no thread's |
//! | [`Region::Threads`] | [`ThreadRecord`] and [`MAX_CLASSES`] [`ClassCounters`] | one for each thread heap, reused after exit |
//! | [`Region::Stacks`] | [`StackRecord`] | every distinct call stack, with the totals of what it allocated and freed; functions of [`script`] |
//! | [`Region::Frames`] | one word | return addresses, which the stacks point into and share ([`outer`]) |
//! | [`Region::Modules`] | [`ModuleRecord`] | executables and libraries that the frames lie in |
//! | [`Region::Live`] | [`LiveRecord`] | every sampled block that is allocated now |
//! | [`Region::Devices`] | [`DeviceRecord`] | pools of device memory, with their counters |
//! | [`Region::DeviceMaps`] | [`MAP_LEN`] bytes | what lies where in their memory: [`cell`]s, their [`place`]s, and streams |
//! | [`Region::Peaks`] | [`PeakRecord`] | what each stack had in use when most of its memory, the host's or a device's, was in use |
//!
//! Before the regions, where [`Header::history`] says, lie the totals of the process since its start: a [`HistoryHead`]
//! and [`HISTORY_TOTALS`] [`Total`]s.
//!
//! A region's place is fixed; its committed part grows. Bytes past `committed` may not exist in the file: the
//! writer allocates them (`posix_fallocate`) before it raises `committed`, so that a full file system is a
//! refusal and never a SIGBUS.
//!
//! A recorder of every allocation writes three words of the header ([`trace`]);
//! nothing else is ever written by a reader.
//!
//! # Who may read when
//!
//! - `count` of a region is raised after the record behind it is complete (release), so records below `count` of
//!   [`Region::Classes`], [`Region::Stacks`] and [`Region::Frames`] are complete. The totals in a stack record
//!   are words that only grow.
//! - [`LiveRecord`], [`ModuleRecord`] and [`DeviceRecord`] are reused: each starts with `seq`, odd while the writer is
//!   in it. A reader copies the record twice; both copies equal and `seq` even means that the first one is whole.
//! - [`Region::Peaks`] is rewritten as a whole, with [`Header::peak_seq`] odd meanwhile: a reader that finds the number
//!   even and the same before and after it copied the region has it whole.
//! - The history is changed with [`HistoryHead::seq`] odd meanwhile, in the same way.
//! - Counters are single words, of which the last written value holds. [`Header::census_seq`] is odd while a census
//!   writes those of all threads and of the process: a reader that finds the number even and the same before and after
//!   it copied them has those of one moment.
//!
//! # Versions
//!
//! [`VERSION`] changes with any change of this layout. Readers take the two versions before their own ([`older`]). A
//! reader that meets any other version says so and stops.
#![no_std]
#![forbid(unsafe_code)]

pub mod build_note;
mod devices;
mod header;
pub mod history;
pub mod holders;
pub mod label;
mod moment;
pub mod older;
pub mod outer;
pub mod own_code;
pub mod quantity;
pub mod reach;
mod record;
mod records;
pub mod script;
pub mod stats;
mod tiers;
pub mod trace;

pub use devices::{DEVICE_COUNTERS_MAX, DEVICE_NAME_MAX, DeviceRecord, MAP_CELLS, MAP_LEN, MAP_STREAMS, cell, place};
pub use header::{
    DEVICE_PEAKS, DevicePeak, GROUNDS, Ground, HEADER_LEN, Header, HeaderError, MAGIC, OLDEST_VERSION, REGION_COUNT,
    Region, RegionEntry, VERSION, flags, state,
};
pub use history::{HISTORY_LEN, HISTORY_TOTALS, HistoryHead, Total};
pub use moment::Moment;
pub use reach::{ReachRecord, ReachRequest};
pub use records::{
    ClassCounters, ClassRecord, LiveRecord, MAX_CLASSES, MODULE_PATH_MAX, ModuleRecord, PeakRecord, StackRecord,
    THREAD_RECORD_LEN, ThreadRecord, file_number, kind, stack_flags, thread_state,
};
pub use stats::{ClassStats, Stats};
pub use tiers::{
    CLASS_COUNTERS, ClassCounter, CounterInfo, DEVICE_COUNTERS, DeviceCounter, TIER_COUNTERS, TierCounter, Unit,
};

/// Object counts in records are in units of 1/65536: one sample stands for `1 / p` objects, which is no whole
/// number.
pub const OBJECT_ONE: u64 = 1 << 16;
