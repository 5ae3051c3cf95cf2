//! From a segment's bytes to a [`Snapshot`]: every index, length and offset is checked here and nowhere else.
//!
//! The order of reading follows from who points at whom. Live blocks point at stacks and stacks at frames, so the
//! live table is read first, and the counts of the others are taken after it: whatever a live block pointed at was
//! complete by then.
//!
//! What contradicts the layout as a whole is an error; a single record that makes no sense is left out and counted in
//! [`Dropped::invalid`], so that one flipped bit doesn't cost the profile of a process that was killed.

mod asks;
mod counters;
mod devices;
mod functions;
mod history;
mod whose;

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use poolscope_wire::outer::WORDS_MAX;
use poolscope_wire::{
    HEADER_LEN, HISTORY_LEN, Header, HeaderError, LiveRecord, MAGIC, MAX_CLASSES, MODULE_PATH_MAX, ModuleRecord,
    OBJECT_ONE, PeakRecord, Region, RegionEntry, StackRecord, flags, kind, stack_flags, state,
};
use rustix::time::{ClockId, clock_gettime};

use crate::model::frames::Frames;
use crate::model::functions::Functions;
use crate::model::memory::Place;
use crate::model::reach::{Holder, Search, Verdict};
use crate::model::snapshot::{
    Amount, DevicePeak, Dropped, LiveBlock, Module, PeakMoment, ProcessState, Snapshot, Stack,
};
use crate::process::clock;
use crate::process::{self, ProcessWatch};
use crate::segment::file::SegmentFile;
use crate::segment::outline::FramePlaces;
pub use crate::segment::outline::Outline;
use crate::segment::patience::Patience;
pub use crate::segment::read_error::ReadError;
use crate::segment::stack_words::{self, FramePlace};
use crate::words::printable::printable;
use asks::Asks;
use counters::Counters;

/// How long [`SegmentReader::open`] waits for a program that is only just setting up its segment.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the header is copied again when a region seems to count more than it has: the writer raises
/// `committed` before `count`, and a copy may catch the old one of the first and the new one of the second.
const HEADER_RETRIES: usize = 4;

/// So many words at most have the stacks that share some, all together: what is made of them has each of them.
const SHARED: usize = 1 << 29;

/// The longest path that Linux has.
const PATH_MAX: usize = 4096;

/// The most records that are read of each region, so that a hostile file cannot make its reader take all memory.
fn limit(region: Region) -> u64 {
    match region {
        Region::Tiers => 1 << 12,
        Region::Classes => MAX_CLASSES as u64,
        Region::Threads => 1 << 17,
        Region::Stacks => 1 << 23,
        Region::Frames => 1 << 26,
        Region::Modules => 1 << 16,
        Region::Live => 1 << 24,
        Region::Devices | Region::DeviceMaps => 256,
        Region::Peaks => 1 << 23,
    }
}

/// Reads one segment, as often as wanted.
#[derive(Debug)]
pub struct SegmentReader {
    file: SegmentFile,
    /// The header of the first reading: whose segment it is does not change.
    first: Header,
    watch: ProcessWatch,
    pid: u32,
    exe: String,
    args: Vec<String>,
    /// The frames of stacks that are new: those of the others are in `known`.
    frames: Vec<u64>,
    /// The number of the first of them.
    frames_from: u64,
    /// Those of each stack, and where they are: all readings share them.
    known: Vec<(FramePlace, Frames)>,
    /// Python's functions, as far as they were read.
    functions: Functions,
    copies: [Vec<u8>; 2],
    /// Sampled blocks in use at the last reading.
    live_before: usize,
    asks: Asks,
    patience: Patience,
}

/// The peak of host memory, and those of devices' memories.
type Peaks = (Option<PeakMoment>, Vec<DevicePeak>);

/// The peaks that a header tells of.
fn peaks(header: &Header) -> Peaks {
    let of_host = PeakMoment { bytes: header.peak_bytes, time_ns: header.peak_time_ns };
    let known = header.device_peaks.iter().filter(|peak| peak.bytes > 0);
    let of_devices = known.map(|peak| DevicePeak {
        place: Place::of_record(peak.kind, peak.device),
        moment: PeakMoment { bytes: peak.bytes, time_ns: peak.time_ns },
    });
    ((of_host.bytes > 0).then_some(of_host), of_devices.collect())
}

