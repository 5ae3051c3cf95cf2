//! Builds segments as the pool writes them, for tests that read them.

use std::path::PathBuf;

use poolscope_profiler::process::{self, ProcStat};
use poolscope_wire::outer::Outer;
use poolscope_wire::{
    ClassCounters, ClassRecord, DEVICE_COUNTERS, DeviceCounter, DeviceRecord, HEADER_LEN, HISTORY_LEN, Header,
    HistoryHead, LiveRecord, MAGIC, MAP_CELLS, MAP_LEN, MODULE_PATH_MAX, ModuleRecord, OBJECT_ONE, PeakRecord, Region,
    RegionEntry, StackRecord, THREAD_RECORD_LEN, TIER_COUNTERS, ThreadRecord, TierCounter, Total, VERSION, cell, kind,
    place, stack_flags, state, thread_state,
};

/// Where the test program's module is mapped, and what is added to its addresses.
pub const BIAS: u64 = 0x5555_0000_0000;

/// Where the first cell of each device's map lies.
pub const FIRST_CELL: u64 = 0x7f00_0000_0000;

/// The streams that the maps name.
pub const MAP_OF_STREAMS: [u64; 2] = [0, 0x55aa_1000];

/// A segment in the making. Fields may be changed freely before [`build`](Self::build).
#[derive(Clone)]
pub struct Segment {
    pub header: Header,
    pub tiers: Vec<u64>,
    pub classes: Vec<ClassRecord>,
    pub threads: Vec<(ThreadRecord, Vec<ClassCounters>)>,
    pub stacks: Vec<StackRecord>,
    pub frames: Vec<u64>,
    pub modules: Vec<ModuleRecord>,
    pub live: Vec<LiveRecord>,
    pub devices: Vec<(DeviceRecord, Vec<u8>)>,
    pub peaks: Vec<PeakRecord>,
    /// What was in use over time; a segment without any has no room for it either.
    pub totals: Vec<Total>,
}

impl Segment {
    /// A segment of a process that was killed: it holds the unknown stack and nothing else.
    pub fn new() -> Self {
        let mut header = Header::ZERO;
        header.magic = MAGIC;
        header.version = VERSION;
        header.header_len = HEADER_LEN as u32;
        header.state = state::LIVE;
        header.pid = 4_000_000_000;
        header.generation = 0x1122_3344_5566_7788;
        header.start_ticks = 77;
        header.boot_id = [7; 16];
        header.start_realtime_ns = 1_700_000_000_000_000_000;
        header.start_monotonic_ns = 1_000_000_000;
        header.period_bytes = 524_288;
        header.page_bytes = 65_536;
        put(&mut header.exe, &mut header.exe_len, b"/usr/bin/sample");
        put(&mut header.cmdline, &mut header.cmdline_len, b"sample\0--port\08080\0");
        let unknown = StackRecord { flags_and_kind: StackRecord::describe(0, kind::HOST, 0), ..StackRecord::ZERO };
        Self {
            header,
            tiers: vec![0; TIER_COUNTERS.len()],
            classes: Vec::new(),
            threads: Vec::new(),
            stacks: vec![unknown],
            frames: Vec::new(),
            modules: Vec::new(),
            live: Vec::new(),
            devices: Vec::new(),
            peaks: Vec::new(),
            totals: Vec::new(),
        }
    }

    /// Makes it the segment of a process that exists.
    pub fn of_process(mut self, pid: u32) -> Self {
        self.header.pid = pid;
        self.header.start_ticks = ProcStat::of(pid).expect("the process runs").start_ticks;
        self.header.boot_id = process::boot_id().expect("the kernel has a boot id");
        self
    }

    /// The file's name.
    pub fn name(&self) -> String {
        process::segment_name(self.header.pid, self.header.generation)
    }

    /// Adds a module that stays loaded.
    pub fn module(&mut self, path: &str, start: u64, end: u64, load_bias: u64, build_id: &[u8]) -> &mut ModuleRecord {
        let mut record = ModuleRecord { start, end, load_bias, last_stack: u32::MAX, ..ModuleRecord::ZERO };
        record.seq = 2;
        record.path_len = path.len() as u16;
        let fits = path.len().min(MODULE_PATH_MAX);
        record.path[..fits].copy_from_slice(&path.as_bytes()[..fits]);
        record.build_id_len = build_id.len() as u16;
        record.build_id[..build_id.len()].copy_from_slice(build_id);
        self.modules.push(record);
        self.modules.last_mut().expect("was just pushed")
    }

