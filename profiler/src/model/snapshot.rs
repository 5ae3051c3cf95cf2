//! One consistent reading of a segment: plain data, checked, with no symbols yet.

use poolscope_wire::stats::Unbacked;
pub use poolscope_wire::{ClassStats, file_number};
use poolscope_wire::{DeviceCounter, Stats, TierCounter, place};

use crate::model::frames::Frames;
use crate::model::functions::Functions;
use crate::model::history::{History, Most};
use crate::model::memory::{Memory, Place};
use crate::model::reach::{Holder, Search, Verdict};

/// What a segment said at one moment.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// Whose segment it is.
    pub process: ProcessInfo,
    /// Whose the first stacks are, if a recording is of several processes: each with the stack after its last,
    /// ascending.
    pub former: Vec<(u32, ProcessInfo)>,
    /// When it was read: nanoseconds of `CLOCK_MONOTONIC`.
    pub taken_ns: u64,
    /// When it was read: nanoseconds of `CLOCK_REALTIME`.
    pub taken_realtime_ns: u64,
    /// Mean bytes between two samples; 1 when every allocation is recorded.
    pub period_bytes: u64,
    /// Every allocation is recorded: figures are exact, not estimates.
    pub exact: bool,
    /// The pool is what the process calls by `malloc`.
    pub serves_malloc: bool,
    /// Bytes of a page of the page heap.
    pub page_bytes: u64,
    /// When the process had most host memory in use, if it has freed much since ([`Stack::peak`]); `None` if it never
    /// fell.
    pub peak: Option<PeakMoment>,
    /// The same of each device's memory.
    pub device_peaks: Vec<DevicePeak>,
    /// What the segment could not hold.
    pub dropped: Dropped,
    /// Process-wide counters, indexed by [`TierCounter`].
    pub tiers: Tiers,
    /// Size classes, with the counters of all threads added up.
    #[cfg_attr(feature = "reading", serde(with = "crate::model::carried::classes"))]
    pub classes: Vec<ClassStats>,
    /// Thread heaps that were ever used.
    pub threads: Vec<ThreadStats>,
    /// Every distinct call stack; a [`LiveBlock`] points into it.
    pub stacks: Vec<Stack>,
    /// Functions of Python's that stacks have, by their numbers: each has the place of a stack, too, which has no words.
    #[cfg_attr(feature = "reading", serde(skip))]
    pub functions: Functions,
    /// Executables and libraries, in the order they were seen (the first is the executable).
    pub modules: Vec<Module>,
    /// Every sampled block that is allocated now.
    pub live: Vec<LiveBlock>,
    /// The last search for blocks that nothing points to; `None` if there was none.
    pub search: Option<Search>,
    /// Pools of device memory.
    pub devices: Vec<DevicePool>,
    /// Memory of the process as the kernel counts it; `None` when it is dead or may not be asked.
    pub memory: Option<ProcessMemory>,
    /// The same by what it is for; `None` when it is dead or may not be asked.
    pub residence: Option<Residence>,
    /// Host memory since the start of the process; empty if the segment is of an older version.
    pub history: History,
    /// Bytes of the segment that exist, touched by the process or not.
    pub segment_bytes: u64,
}

impl Snapshot {
    /// The moment that it is of, nanoseconds of `CLOCK_MONOTONIC`: of a process that is gone the last one that it
    /// noted. `None` if nobody knows.
    pub fn moment_ns(&self) -> Option<u64> {
        let is_running = self.process.state == ProcessState::Running;
        if is_running { Some(self.taken_ns) } else { self.history.totals.last().map(|last| last.time_ns) }
    }

    /// Whose a stack is.
    pub fn process_of(&self, stack: u32) -> &ProcessInfo {
        let at = self.former.partition_point(|&(end, _)| end <= stack);
        self.former.get(at).map_or(&self.process, |(_, process)| process)
    }

    /// Bytes in use of some memory, by the pool's exact counters. `None` if the segment has none of it.
    pub fn in_use(&self, memory: Memory) -> Option<u64> {
        if memory == Memory::Host {
            return (!self.classes.is_empty()).then(|| self.stats().usage().in_use);
        }
        let pools = self.devices.iter().filter(|pool| memory.has(pool.place));
        pools.map(|pool| pool.get(DeviceCounter::CurrentUsage)).reduce(u64::saturating_add)
    }