impl SegmentReader {
    /// Opens a segment and checks its header; waits a moment for a program that is only just starting.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_within(path, PATIENCE)
    }

    /// [`open`](Self::open) with another patience.
    pub fn open_within(path: impl AsRef<Path>, patience: Duration) -> Result<Self, ReadError> {
        let file = SegmentFile::open(path.as_ref())?;
        let begun = Instant::now();
        let header = loop {
            match read_header(&file) {
                Err(ReadError::Starting { .. }) if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(5).min(patience));
                }
                other => break other?,
            }
        };
        let pid = pid_from_path(file.path()).unwrap_or(header.pid);
        let exe = printable(&header.exe[..header.exe.len().min(header.exe_len as usize)]);
        let cmdline = &header.cmdline[..header.cmdline.len().min(header.cmdline_len as usize)];
        let args = whose::arguments(cmdline, header.flags & flags::FORKED != 0);
        let watch = ProcessWatch::new(pid, &header);
        let pid = watch.pid();
        let (frames, known, copies) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        let asks = Asks::default();
        Ok(Self {
            file,
            first: header,
            watch,
            pid,
            exe,
            args,
            frames,
            frames_from: 0,
            known,
            functions: Functions::default(),
            copies,
            live_before: 0,
            asks,
            patience: Patience::default(),
        })
    }

    /// Has the kernel be asked which pages of the process have memory at most once in so long, and for no more than a
    /// fiftieth of the time: it takes longer the larger the process is, and the process may have to wait meanwhile.
    /// Between two such times a snapshot has no [`Snapshot::residence`], and its figures are those of the last census.
    pub fn ask_for_memory_every(&mut self, interval: Duration) {
        self.asks.every(interval);
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The header as it was when the segment was opened.
    pub fn header(&self) -> &Header {
        &self.first
    }

    /// The user whose file it is.
    pub fn uid(&self) -> Result<u32, ReadError> {
        self.file.uid()
    }

    /// Memory that the file takes now, in bytes.
    pub fn file_bytes(&self) -> Result<u64, ReadError> {
        self.file.allocated_bytes()
    }

    /// The executables and libraries that the segment knows now.
    pub fn modules(&mut self) -> Result<Vec<Module>, ReadError> {
        let header = self.read_same_header()?;
        self.read_modules(header.region(Region::Modules), &mut Dropped::default())
    }

    /// Reads what the segment says now.
    pub fn snapshot(&mut self) -> Result<Snapshot, ReadError> {
        Ok(self.read(true)?.0)
    }

    /// Reads what the segment says now but the frames of its stacks: [`part`](Self::part) reads those.
    pub fn outline(&mut self) -> Result<Outline, ReadError> {
        let (snapshot, places) = self.read(false)?;
        Ok(Outline::new(snapshot, places))
    }

    /// A part of an outline as a snapshot of its own, with frames: some of the stacks, and their blocks.
    pub fn part(&mut self, outline: &Outline, stacks: Range<usize>) -> Result<Snapshot, ReadError> {
        let Self { file, copies: [buffer, _], .. } = self;
        outline.part(stacks, |entry, first, frames| {
            file.for_each_chunk(entry, Region::Frames, first, buffer, |_, chunk| {
                frames.extend(words(chunk));
                Ok(())
            })
        })
    }

    /// Reads what the segment says now, the frames of its stacks included or not, and where those lie if not.
    fn read(&mut self, with_frames: bool) -> Result<(Snapshot, FramePlaces), ReadError> {
        let mut dropped = Dropped::default();
        let header = self.read_same_header()?;
        self.patience = Patience::with(self.watch.state(header.state) == ProcessState::Running);
        let live = self.read_live(header.region(Region::Live), &mut dropped)?;

        let header = self.read_same_header()?;
        dropped.live = header.dropped_live;
        dropped.stacks = header.dropped_stacks;
        dropped.modules = header.dropped_modules;
        dropped.truncated = header.truncated_stacks;
        if with_frames {
            self.read_frames(header.region(Region::Frames))?;
        }
        let invalid = dropped.invalid;
        let (mut stacks, of_stacks) = match self.read_stacks(&header, with_frames, &mut dropped)? {
            (.., true) => {
                // A damaged file says something else of a stack than before.
                self.forget_frames();
                dropped.invalid = invalid;
                self.read_frames(header.region(Region::Frames))?;
                let (stacks, of_stacks, _) = self.read_stacks(&header, with_frames, &mut dropped)?;
                (stacks, of_stacks)
            }
            (stacks, of_stacks, false) => (stacks, of_stacks),
        };
        let (peak, device_peaks) = self.read_peaks(&mut stacks, &mut dropped)?;
        let live = keep_valid(live, stacks.len(), &mut dropped);
        let mut modules = self.read_modules(header.region(Region::Modules), &mut dropped)?;
        // The writer lists them as it sees them, and it sees itself first.
        if let Some(main) = modules.iter().position(|module| module.path == self.exe) {
            modules[..=main].rotate_right(1);
        }
        let process = self.process_in(header.state);
        let Counters { tiers, classes, threads, residence } = self.read_counters(process.state, &mut dropped)?;

        let devices = self.read_devices(&header, &mut dropped)?;
        let taken_ns = clock::monotonic_ns();
        // A dead one may be of before a reboot.
        let running = process.state == ProcessState::Running;
        let history = self.read_history(&header, if running { taken_ns } else { u64::MAX }, &mut dropped);

        let memory = if process.state == ProcessState::Running { process::memory(self.pid) } else { None };
        let snapshot = Snapshot {
            former: Vec::new(),
            process,
            taken_ns,
            taken_realtime_ns: realtime_ns(),
            period_bytes: header.period_bytes.max(1),
            exact: header.flags & flags::EXACT != 0,
            serves_malloc: header.flags & flags::SERVES_MALLOC != 0,
            page_bytes: header.page_bytes,
            peak,
            device_peaks,
            dropped,
            tiers,
            classes,
            threads,
            stacks,
            functions: self.functions.clone(),
            modules,
            live,
            search: Search::of(&header.reach),
            devices,
            memory,
            residence,
            history,
            segment_bytes: header_bytes(&header) + header.regions.iter().map(|entry| entry.committed).sum::<u64>(),
        };
        Ok((snapshot, FramePlaces { region: header.region(Region::Frames), of_stacks }))
    }

    fn read_same_header(&self) -> Result<Header, ReadError> {
        let header = read_header(&self.file)?;
        if (header.pid, header.generation, header.start_ticks)
            != (self.first.pid, self.first.generation, self.first.start_ticks)
        {
            return Err(ReadError::Changed { path: self.file.path().to_owned() });
        }
        for region in Region::ALL {
            let (count, limit) = (header.region(region).count, limit(region));
            if count > limit {
                return Err(ReadError::TooMany { path: self.file.path().to_owned(), region, count, limit });
            }
        }
        Ok(header)
    }

    /// Goes through a region of records with a sequence number; `each` gets those that are whole.
    fn read_sequenced(
        &mut self,
        entry: RegionEntry,
        region: Region,
        dropped: &mut Dropped,
        mut each: impl FnMut(u64, &[u8], &mut Dropped),
    ) -> Result<(), ReadError> {
        let Self { file, copies, patience, .. } = self;
        file.for_each_whole(entry, region, copies, patience, |index, record| match record {
            Some(record) => each(index, record, dropped),
            None => dropped.torn += 1,
        })
    }

    fn read_live(&mut self, entry: RegionEntry, dropped: &mut Dropped) -> Result<Vec<LiveBlock>, ReadError> {
        // About as many as last time.
        let mut live = Vec::with_capacity(self.live_before + self.live_before / 16);
        self.read_sequenced(entry, Region::Live, dropped, |_, bytes, _| {
            let Some(record) = LiveRecord::from_bytes(bytes) else { return };
            if record.kind == kind::NONE {
                return;
            }
            live.push(LiveBlock {
                stack: record.stack,
                address: record.address,
                size: record.size,
                weight: objects(record.weight),
                time_ns: record.time_ns,
                tid: record.tid,
                scope: record.scope,
                place: Place::of_record(record.kind, record.device),
                verdict: Verdict::of(record.verdict, record.leader),
                holder: Holder::of_record(record.verdict, record.leader),
            });
        })?;
        self.live_before = live.len();
        Ok(live)
    }

    fn read_modules(&mut self, entry: RegionEntry, dropped: &mut Dropped) -> Result<Vec<Module>, ReadError> {
        let mut modules = Vec::new();
        self.read_sequenced(entry, Region::Modules, dropped, |_, bytes, dropped| {
            let Some(record) = ModuleRecord::from_bytes(bytes) else { return };
            if record == ModuleRecord::ZERO {
                return;
            }
            match module(&record) {
                Some(module) => modules.push(module),
                None => dropped.invalid += 1,
            }
        })?;
        Ok(modules)
    }

    /// Frames are complete below the count and never change: only new ones are read.
    fn read_frames(&mut self, entry: RegionEntry) -> Result<(), ReadError> {
        let mut read = self.frames_from + self.frames.len() as u64;
        if read > entry.count {
            // It says something else than before.
            self.forget_frames();
            read = 0;
        }
        let Self { file, frames, copies: [buffer, _], .. } = self;
        file.for_each_chunk(entry, Region::Frames, read, buffer, |_, chunk| {
            frames.extend(words(chunk));
            Ok(())
        })
    }

    /// Has all frames read again, and what is known of functions.
    fn forget_frames(&mut self) {
        (self.frames, self.frames_from, self.known) = (Vec::new(), 0, Vec::new());
        self.functions = Functions::default();
    }

    /// The stacks, with their frames if they were read, where those lie if they were not, and whether frames of one were
    /// given up that are wanted again.
    fn read_stacks(
        &mut self,
        header: &Header,
        with_frames: bool,
        dropped: &mut Dropped,
    ) -> Result<(Vec<Stack>, Vec<FramePlace>, bool), ReadError> {
        let entry = header.region(Region::Stacks);
        let frames_in_all = header.region(Region::Frames).count as usize;
        let Self { file, frames, frames_from, known, copies: [buffer, _], .. } = self;
        let mut missing = false;
        // Stacks of a hostile file that all point at the same frames must not multiply them.
        let mut frames_left = frames_in_all.saturating_mul(2) + 65_536;
        let mut shared_left = SHARED;
        let mut stacks = Vec::with_capacity(entry.count as usize);
        let mut functions = Vec::new();
        let mut places = Vec::with_capacity(if with_frames { 0 } else { entry.count as usize });
        file.for_each_chunk(entry, Region::Stacks, 0, buffer, |_, chunk| {
            for record in chunk.chunks_exact(StackRecord::LEN).filter_map(StackRecord::from_bytes) {
                let mut place = FramePlace::of(&record);
                let depth = place.depth();
                let (least, most) = if place.shares { (1, WORDS_MAX) } else { (depth, depth) };
                let left = if place.shares { &mut shared_left } else { &mut frames_left };
                if place.first() + least > frames_in_all || depth > most.min(*left) {
                    place = FramePlace::default();
                    dropped.invalid += 1;
                }
                *left -= place.depth();
                if record.kind() == kind::FUNCTION {
                    functions.push((stacks.len() as u32, std::mem::take(&mut place)));
                }
                let frames = if with_frames {
                    let new = |start: usize, count: usize| {
                        let start = start.checked_sub(*frames_from as usize)?;
                        frames.get(start..start.checked_add(count)?)
                    };
                    let found = stack_words::of_all(known, stacks.len(), place, new);
                    missing |= found.is_none();
                    let found = found.unwrap_or_default();
                    dropped.invalid += u64::from(found.len() < place.depth());
                    found
                } else {
                    places.push(place);
                    Frames::default()
                };
                stacks.push(Stack {
                    frames,
                    place: Place::of_record(record.kind(), record.device()),
                    incomplete: record.flags() & (stack_flags::TRUNCATED | stack_flags::INCOMPLETE) != 0,
                    allocated: amount(record.alloc_samples, record.alloc_objects, record.alloc_bytes),
                    freed: amount(record.free_samples, record.free_objects, record.free_bytes),
                    peak: Amount::default(),
                });
            }
            Ok(())
        })?;
        if with_frames && !missing {
            // From here on they are the stacks'.
            *frames_from += frames.len() as u64;
            *frames = Vec::new();
        }
        self.read_functions(header.region(Region::Frames), &functions, dropped)?;
        Ok((stacks, places, missing))
    }

    /// The peaks, which are rewritten as a whole: again while they change.
    fn read_peaks(&mut self, stacks: &mut [Stack], dropped: &mut Dropped) -> Result<Peaks, ReadError> {
        let mut patience = std::mem::take(&mut self.patience);
        let peaks = patience.look(|| self.read_whole_peaks(stacks));
        self.patience = patience;
        Ok(peaks?.unwrap_or_else(|| {
            // The process was killed while it wrote, or writes all the time.
            dropped.torn += 1;
            (None, Vec::new())
        }))
    }

    /// The same if they did not change meanwhile.
    fn read_whole_peaks(&mut self, stacks: &mut [Stack]) -> Result<Option<Peaks>, ReadError> {
        let before = self.read_same_header()?;
        if before.peak_seq == 0 {
            return Ok(Some((None, Vec::new())));
        }
        let Self { file, copies: [buffer, _], .. } = self;
        file.for_each_chunk(before.region(Region::Peaks), Region::Peaks, 0, buffer, |start, chunk| {
            let records = chunk.chunks_exact(PeakRecord::LEN).filter_map(PeakRecord::from_bytes);
            for (stack, record) in stacks.iter_mut().skip(start as usize).zip(records) {
                stack.peak = amount(0, record.objects, record.bytes);
            }
            Ok(())
        })?;
        let is_whole = before.peak_seq.is_multiple_of(2) && self.read_same_header()?.peak_seq == before.peak_seq;
        Ok(is_whole.then(|| peaks(&before)))
    }
}

