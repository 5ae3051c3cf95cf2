//! Recordings: what is read is what was written, and damaged ones are errors, or are read up to the damage.

mod functions;

use std::path::{Path, PathBuf};

use crate::build::builder::ProfileBuilder;
use crate::model::memory::{Memory, Place};
use crate::model::snapshot::Snapshot;
use crate::recording::events::call_paths::CallPaths;
use crate::recording::events::lanes::Lanes;
use crate::recording::events::session::{RecordedThread, RingLosses, Session, Summary};
use crate::recording::faces::{json, page, text};
use crate::recording::file::append::Continuation;
use crate::recording::file::format::BLOCK_EVENTS;
use crate::recording::file::reader::{RecordingError, RecordingReader, Tail};
use crate::recording::file::writer::Writer;
use crate::recording::recorder::matcher::{Matcher, Origin};
use crate::recording::replay::analysis::{Analysis, Question};
use crate::recording::replay::film::Film;
use poolscope_wire::kind;
use poolscope_wire::trace::DeviceEvent;
use proptest::prelude::*;
use tempfile::TempDir;

/// A recording under construction.
struct Recording {
    writer: Writer<Vec<u8>>,
    matcher: Matcher,
    paths: CallPaths,
    lanes: Lanes,
    time_us: u64,
}

const GPU: Place = Place::Device(0);
const SECOND_GPU: Place = Place::Device(1);
const PINNED: Place = Place::Pinned(1);

impl Recording {
    fn new() -> Self {
        Self { writer: Writer::new(Vec::new(), &Self::session(77)).unwrap(), ..Self::part(Continuation::default()) }
    }

    /// A part that is appended to a file.
    fn part(before: Continuation) -> Self {
        let writer = Writer::append(Vec::new(), &Self::session(78), &before).unwrap();
        let paths = CallPaths::beside(&before.stacks, u64::MAX);
        Recording { writer, matcher: Matcher::default(), paths, lanes: Lanes::default(), time_us: 0 }
    }

    fn session(pid: u32) -> Session {
        Session {
            pid,
            exe: "/usr/bin/some-<program>".into(),
            args: vec!["some-<program>".into(), "--flag".into()],
            recorded_realtime_ns: 1_000_000_000,
            recorded_monotonic_ns: 5_000_000_000,
            page_bytes: 65_536,
            from_start: true,
            ..Session::default()
        }
    }

    fn at(&mut self, time_us: u64, ring: u32) -> Origin {
        self.time_us = time_us;
        self.writer.time(time_us);
        self.writer.thread(ring);
        Origin { ring, from_ns: time_us * 1000, lane: None }
    }

    fn alloc(&mut self, time_us: u64, ring: u32, address: u64, size: u64, frames: &[u64]) {
        let stack = self.paths.intern(frames, 0);
        let origin = self.at(time_us, ring);
        self.matcher.alloc(&mut self.writer, address, size, stack, origin);
    }

    fn free(&mut self, time_us: u64, ring: u32, address: u64) {
        let origin = self.at(time_us, ring);
        self.matcher.free(&mut self.writer, address, None, origin);
        self.matcher.end_batch(origin.from_ns + 999);
    }

    /// A block of another memory, on a stream: of so many bytes, or freed.
    fn device(
        &mut self,
        time_us: u64,
        ring: u32,
        (place, stream): (Place, u64),
        address: u64,
        size: Option<u64>,
        frames: &[u64],
    ) {
        let (kind, device) = match place {
            Place::Host => (kind::HOST, 0),
            Place::Device(device) => (kind::DEVICE, device),
            Place::Pinned(device) => (kind::PINNED, device),
        };
        let (lane, address) = self.lanes.of(&DeviceEvent { kind, device, address, stream, size, slot: 0 }).unwrap();
        let origin = Origin { lane: Some(lane), ..self.at(time_us, ring) };
        match size {
            Some(size) => {
                let stack = self.paths.intern(frames, 0);
                let stack = self.paths.on_device(stack, place);
                self.matcher.alloc(&mut self.writer, address, size, stack, origin);
            }
            None => {
                self.matcher.free(&mut self.writer, address, None, origin);
                self.matcher.end_batch(origin.from_ns + 999);
            }
        }
    }