    /// Adds a stack, innermost return address first.
    pub fn stack(&mut self, frames: &[u64]) -> u32 {
        self.stacks.push(StackRecord {
            hash: frames.iter().fold(1, |hash: u64, frame| hash.wrapping_mul(31).wrapping_add(*frame)),
            first_frame: self.frames.len() as u32,
            depth: frames.len() as u16,
            flags_and_kind: StackRecord::describe(0, kind::HOST, 0),
            ..StackRecord::ZERO
        });
        self.frames.extend(frames);
        self.stacks.len() as u32 - 1
    }

    /// Adds a stack that has `own` inner frames, and then those of another one from a place on, until they are `depth`.
    pub fn sharing(&mut self, own: &[u64], stack: u32, from: u8, depth: u16) -> u32 {
        self.sharing_its_middle(own, &[], stack, from, depth)
    }

    /// The same, with outermost frames of its own at the end.
    pub fn sharing_its_middle(&mut self, inner: &[u64], tail: &[u64], stack: u32, from: u8, depth: u16) -> u32 {
        self.stacks.push(StackRecord {
            hash: self.stacks.len() as u64,
            first_frame: self.frames.len() as u32,
            depth,
            flags_and_kind: StackRecord::describe(stack_flags::SHARED, kind::HOST, 0),
            ..StackRecord::ZERO
        });
        self.frames.push(Outer { inner: inner.len() as u16, tail: tail.len() as u8, stack, from }.word());
        self.frames.extend(inner);
        self.frames.extend(tail);
        self.stacks.len() as u32 - 1
    }

    /// Adds a block that is in use, as one sample of `objects` objects, and what it adds to its stack's totals.
    pub fn block(&mut self, stack: u32, size: u64, objects: u64) {
        let weight = objects * OBJECT_ONE;
        let totals = &mut self.stacks[stack as usize];
        totals.alloc_samples += 1;
        totals.alloc_objects += weight;
        totals.alloc_bytes += objects * size;
        self.live.push(LiveRecord {
            seq: 2,
            stack,
            address: 0x7f00_0000_0000 + self.live.len() as u64 * 4096,
            size,
            weight,
            time_ns: 2_000_000_000,
            tid: 42,
            kind: kind::HOST,
            ..LiveRecord::ZERO
        });
    }

    /// Says what each stack had in use at the peak, by bytes; objects are of 10 bytes.
    pub fn peak(&mut self, bytes: &[u64]) {
        self.peaks = bytes.iter().map(|&bytes| PeakRecord { objects: bytes / 10 * OBJECT_ONE, bytes }).collect();
        self.header.peak_seq = 2;
        self.header.peak_bytes = bytes.iter().sum();
        self.header.peak_time_ns = self.header.start_monotonic_ns + 1_500_000_000;
    }

    /// Adds a thread with counters for the first classes.
    pub fn thread(&mut self, tid: u32, counters: &[ClassCounters]) {
        let record = ThreadRecord {
            state: thread_state::LIVE,
            tid,
            uses: 1,
            samples: 3,
            // Three samples of 16 bytes, and a large block.
            uncached_allocs: 4,
            uncached_bytes: 3 * 16 + (1 << 20),
            ..ThreadRecord::ZERO
        };
        self.threads.push((record, counters.to_vec()));
    }

    /// Adds a stack of device memory, and a block of it that is in use.
    pub fn device_block(&mut self, kind: u16, device: u32, frames: &[u64], size: u64) -> u32 {
        let stack = self.stack(frames);
        self.stacks[stack as usize].flags_and_kind = StackRecord::describe(0, kind, device);
        self.block(stack, size, 1);
        let block = self.live.last_mut().expect("was just pushed");
        (block.kind, block.device) = (kind, device);
        stack
    }