    /// The most host memory that was in use, and when. The pool looks at its figures now and then; what is in use now
    /// was in use, too.
    pub fn most(&self) -> Option<Most> {
        let most = self.history.most()?;
        let in_use = self.in_use(Memory::Host).unwrap_or(0);
        if in_use <= most.bytes {
            return Some(most);
        }
        // When one that is gone came to that is not known: it was after the last look.
        let running = self.process.state == ProcessState::Running;
        let last_ns = self.history.totals.last().map_or(self.taken_ns, |last| last.time_ns);
        Some(Most { bytes: in_use, time_ns: if running { self.taken_ns } else { last_ns } })
    }

    /// `CLOCK_MONOTONIC` in nanoseconds of what the counters of classes, threads and tiers say. In a program that is
    /// large, or has many threads, that may be a second ago.
    pub fn counted_ns(&self) -> u64 {
        self.tiers.census_ns.map_or(self.taken_ns, |census_ns| census_ns.min(self.taken_ns))
    }

    /// The statistics of the pool, as the process itself would give them.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            class_count: self.classes.len().min(Stats::EMPTY.classes.len()),
            heaps: self.threads.len() as u64,
            page_bytes: self.page_bytes,
            period_bytes: self.period_bytes,
            unbacked: self.tiers.unbacked,
            resident: self.tiers.resident,
            ..Stats::EMPTY
        };
        for (value, counter) in stats.tiers.iter_mut().zip(TierCounter::ALL) {
            *value = self.tiers.get(*counter);
        }
        for (place, class) in stats.classes.iter_mut().zip(&self.classes) {
            *place = *class;
        }
        stats
    }
}

/// Whose segment it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessInfo {
    /// Process id as this process sees it (from the file's name).
    pub pid: u32,
    /// Whether it still runs.
    pub state: ProcessState,
    /// Path of the executable.
    pub exe: String,
    /// Arguments, the program's name first.
    pub args: Vec<String>,
    /// Start of the segment, nanoseconds of `CLOCK_REALTIME`.
    pub start_realtime_ns: u64,
    /// Start of the segment, nanoseconds of `CLOCK_MONOTONIC`.
    pub start_monotonic_ns: u64,
    /// A forked child that did not exec.
    pub forked: bool,
}

impl ProcessInfo {
    /// Process id and start: no two processes have both.
    pub fn identity(&self) -> (u32, u64) {
        (self.pid, self.start_realtime_ns)
    }
}

/// Whether the process of a segment still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub enum ProcessState {
    /// It runs.
    #[default]
    Running,
    /// It ended by `exit` and its segment was kept.
    Exited,
    /// It is gone without having said so: killed, crashed, replaced by `exec`, or from before a reboot.
    Killed,
}

impl ProcessState {
    /// What is known of the process, for text: a copy of a segment is of one that went on when it was written.
    pub(crate) fn said(self) -> &'static str {
        match self {
            ProcessState::Running | ProcessState::Exited => self.word(),
            ProcessState::Killed => "gone",
        }
    }

    /// The word for it in JSON and in lists.
    pub fn word(self) -> &'static str {
        match self {
            ProcessState::Running => "running",
            ProcessState::Exited => "exited",
            ProcessState::Killed => "killed",
        }
    }
}

/// What the segment could not hold. All zero in a healthy profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Dropped {
    /// Samples that found no room in the live table: in-use figures miss them.
    pub live: u64,
    /// Samples whose stack found no room.
    pub stacks: u64,
    /// Modules that found no room.
    pub modules: u64,
    /// Pools of device memory that found no room.
    pub devices: u64,
    /// Stacks cut at the depth limit.
    pub truncated: u64,
    /// Records that the reader could not copy whole, because the program kept changing them.
    pub torn: u64,
    /// Records that contradict the layout: a damaged or hostile segment.
    pub invalid: u64,
}

impl Dropped {
    /// Everything that makes figures too low.
    pub fn total(&self) -> u64 {
        self.blocks().saturating_add(self.stacks)
    }

    /// What may make blocks be missing: one whose stack found no room is there, and in use, without its stack.
    pub fn blocks(&self) -> u64 {
        [self.torn, self.invalid].into_iter().fold(self.live, u64::saturating_add)
    }
}