/// Bytes of what stands before the regions, as far as it exists.
fn header_bytes(header: &Header) -> u64 {
    HEADER_LEN as u64 + if header.history == 0 { 0 } else { HISTORY_LEN as u64 }
}

/// Reads and checks the header. It is read before the length of the file, which only grows.
fn read_header(file: &SegmentFile) -> Result<Header, ReadError> {
    let mut tries = 0;
    loop {
        let bytes = file.read_header()?;
        let len = file.len()?;
        let starting = || ReadError::Starting {
            path: file.path().to_owned(),
            pid: pid_from_path(file.path()).unwrap_or_default(),
        };
        // The file gets its name first, then its length, and the magic number last.
        let is_named = || pid_from_path(file.path()).is_some();
        if bytes.get(..MAGIC.len()) == Some(&[0; MAGIC.len()]) || bytes.is_empty() && is_named() {
            return Err(starting());
        }
        match Header::parse(&bytes, len) {
            Ok(header) if header.state == state::STARTING => return Err(starting()),
            Ok(header) => return Ok(header),
            Err(HeaderError::Region { .. }) if tries < HEADER_RETRIES => tries += 1,
            Err(source) => return Err(ReadError::Header { path: file.path().to_owned(), source }),
        }
    }
}

/// Leaves out blocks that point at a stack that does not exist.
fn keep_valid(mut live: Vec<LiveBlock>, stacks: usize, dropped: &mut Dropped) -> Vec<LiveBlock> {
    let before = live.len();
    live.retain(|block| (block.stack as usize) < stacks);
    dropped.invalid += (before - live.len()) as u64;
    live
}