    /// Adds a pool of device memory.
    pub fn device(&mut self, device: u32, name: &str, cells: &[u8]) -> &mut DeviceRecord {
        let mut record = DeviceRecord {
            seq: 2,
            device,
            kind: kind::DEVICE,
            name_len: name.len() as u16,
            map_cells: cells.len() as u32,
            map_streams: MAP_OF_STREAMS.len() as u32,
            cell_bytes: 2 << 20,
            memory_bytes: 64 << 20,
            time_ns: 3_000_000_000,
            ..DeviceRecord::ZERO
        };
        record.name[..name.len()].copy_from_slice(name.as_bytes());
        for (at, counter) in record.counters.iter_mut().enumerate().take(DEVICE_COUNTERS.len()) {
            *counter = (at as u64 + 1) << 20;
        }
        record.counters[DeviceCounter::FragmentationBytes as usize] = 0;
        self.devices.push((record, cells.to_vec()));
        &mut self.devices.last_mut().expect("was just pushed").0
    }

    /// Adds what was in use so many seconds after the start.
    pub fn total(&mut self, seconds: u64, in_use: u64) {
        let time_ns = self.header.start_monotonic_ns + seconds * 1_000_000_000;
        self.totals.push(Total { time_ns, in_use, most: in_use, most_ns: time_ns, ..Total::ZERO });
    }

    /// Sets a counter.
    pub fn tier(&mut self, counter: TierCounter, value: u64) {
        self.tiers[counter as usize] = value;
    }

    /// The bytes of one region.
    fn region_bytes(&self, region: Region) -> Vec<u8> {
        match region {
            Region::Tiers => self.tiers.iter().flat_map(|word| word.to_le_bytes()).collect(),
            Region::Frames => self.frames.iter().flat_map(|word| word.to_le_bytes()).collect(),
            Region::Classes => self.classes.iter().flat_map(|record| record.to_bytes()).collect(),
            Region::Stacks => self.stacks.iter().flat_map(|record| record.to_bytes()).collect(),
            Region::Modules => self.modules.iter().flat_map(|record| record.to_bytes()).collect(),
            Region::Live => self.live.iter().flat_map(|record| record.to_bytes()).collect(),
            Region::Devices => self.devices.iter().flat_map(|(record, _)| record.to_bytes()).collect(),
            Region::DeviceMaps => {
                let mut bytes = Vec::new();
                for (_, cells) in &self.devices {
                    let begin = bytes.len();
                    bytes.extend(cells);
                    bytes.resize(begin + MAP_CELLS, 0);
                    // The cells lie one behind the other, and are of the two streams in turns.
                    let places = (0..cells.len()).map(|at| place::of(FIRST_CELL + at as u64 * (2 << 20), Some(at % 2)));
                    bytes.extend(places.flat_map(u64::to_le_bytes));
                    bytes.resize(begin + MAP_CELLS * 9, 0);
                    bytes.extend(MAP_OF_STREAMS.iter().flat_map(|stream| stream.to_le_bytes()));
                    bytes.resize(begin + MAP_LEN, 0);
                }
                bytes
            }
            Region::Peaks => self.peaks.iter().flat_map(|record| record.to_bytes()).collect(),
            Region::Threads => {
                let mut bytes = Vec::new();
                for (record, counters) in &self.threads {
                    let end = bytes.len() + THREAD_RECORD_LEN;
                    bytes.extend(record.to_bytes());
                    bytes.extend(counters.iter().flat_map(|counter| counter.to_bytes()));
                    bytes.resize(end, 0);
                }
                bytes
            }
        }
    }

    /// The file. Regions are filled in; other fields of the header stay as they are.
    pub fn build(&self) -> Vec<u8> {
        let mut header = self.header;
        let mut bytes = vec![0; HEADER_LEN];
        if !self.totals.is_empty() {
            header.history = HEADER_LEN as u64;
            let head =
                HistoryHead { seq: 2, span_ns: 1_000_000_000, count: self.totals.len() as u64, ..HistoryHead::ZERO };
            bytes.extend(head.to_bytes());
            bytes.extend(self.totals.iter().flat_map(|total| total.to_bytes()));
            bytes.resize(HEADER_LEN + HISTORY_LEN, 0);
        }
        for region in Region::ALL {
            let records = self.region_bytes(region);
            let committed = records.len().next_multiple_of(4096) as u64;
            header.regions[region as usize] = RegionEntry {
                offset: bytes.len() as u64,
                capacity: committed + 8192,
                committed,
                count: (records.len() / region.record_len()) as u64,
                record_len: region.record_len() as u32,
                reserved: 0,
            };
            let end = bytes.len() + committed as usize;
            bytes.extend(records);
            bytes.resize(end, 0);
            bytes.resize(end + 8192, 0);
        }
        bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        bytes
    }