/// Process-wide counters, and what is known of the memory behind the pool's pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Tiers {
    words: Vec<u64>,
    unbacked: [u64; Unbacked::COUNT],
    resident: Option<u64>,
    census_ns: Option<u64>,
}

impl Tiers {
    /// Counters in the order of [`poolscope_wire::TIER_COUNTERS`]; missing ones read as zero.
    pub fn new(words: Vec<u64>) -> Self {
        Tiers { words, ..Tiers::default() }
    }

    /// With what the last census found to have no memory ([`Stats::unbacked`]), and what has memory now
    /// ([`Stats::resident`]).
    pub(crate) fn with_memory(self, unbacked: [u64; Unbacked::COUNT], resident: Option<u64>) -> Self {
        Tiers { unbacked, resident, ..self }
    }

    /// As of a census at this time, if they are of one.
    pub(crate) fn of_census(self, census_ns: Option<u64>) -> Self {
        Tiers { census_ns, ..self }
    }

    /// With a counter that is known to have got as far as `value`.
    pub(crate) fn at_least(mut self, counter: TierCounter, value: u64) -> Self {
        if let Some(word) = self.words.get_mut(counter as usize) {
            *word = value.max(*word);
        }
        self
    }

    /// One counter.
    pub fn get(&self, counter: TierCounter) -> u64 {
        self.words.get(counter as usize).copied().unwrap_or(0)
    }
}

/// One thread heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct ThreadStats {
    /// Kernel thread id of the thread that has it, or had it last.
    pub tid: u32,
    /// A thread has it now.
    pub live: bool,
    /// Blocks allocated: those of all classes that were made ready, and those that came past the thread cache.
    pub allocs: u64,
    /// Blocks gathered in, over all classes.
    pub frees: u64,
    /// Bytes of the blocks allocated, as the pool rounds them, with those that large ones grew by in place.
    pub alloc_bytes: u64,
    /// Large blocks and samples among those allocated, which come past the thread cache; 0 in segments of older pools.
    pub uncached_allocs: u64,
    /// Their bytes.
    pub uncached_bytes: u64,
    /// Thread cache misses, over all classes.
    pub refills: u64,
    /// Samples taken.
    pub samples: u64,
    /// Blocks of other heaps that it freed.
    pub remote_frees: u64,
}

/// A distinct call stack with totals, scaled from the samples to all allocations.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Stack {
    /// Return addresses, innermost first, as captured.
    #[cfg_attr(feature = "reading", serde(skip))]
    pub frames: Frames,
    /// Which memory.
    pub place: Place,
    /// Outer frames are missing: cut at the depth limit, or no unwind information.
    pub incomplete: bool,
    /// Everything ever allocated from here.
    pub allocated: Amount,
    /// Everything ever freed of it.
    pub freed: Amount,
    /// What was in use of it at the peak of its memory: [`Snapshot::peak`], or one of [`Snapshot::device_peaks`].
    pub peak: Amount,
}

/// When a process had most in use, as it wrote down itself: its true peak is higher by a 32nd at most, beside the error
/// of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct PeakMoment {
    /// Bytes in use, scaled from the samples.
    pub bytes: u64,
    /// When: nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// When most of a device's memory was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct DevicePeak {
    /// Which memory.
    pub place: Place,
    /// When, and how much.
    pub moment: PeakMoment,
}

/// A number of objects and their bytes, estimated from samples unless the snapshot is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Amount {
    /// Objects (a fraction only because samples are scaled).
    pub objects: f64,
    /// Bytes asked for.
    pub bytes: f64,
    /// Samples behind the estimate. If each stands for as much, its standard error is about `bytes / sqrt(samples)`; of
    /// blocks in use [`LiveBlock::variance`] says it.
    pub samples: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// A sampled block that is allocated now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveBlock {
    /// Index into [`Snapshot::stacks`].
    pub stack: u32,
    /// Where it lies.
    pub address: u64,
    /// Bytes that the program asked for.
    pub size: u64,
    /// Objects that it stands for.
    pub weight: f64,
    /// When it was allocated: nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Kernel thread id of its allocator.
    pub tid: u32,
    /// The leak checker's scope; 0 outside of any.
    pub scope: u32,
    /// Which memory.
    pub place: Place,
    /// What the last search for unreachable blocks found.
    pub verdict: Verdict,
    /// What holds it, if it can be reached.
    pub holder: Option<Holder>,
}