    fn finish(mut self, lost: u64) -> Vec<u8> {
        self.matcher.end(&mut self.writer, &self.paths).unwrap();
        self.writer.addresses(&self.paths, &self.matcher.live).unwrap();
        let thread = |ring| RecordedThread { tid: 100 + ring, name: format!("thread-{ring}"), ring };
        let summary = Summary {
            threads: vec![thread(0), thread(1)],
            losses: vec![RingLosses { ring: 1, tid: 101, allocs: lost, frees: 0, waits: 0 }],
            ended: "the program ended".into(),
            ..Summary::default()
        };
        self.writer.summary(&summary).unwrap();
        self.writer.finish().unwrap()
    }
}

/// One with a bit of everything.
fn as_json(analysis: &Analysis, rows: Option<usize>) -> serde_json::Value {
    let mut json = Vec::new();
    json::write_json(analysis, rows, &mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn sample() -> Vec<u8> {
    let mut recording = Recording::new();
    for n in 0..2000 {
        recording.alloc(n, 0, 0x7000_0000_0000 + n * 64, 10 + n % 50, &[n % 7, 20, 30]);
        if n % 3 == 0 {
            recording.free(n, 1, 0x7000_0000_0000 + n * 64);
        }
    }
    recording.free(2100, 0, 0x5555_0000);
    for n in 0..50 {
        recording.device(2100, 0, (GPU, n % 3), 0x7000_0000_0000 + n * 64, Some(1 << 20), &[n % 5, 20, 30]);
    }
    recording.device(2100, 1, (GPU, 2), 0x7000_0000_0000, None, &[]);
    recording.device(2100, 1, (SECOND_GPU, 2), 0x7000_0000_0040, None, &[]);
    recording.finish(0)
}

/// The same, with another part behind it.
fn sample_of_two_parts() -> Vec<u8> {
    let bytes = sample();
    appended(&bytes, |part| {
        part.alloc(10, 0, 0x7000_0000_0000, 5000, &[3, 20, 30]);
        part.alloc(20, 1, 0x7100_0000_0000, 1000, &[99, 20, 30]);
        part.free(30, 1, 0x7000_0000_0000);
    })
}

/// A recording, gone on with.
fn appended(bytes: &[u8], events: impl FnOnce(&mut Recording)) -> Vec<u8> {
    let (_folder, path) = saved(bytes);
    let before = Continuation::find(&path).unwrap();
    let mut whole = bytes[..before.offset as usize].to_vec();
    let mut part = Recording::part(before);
    events(&mut part);
    whole.extend(part.finish(0));
    whole
}

fn saved(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.rec");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn analysed(path: &Path, question: Question) -> Result<Analysis, RecordingError> {
    Analysis::of(&mut RecordingReader::open(path)?, &mut ProfileBuilder::new(), question)
}

fn analysis(bytes: &[u8], question: Question) -> Analysis {
    let (_folder, path) = saved(bytes);
    analysed(&path, question).unwrap()
}

#[test]
fn the_peak_is_by_stack_what_was_in_use_when_most_was() {
    let mut recording = Recording::new();
    recording.alloc(10, 0, 0x1000, 100, &[1, 9]);
    recording.alloc(20, 0, 0x2000, 500, &[2, 9]);
    recording.free(30, 0, 0x1000);
    recording.alloc(40, 0, 0x3000, 300, &[3, 9]);
    recording.free(50, 0, 0x2000);
    recording.alloc(60, 0, 0x4000, 200, &[1, 9]);
    let analysis = analysis(&recording.finish(0), Question::default());
    assert_eq!(
        (analysis.host().peak.count.bytes, analysis.host().peak.count.objects, analysis.host().peak.time_us),
        (800, 2, 40)
    );
    let peaks: Vec<u64> = analysis.stacks.iter().map(|stack| stack.peak.bytes).collect();
    assert_eq!(peaks, [0, 0, 500, 300]);
    assert_eq!((analysis.host().total.at_end.bytes, analysis.host().total.at_end.objects), (500, 2));
    let at_peak = analysis.profile.at_peak().unwrap();
    assert_eq!(at_peak.totals().in_use.bytes, 800.0);
    assert_eq!(analysis.profile.totals().allocated.bytes, 1100.0);
}

#[test]
fn the_memory_of_each_device_has_figures_of_its_own() {
    let mut recording = Recording::new();
    // All at one address, and from one stack.
    recording.alloc(10, 0, 0x1000, 100, &[1, 9]);
    recording.device(20, 0, (GPU, 7), 0x1000, Some(5000), &[1, 9]);
    recording.device(20, 0, (SECOND_GPU, 7), 0x1000, Some(700), &[1, 9]);
    recording.device(30, 1, (PINNED, 1 << 47), 0x1000, Some(64), &[2, 9]);
    recording.device(40, 1, (GPU, 8), 0x1000, None, &[]);
    recording.alloc(50, 0, 0x2000, 200, &[1, 9]);
    recording.device(60, 0, (GPU, 8), 0x3000, Some(4000), &[]);
    recording.device(70, 0, (GPU, 8), 0x9000, None, &[]);
    recording.device(80, 0, (PINNED, 1 << 47), 0x1000, None, &[]);
    let analysis = analysis(&recording.finish(0), Question::default());

    let host = analysis.host();
    assert_eq!((host.total.allocated.bytes, host.total.freed.objects, host.peak.count.bytes), (300, 0, 300));
    assert_eq!((host.unknown_frees, host.streams.len()), (0, 0));
    let places: Vec<Place> = analysis.devices().iter().map(|memory| memory.place).collect();
    assert_eq!(places, [GPU, SECOND_GPU, PINNED]);
    let [first, second, pinned] = analysis.devices() else { panic!() };
    assert_eq!((first.total.allocated.bytes, first.total.at_end.bytes, first.unknown_frees), (9000, 4000, 1));
    assert_eq!((first.peak.count.bytes, first.peak.time_us), (5000, 20));
    assert_eq!(first.sizes.iter().map(|size| size.objects).sum::<u64>(), 2);
    assert_eq!(first.lifetimes.iter().map(|lifetime| lifetime.objects).collect::<Vec<_>>(), [0, 0, 1]);
    let streams: Vec<_> = first.streams.iter().map(|it| (it.handle, it.allocated.bytes, it.frees)).collect();
    assert_eq!(streams, [(7, 5000, 0), (8, 4000, 2)]);
    assert_eq!((first.threads[1].frees, first.threads[1].frees_of_others), (1, 1));
    assert_eq!((second.total.at_end.bytes, second.peak.count.objects), (700, 1));
    assert_eq!((pinned.total.freed.bytes, pinned.streams[0].handle), (64, 1 << 47));

    let in_use = |memory| analysis.profile.totals_of(memory).in_use.bytes;
    assert_eq!(in_use(Memory::Host), 300.0);
    assert_eq!((in_use(Memory::Device(Some(0))), in_use(Memory::Device(Some(1)))), (4000.0, 700.0));
    let at_peak = analysis.profile.at_peak().unwrap();
    assert_eq!(at_peak.totals_of(Memory::Device(Some(0))).in_use.bytes, 5000.0);
    assert_eq!(at_peak.totals_of(Memory::Pinned(None)).in_use.bytes, 64.0);

    // No page of the host's heap has them.
    assert_eq!((analysis.pages.pages, analysis.pages.unplaced), (1, 0));
    let text = text::to_text(&analysis, 5);
    for part in ["Device 0: 2 allocations of 8.79 KiB, 1 free", "Memory pinned for device 1\n=", "0x800000000000"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let json: serde_json::Value = as_json(&analysis, None);
    assert_eq!((json["allocated"]["bytes"].as_u64(), json["sites"].as_array().unwrap().len()), (Some(300), 1));
    let device = |at: usize, what: &str| json["devices"][at][what].clone();
    assert_eq!(
        (device(0, "kind"), device(2, "kind"), device(2, "device")),
        ("device".into(), "pinned".into(), 1.into())
    );
    assert_eq!(device(0, "peak")["bytes"], 5000);
    let sites = device(0, "sites");
    assert_eq!(
        sites.as_array().unwrap().iter().map(|site| site["allocated"]["bytes"].as_u64().unwrap()).sum::<u64>(),
        9000
    );
}

#[test]
fn what_a_pool_of_a_device_allocates_on_the_host_does_not_make_a_block_of_the_device_last() {
    let mut recording = Recording::new();
    recording.device(10, 0, (GPU, 0), 0x1000, Some(100), &[1]);
    recording.alloc(11, 0, 0x1000, 50, &[1]);
    recording.device(12, 0, (GPU, 0), 0x1000, None, &[]);
    let analysis = analysis(&recording.finish(0), Question::default());
    assert_eq!(analysis.devices()[0].total.temporary.bytes, 100);
}

#[test]
fn a_recording_of_an_older_version_is_read_and_gone_on_with() {
    // 1,000 blocks that are freed, 40 that are not, and one of the loader's.
    let (oldest, old) = (include_bytes!("data/version-2.rec"), include_bytes!("data/version-3.rec"));
    let figures = |bytes: &[u8]| {
        let analysis = analysis(bytes, Question::default());
        let total = analysis.host().total;
        assert!(analysis.devices().is_empty() && analysis.tail == Tail::Finished, "{:?}", analysis.tail);
        (
            total.allocated.objects,
            total.freed.objects,
            analysis.host().parts[0].at_end.bytes,
            analysis.host().parts.len(),
        )
    };
    for old in [&oldest[..], old] {
        assert_eq!(figures(old), (1041, 1001, 40 << 10, 1));
        let gone_on = appended(old, |part| part.alloc(1, 0, 0x1000, 64, &[1, 20, 30]));
        assert_eq!(figures(&gone_on), (1042, 1001, 40 << 10, 2));
    }
    let (_folder, path) = saved(&[&old[..8], &[9, 0, 0, 0], &old[12..]].concat());
    assert!(matches!(RecordingReader::open(&path), Err(RecordingError::Version { found: 9, .. })));
}

#[test]
fn temporary_blocks_are_those_that_their_thread_frees_at_once() {
    let mut recording = Recording::new();
    // Freed at once; after one more; at once, but by another thread.
    recording.alloc(10, 0, 0x1000, 100, &[1, 9]);
    recording.free(11, 0, 0x1000);
    recording.alloc(20, 0, 0x2000, 100, &[2, 9]);
    recording.alloc(21, 0, 0x3000, 100, &[3, 9]);
    recording.free(22, 0, 0x2000);
    recording.free(23, 1, 0x3000);
    let bytes = recording.finish(0);
    let temporary = |between| {
        let analysis = analysis(&bytes, Question { temporary: between, ..Question::default() });
        analysis.stacks.iter().map(|stack| stack.temporary.objects).collect::<Vec<u64>>()
    };
    assert_eq!(temporary(0), [0, 1, 0, 0]);
    assert_eq!(temporary(1), [0, 1, 1, 0]);
}

#[test]
fn growth_is_between_two_times_and_nothing_after_the_second_counts() {
    let mut recording = Recording::new();
    recording.alloc(1_000, 0, 0x1000, 100, &[1, 9]);
    recording.alloc(2_000, 0, 0x2000, 200, &[2, 9]);
    recording.free(3_000, 0, 0x1000);
    recording.alloc(4_000, 0, 0x3000, 400, &[2, 9]);
    let question = Question { from_us: 1_500, to_us: 3_500, temporary: 0 };
    let analysis = analysis(&recording.finish(0), question);
    let in_use: Vec<[u64; 2]> = analysis.stacks.iter().map(|s| [s.at_start.bytes, s.at_end.bytes]).collect();
    assert_eq!(in_use, [[0, 0], [100, 0], [0, 200]]);
    assert_eq!(analysis.host().total.allocated.objects, 2);
}

#[test]
fn lifetimes_and_sizes_are_counted_by_powers() {
    let mut recording = Recording::new();
    for (size, lifetime) in [(1, 0), (16, 5), (17, 500), (1024, 500)] {
        recording.alloc(recording.time_us, 0, 0x1000, size, &[1]);
        recording.free(recording.time_us + lifetime, 0, 0x1000);
    }
    let analysis = analysis(&recording.finish(0), Question::default());
    let objects = |list: &[crate::recording::replay::analysis::Count]| {
        list.iter().map(|count| count.objects).collect::<Vec<u64>>()
    };
    assert_eq!(objects(&analysis.host().sizes), [0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1]);
    assert_eq!(objects(&analysis.host().lifetimes), [1, 1, 0, 2]);
}

#[test]
fn nearly_empty_pages_are_charged_to_who_holds_them() {
    let mut recording = Recording::new();
    // A page that is full, and one with a single block.
    for n in 0..64 {
        recording.alloc(n, 0, 0x10_0000 + n * 1024, 1024, &[1, 9]);
    }
    recording.alloc(100, 0, 0x20_0000, 16, &[2, 9]);
    let analysis = analysis(&recording.finish(0), Question::default());
    assert_eq!((analysis.pages.pages, analysis.pages.sparse, analysis.pages.held_free), (2, 1, 65_520));
    assert_eq!(analysis.stacks[1].held_free, 0);
    assert_eq!((analysis.stacks[2].held_free, analysis.stacks[2].sparse.objects), (65_520, 1));
}

#[test]
fn frees_that_come_before_their_allocation_are_matched_and_those_that_stay_alone_are_unknown() {
    let mut recording = Recording::new();
    let early = recording.at(10, 1);
    recording.matcher.free(&mut recording.writer, 0x1000, None, early);
    // In a batch that began before the free's ended.
    let origin = Origin { ring: 0, from_ns: early.from_ns - 1, ..early };
    let stack = recording.paths.intern(&[1], 0);
    recording.matcher.alloc(&mut recording.writer, 0x1000, 50, stack, origin);
    recording.free(20, 0, 0x2000);
    // An address that is allocated twice: the first one's free was lost.
    recording.alloc(30, 0, 0x3000, 70, &[2]);
    recording.alloc(40, 0, 0x3000, 80, &[2]);
    let analysis = analysis(&recording.finish(3), Question::default());
    assert_eq!((analysis.host().unknown_frees, analysis.host().lost_frees), (1, 1));
    assert_eq!((analysis.host().total.at_end.objects, analysis.host().total.at_end.bytes), (1, 80));
    assert!(analysis.cautions()[0].contains("lost of thread 101: 3 allocations"), "{:?}", analysis.cautions());
}

#[test]
fn more_frees_may_wait_in_vain_than_a_block_holds() {
    let mut recording = Recording::new();
    let frees = BLOCK_EVENTS as u64 * 2;
    for n in 0..frees {
        recording.free(0, 0, 0x1000 + n * 16);
    }
    let analysis = analysis(&recording.finish(0), Question::default());
    assert_eq!(analysis.host().unknown_frees, frees);
}

#[test]
fn a_recording_that_was_cut_off_is_read_up_to_there() {
    let whole = sample();
    let events = analysis(&whole, Question::default()).host().total.allocated.objects;
    assert_eq!(events, 2000);
    let mut seen = std::collections::BTreeSet::new();
    for len in (0..whole.len()).step_by(7) {
        let (_folder, path) = saved(&whole[..len]);
        let Ok(analysis) = analysed(&path, Question::default()) else { continue };
        assert_ne!(analysis.tail, Tail::Finished, "{len} bytes");
        assert!(!analysis.cautions().is_empty());
        seen.insert(analysis.host().total.allocated.objects);
    }
    assert_eq!(seen, [0, 2000].into());
}

#[test]
fn parts_have_numbers_of_their_own_and_times_go_on() {
    let one = analysis(&sample(), Question::default());
    let both = analysis(&sample_of_two_parts(), Question::default());
    assert_eq!(
        (both.host().total.allocated.objects, both.host().total.freed.objects),
        (2002, one.host().total.freed.objects + 1)
    );
    assert_eq!(
        (both.host().total.at_end.objects, both.host().total.at_end.bytes),
        (1, 1000),
        "the first part's blocks are gone"
    );
    assert_eq!((both.end_us, both.session.pid), (one.end_us + 30, 78));
    assert_eq!(both.host().peak.count, one.host().peak.count);
    let parts: Vec<_> =
        both.host().parts.iter().map(|part| (part.session.pid, part.session.begins_us, part.end_us)).collect();
    assert_eq!(parts, [(77, 0, 2100), (78, 2100, 2130)]);
    let second = &both.host().parts[1];
    assert_eq!((second.allocated.bytes, second.frees, second.peak.bytes, second.at_end.bytes), (6000, 1, 6000, 1000));
    // Addresses of no module are another process's generated code in each part.
    assert_eq!(both.profile.sites.len(), one.profile.sites.len() + 2);
    let threads: Vec<_> = both.summary.threads.iter().map(|thread| (thread.tid, thread.ring)).collect();
    assert_eq!(threads, [(100, 0), (101, 1), (100, 1), (101, 2)]);
    assert_eq!(both.host().threads[2].allocated.bytes + both.host().threads[3].allocated.bytes, 6000);
    assert_eq!(both.tail, Tail::Finished);

    // Up to a time in the first part there is no other.
    let before = analysis(&sample_of_two_parts(), Question { to_us: 1000, ..Question::default() });
    assert_eq!((before.host().parts.len(), before.session.pid), (1, 77));
    assert!(before.host().total.at_end.objects > 600);
}

#[test]
fn a_recording_is_gone_on_with_after_its_last_whole_block() {
    let whole = sample();
    let (_folder, path) = saved(&whole);
    let finished = Continuation::find(&path).unwrap();
    assert_eq!(finished.torn, 0);
    let mut offsets = std::collections::BTreeSet::new();
    for len in 64..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        let Ok(end) = Continuation::find(&path) else { continue };
        assert_eq!(end.torn, len as u64 - end.offset, "{len} bytes");
        offsets.insert(end.offset);
        let gone_on = appended(&whole[..len], |part| part.alloc(1, 0, 0x1000, 64, &[1, 20, 30]));
        let analysis = analysis(&gone_on, Question::default());
        assert!(analysis.tail == Tail::Finished && analysis.host().total.at_end.bytes == 64, "{len} bytes");
    }
    let starts: Vec<u64> = finished.index[1..].iter().map(|(offset, _)| *offset).chain([finished.offset]).collect();
    assert!(offsets.iter().eq(&starts), "{offsets:?}");
    // The machine went down before what was to be there was written.
    std::fs::write(&path, [&whole[..finished.offset as usize], &[0; 1000][..]].concat()).unwrap();
    assert_eq!(Continuation::find(&path).unwrap().torn, 1000);
}

#[test]
fn nothing_is_appended_to_a_file_that_is_damaged_before_its_end() {
    let whole = sample();
    let (_folder, path) = saved(&whole);
    let finished = Continuation::find(&path).unwrap();
    for &(offset, _) in &finished.index[1..] {
        let mut bytes = whole.clone();
        bytes[offset as usize + 20] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = Continuation::find(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("at byte {offset}")) && error.contains("record to another file"), "{error}");
    }
}

#[test]
fn every_report_says_the_same_and_a_programs_name_is_no_markup() {
    let analysis = analysis(&sample(), Question::default());
    let text = text::to_text(&analysis, 5);
    for part in ["2,000 allocations", "Peak: ", "Temporary", "Sizes", "Lifetimes", "thread-1 (tid 101)", "nearly empty"]
    {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let json: serde_json::Value = as_json(&analysis, None);
    assert_eq!(json["allocated"]["objects"], 2000);
    assert_eq!(json["lost"]["unknown_frees"], 1);
    let (all, first) = (json["sites"].as_array().unwrap(), as_json(&analysis, Some(1)));
    let some = first["sites"].as_array().unwrap();
    assert!((1..all.len()).contains(&some.len()) && some.iter().all(|site| all.contains(site)), "{first:#}");
    assert_eq!(first["sites_left_out"], all.len() - some.len());
    let mut html = Vec::new();
    page::write_page(&analysis, &mut html).unwrap();
    let html = String::from_utf8(html).unwrap();
    assert!(html.contains("some-&lt;program&gt; --flag") && !html.contains("some-<program>"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_recordings_are_errors_or_are_read_and_never_a_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        mend in any::<bool>(),
    ) {
        let mut bytes = sample_of_two_parts();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= value;
        }
        if mend {
            mend_checksums(&mut bytes);
        }
        let (_folder, path) = saved(&bytes);
        let _ = Continuation::find(&path);
        if let Ok(analysis) = analysed(&path, Question::default()) {
            text::to_text(&analysis, 3);
            json::write_json(&analysis, Some(3), std::io::sink()).unwrap();
            page::write_page(&analysis, std::io::sink()).unwrap();
        }
    }
}

/// Makes the checksums fit again, so that what is damaged is what a block says.
fn mend_checksums(bytes: &mut [u8]) {
    let mut at = 16;
    while at + 48 <= bytes.len() {
        let stored = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let Some(end) = (at + 48).checked_add(stored).filter(|&end| end <= bytes.len()) else { return };
        let payload = crc32fast::hash(&bytes[at + 48..end]);
        bytes[at + 32..at + 36].copy_from_slice(&payload.to_le_bytes());
        let header = crc32fast::hash(&bytes[at..at + 44]);
        bytes[at + 44..at + 48].copy_from_slice(&header.to_le_bytes());
        at = end;
    }
}

/// Sought in any order, with keyframes, a moment is what it is in a recording that was just opened.
#[test]
fn a_moment_is_the_same_from_wherever_it_is_sought() {
    let mut recording = Recording::new();
    for n in 0..3000 {
        recording.alloc(n / 2, 0, 0x7000_0000_0000 + n * 64, 10 + n % 50, &[n % 7, 20, 30]);
        if n >= 40 {
            recording.free(n / 2, 1, 0x7000_0000_0000 + (n - 40) * 64);
        }
        if n % 300 == 0 {
            recording.writer.flush(&recording.paths).unwrap();
        }
    }
    let bytes = appended(&recording.finish(0), |part| {
        part.alloc(10, 0, 0x7000_0000_0000, 5000, &[3, 20, 30]);
        part.free(30, 1, 0x7000_0000_0000);
    });
    let (_folder, path) = saved(&bytes);
    let figures = |film: &mut Film, time_us: u64| {
        let Snapshot { stacks, mut live, threads, taken_ns, history, process, .. } = film.at(time_us).unwrap().snapshot;
        live.sort_by_key(|block| (block.time_ns, block.stack, block.size));
        let stacks: Vec<_> = stacks.iter().map(|stack| (stack.allocated, stack.freed)).collect();
        (stacks, live, threads, taken_ns, history, process)
    };
    let mut film = Film::open(&path).unwrap().with_spacing(1);
    let end = film.end_us();
    let moments = [end, 0, end / 3, end - 25, end / 2, 1, end - 40, end / 4, end];
    for &time_us in &moments {
        let alone = figures(&mut Film::open(&path).unwrap(), time_us);
        assert_eq!(figures(&mut film, time_us), alone, "{time_us} of {end}");
    }
    assert!(film.keyframes() > 5, "{}", film.keyframes());
}