fn module(record: &ModuleRecord) -> Option<Module> {
    let build_id_len = usize::from(record.build_id_len);
    let path_len = usize::from(record.path_len);
    if record.start >= record.end || build_id_len > record.build_id.len() || path_len > PATH_MAX {
        return None;
    }
    let mut path = printable(&record.path[..path_len.min(MODULE_PATH_MAX)]);
    if path_len > MODULE_PATH_MAX {
        path.push('…');
    }
    Some(Module {
        start: record.start,
        end: record.end,
        load_bias: record.load_bias,
        build_id: record.build_id[..build_id_len].to_vec(),
        file: record.file,
        path,
        stacks: record.first_stack..record.last_stack,
    })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

fn objects(units: u64) -> f64 {
    units as f64 / OBJECT_ONE as f64
}

fn amount(samples: u64, object_units: u64, bytes: u64) -> Amount {
    Amount { objects: objects(object_units), bytes: bytes as f64, samples }
}

fn realtime_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// The process that a segment's path names: `/proc/PID/root/...` for one in a container, `PID.GENERATION` otherwise.
pub(crate) fn pid_from_path(path: &Path) -> Option<u32> {
    let text = path.to_str()?;
    if let Some((pid, _)) = text.strip_prefix("/proc/").and_then(|rest| rest.split_once("/root/")) {
        return pid.parse().ok();
    }
    let (pid, generation) = path.file_name()?.to_str()?.split_once('.')?;
    u64::from_str_radix(generation, 16).ok()?;
    pid.parse().ok()
}