impl LiveBlock {
    /// What this sample adds to an in-use figure.
    pub fn amount(&self) -> Amount {
        Amount { objects: self.weight, bytes: self.weight * self.size as f64, samples: 1 }
    }

    /// What it adds to the variance of the bytes of such a figure, bytes squared: a block that stands for `weight` was
    /// taken with a probability of one in so many (Horvitz and Thompson 1952).
    pub fn variance(&self) -> f64 {
        (self.size as f64).powi(2) * self.weight * (self.weight - 1.0).max(0.0)
    }
}

/// A pool of device memory, as it was when it last published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct DevicePool {
    /// Which memory.
    pub place: Place,
    /// The device's name.
    pub name: String,
    /// Bytes of memory that the device has; 0 if that means nothing.
    pub memory_bytes: u64,
    /// When it published, nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// In the order of [`poolscope_wire::DEVICE_COUNTERS`].
    pub counters: Vec<u64>,
    /// What lies where in its memory: values of [`poolscope_wire::cell`].
    pub cells: Vec<u8>,
    /// Bytes that a cell stands for.
    pub cell_bytes: u64,
    /// Where each cell lies, and whose it is ([`poolscope_wire::place`]); empty where the segment does not say.
    pub places: Vec<u64>,
    /// The streams that places name, as the driver's handles.
    pub streams: Vec<u64>,
}

/// A cell of a device's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What most of it is: a value of [`poolscope_wire::cell`].
    pub state: u8,
    /// Where that begins, if anybody knows.
    pub address: Option<u64>,
    /// The one stream that it is of, or that it waits for, as the driver's handle.
    pub stream: Option<u64>,
}

impl DevicePool {
    /// One counter.
    pub fn get(&self, counter: DeviceCounter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    /// Mean bytes between two samples of its blocks now, which is longer than the process's where samples come too
    /// fast: 1 where every block is recorded, 0 where none was yet.
    pub fn period_bytes(&self) -> u64 {
        self.get(DeviceCounter::SamplePeriod)
    }

    /// A cell of the map; none if the pool does not hold so many.
    pub fn piece(&self, cell: usize) -> Option<Piece> {
        let state = *self.cells.get(cell)?;
        let word = self.places.get(cell).copied().unwrap_or(0);
        let stream = place::stream(word).and_then(|at| self.streams.get(at)).copied();
        Some(Piece { state, address: place::address(word), stream })
    }

    /// What it is called where there is little room: `0`, or `0 pinned`.
    pub fn label(&self) -> String {
        self.place.label()
    }

    /// The part of the held memory that is in no block, from 0 to 1.
    pub fn fragmentation(&self) -> f64 {
        match self.get(DeviceCounter::Held) {
            0 => 0.0,
            held => self.get(DeviceCounter::FragmentationBytes).min(held) as f64 / held as f64,
        }
    }
}

/// An executable or a library in the process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Module {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// What was added to the file's virtual addresses.
    pub load_bias: u64,
    /// GNU build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Which file it is, if it has no build id ([`poolscope_wire::file_number`]); 0 if it has one, or nobody knows.
    pub file: u64,
    /// The file.
    pub path: String,
    /// Stacks with an index in this range may have frames in it.
    pub stacks: std::ops::Range<u32>,
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Memory of a process as the kernel counts it, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct ProcessMemory {
    /// Resident set (VmRSS).
    pub rss: u64,
    /// Its peak (VmHWM).
    pub peak_rss: u64,
}

/// Memory of a process by what it is for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Residence {
    /// Resident set.
    pub rss: u64,
    /// Swapped out.
    pub swapped: u64,
    /// In explicit huge pages, which the resident set does not count.
    pub huge: u64,
    /// Of the resident set, that of the segment's file.
    pub segment: u64,
    /// Of the resident set, that of other files: code, constants, what the program maps.
    pub files: u64,
}

impl Module {
    /// The file's name without its folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("?")
    }

    /// The build id as it is written: hexadecimal, two digits a byte.
    pub fn build_id_hex(&self) -> String {
        hexadecimal(&self.build_id)
    }
}