    /// Where a region's records begin in [`build`](Self::build)'s bytes.
    pub fn offset_of(&self, region: Region) -> usize {
        let header = Header::from_bytes(&self.build()).expect("is long enough");
        header.region(region).offset as usize
    }
}

fn put<const N: usize>(field: &mut [u8; N], len: &mut u32, value: &[u8]) {
    field[..value.len()].copy_from_slice(value);
    *len = value.len() as u32;
}

/// A file in a folder of its own, which goes when the value does.
pub struct TempSegment {
    folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl TempSegment {
    pub fn new(segment: &Segment) -> Self {
        Self::from_bytes(&segment.name(), &segment.build())
    }

    pub fn from_bytes(name: &str, bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("there is room for a file");
        Self { folder, path }
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }
}

/// A small program's segment: three sites, two modules, a thread, counters.
pub fn sample() -> Segment {
    let mut segment = Segment::new();
    segment.module("/usr/bin/sample", BIAS, BIAS + 0x10_0000, BIAS, &[0xab; 20]);
    segment.module("/opt/poolscope/libpoolscope.so", 0x7f00_0000_0000, 0x7f00_0010_0000, 0x7f00_0000_0000, &[0xcd; 20]);
    let malloc = 0x7f00_0000_1000;
    let parse = segment.stack(&[malloc, BIAS + 0x2005, BIAS + 0x1005]);
    let cache = segment.stack(&[malloc + 8, malloc, BIAS + 0x3005, BIAS + 0x1005]);
    let same = segment.stack(&[malloc + 16, BIAS + 0x2005, BIAS + 0x1005]);
    segment.block(parse, 1000, 10);
    segment.block(parse, 2000, 5);
    segment.block(cache, 65_536, 8);
    segment.block(same, 1000, 1);
    segment.block(0, 64, 2);
    let freed = &mut segment.stacks[cache as usize];
    freed.alloc_samples += 1;
    freed.alloc_objects += 4 * OBJECT_ONE;
    freed.alloc_bytes += 4096;
    freed.free_samples += 1;
    freed.free_objects += 4 * OBJECT_ONE;
    freed.free_bytes += 4096;
    segment.classes = [16, 64, 1024]
        .map(|bytes| ClassRecord {
            block_bytes: bytes,
            slab_bytes: 65_536,
            slab_blocks: 65_536 / bytes,
            shared: [1, 0, 0, 1, 10, 3, 1, 4],
            ..ClassRecord::ZERO
        })
        .into();
    segment.thread(
        42,
        &[
            ClassCounters { allocs: 100, frees: 40, refills: 10, cached: 20, untouched: 0, sent: 0, returned: 1 },
            ClassCounters { allocs: 50, frees: 50, refills: 5, cached: 0, untouched: 0, sent: 3, returned: 0 },
        ],
    );
    segment.thread(43, &[ClassCounters { allocs: 7, refills: 1, sent: 3, ..ClassCounters::ZERO }]);
    segment.tier(TierCounter::SlabBytes, 131_072);
    segment.tier(TierCounter::Samples, 6);
    segment
}

/// The same program with a pool on each of two devices.
pub fn sample_with_devices() -> Segment {
    let mut segment = sample();
    let malloc = 0x7f00_0000_1000;
    segment.device_block(kind::DEVICE, 0, &[malloc, BIAS + 0x2005, BIAS + 0x1005], 1 << 20);
    segment.device_block(kind::DEVICE, 1, &[malloc, BIAS + 0x2005, BIAS + 0x1005], 2 << 20);
    segment.device_block(kind::PINNED, 1, &[malloc, BIAS + 0x3005, BIAS + 0x1005], 4096);
    segment.device(1, "Second", &[cell::LARGE, cell::FREE]);
    segment.device(0, "First", &[cell::SMALL, cell::LARGE, cell::PENDING, cell::UNMAPPED]);
    segment
}
