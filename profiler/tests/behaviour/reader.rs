//! Reading a segment, whole or damaged.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use poolscope_profiler::model::history::{History, Most};
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::model::snapshot::{Amount, Dropped, ProcessState, Snapshot};
use poolscope_profiler::{ProfileBuilder, ReadError, SegmentReader};
use poolscope_wire::{
    DeviceCounter, HEADER_LEN, Header, LiveRecord, OLDEST_VERSION, Region, StackRecord, TierCounter, VERSION, cell,
    flags, state,
};

use crate::discovery::python_mapping;
use crate::segment::{FIRST_CELL, MAP_OF_STREAMS, Segment, TempSegment, sample, sample_with_devices};

fn read(segment: &Segment) -> Snapshot {
    let file = TempSegment::new(segment);
    SegmentReader::open_within(&file.path, Duration::ZERO).expect("opens").snapshot().expect("reads")
}

fn error_of(bytes: &[u8]) -> String {
    let file = TempSegment::from_bytes("1.0000000000000001", bytes);
    let error = SegmentReader::open_within(&file.path, Duration::ZERO)
        .and_then(|mut reader| reader.snapshot())
        .expect_err("is damaged");
    error.to_string().replace(&file.path.display().to_string(), "FILE")
}

#[test]
fn a_whole_segment_is_read_as_it_was_written() {
    let snapshot = read(&sample());
    assert_eq!(snapshot.dropped, Dropped::default());
    assert_eq!(snapshot.process.pid, 4_000_000_000);
    assert_eq!(snapshot.process.state, ProcessState::Killed);
    assert_eq!(snapshot.process.exe, "/usr/bin/sample");
    assert_eq!(snapshot.process.args, ["sample", "--port", "8080"]);
    assert_eq!((snapshot.period_bytes, snapshot.exact), (524_288, false));
    assert_eq!(snapshot.stacks.len(), 4);
    assert!(snapshot.stacks[0].frames.is_empty());
    assert_eq!(snapshot.stacks[2].frames.len(), 4);
    assert_eq!(snapshot.stacks[2].allocated, Amount { objects: 12.0, bytes: 528_384.0, samples: 2 });
    assert_eq!(snapshot.stacks[2].freed, Amount { objects: 4.0, bytes: 4096.0, samples: 1 });
    assert_eq!(snapshot.live.len(), 5);
    assert_eq!(snapshot.live[1].amount(), Amount { objects: 5.0, bytes: 10_000.0, samples: 1 });
    assert_eq!(snapshot.modules.len(), 2);
    assert_eq!(snapshot.modules[1].path, "/opt/poolscope/libpoolscope.so");
    assert_eq!(snapshot.modules[1].stacks, 0..u32::MAX);
    assert_eq!(snapshot.tiers.get(TierCounter::SlabBytes), 131_072);
    let class = &snapshot.classes[0];
    assert_eq!((class.threads.allocs, class.threads.frees, class.threads.refills), (87, 40, 11));
    // With three samples, of which one was freed; 20 blocks still lie in a thread's list,
    // and 2 are on their way to one.
    assert_eq!((class.allocs(), class.frees(), class.misses(), class.in_use_blocks()), (90, 41, 14, 47));
    assert_eq!((class.slabs(), class.free_blocks()), (1, 4096 - 47));
    let stats = snapshot.stats();
    assert_eq!(stats.classes(), &snapshot.classes[..]);
    assert_eq!((stats.heaps, stats.page_bytes, stats.period_bytes), (2, 65_536, 524_288));
    assert_eq!(stats.tier(TierCounter::SlabBytes), 131_072);
    assert_eq!(stats.usage().transfer_cache, 2 * 16 + 3 * 64);
    assert_eq!(snapshot.threads.len(), 2);
    // With three samples and a large block, which came past the thread's cache.
    let thread = &snapshot.threads[0];
    assert_eq!((thread.allocs, thread.alloc_bytes), (80 + 50 + 4, (80 + 3) * 16 + 50 * 64 + (1 << 20)));
    assert_eq!((thread.uncached_allocs, thread.uncached_bytes), (4, 3 * 16 + (1 << 20)));
    assert_eq!(snapshot.memory, None);
}

#[test]
fn pools_of_devices_are_read_with_their_maps_and_their_blocks() {
    let snapshot = read(&sample_with_devices());
    assert_eq!(snapshot.dropped, Dropped::default());
    let names: Vec<&str> = snapshot.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["First", "Second"], "in the order of their numbers");
    let first = &snapshot.devices[0];
    assert_eq!(first.cells, [cell::SMALL, cell::LARGE, cell::PENDING, cell::UNMAPPED]);
    assert_eq!((first.cell_bytes, first.memory_bytes, first.time_ns), (2 << 20, 64 << 20, 3_000_000_000));
    assert_eq!(first.get(DeviceCounter::Held), (DeviceCounter::Held as u64 + 1) << 20);
    let places: Vec<_> = (0..5).map_while(|at| first.piece(at)).map(|piece| (piece.address, piece.stream)).collect();
    let expected = |at: u64| (Some(FIRST_CELL + at * (2 << 20)), Some(MAP_OF_STREAMS[at as usize % 2]));
    assert_eq!(places, (0..4).map(expected).collect::<Vec<_>>());
    let of_devices: Vec<_> = snapshot.stacks.iter().map(|stack| stack.place).skip(4).collect();
    assert_eq!(of_devices, [Place::Device(0), Place::Device(1), Place::Pinned(1)]);
    let blocks: Vec<_> = snapshot.live.iter().map(|block| (block.place, block.size)).skip(5).collect();
    assert_eq!(blocks, [(Place::Device(0), 1 << 20), (Place::Device(1), 2 << 20), (Place::Pinned(1), 4096)]);
}

#[test]
fn a_device_that_claims_more_cells_than_a_map_has_is_left_out() {
    let mut segment = sample_with_devices();
    segment.devices[0].0.map_cells = u32::MAX;
    segment.devices[1].0.name_len = u16::MAX;
    let snapshot = read(&segment);
    assert_eq!((snapshot.devices.len(), snapshot.dropped.invalid), (0, 2));
    let mut segment = sample_with_devices();
    segment.devices[0].0.map_streams = u32::MAX;
    assert_eq!((read(&segment).devices.len(), read(&segment).dropped.invalid), (1, 1));
}

#[test]
fn the_executable_is_the_first_module_wherever_the_writer_put_it() {
    let mut segment = sample();
    segment.module("/lib/libc.so.6", 1, 2, 0, &[]);
    segment.modules.rotate_left(1);
    let paths: Vec<String> = read(&segment).modules.into_iter().map(|module| module.path).collect();
    assert_eq!(paths, ["/usr/bin/sample", "/opt/poolscope/libpoolscope.so", "/lib/libc.so.6"]);
}

#[test]
fn a_second_reading_sees_what_was_added() {
    let mut segment = sample();
    let file = TempSegment::new(&segment);
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    assert_eq!(reader.snapshot().expect("reads").stacks.len(), 4);
    let stack = segment.stack(&[1, 2, 3]);
    segment.block(stack, 10, 1);
    segment.block(1, 10, 1);
    std::fs::write(&file.path, segment.build()).expect("is written");
    let snapshot = reader.snapshot().expect("reads");
    assert_eq!(snapshot.stacks[4].frames.to_vec(), [1, 2, 3]);
    assert_eq!(snapshot.stacks[1].allocated.samples, 3);
    assert_eq!(snapshot.live.len(), 7);
}

#[test]
fn a_file_that_became_another_programs_is_an_error() {
    let file = TempSegment::new(&sample());
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    let mut other = sample();
    other.header.generation += 1;
    std::fs::write(&file.path, other.build()).expect("is written");
    assert!(matches!(reader.snapshot(), Err(ReadError::Changed { .. })));
}

#[test]
fn a_truncated_segment_is_an_error_at_every_length() {
    let bytes = sample().build();
    let header = Header::from_bytes(&bytes).expect("is long enough");
    let live = header.region(Region::Live);
    let needed = (live.offset + live.committed) as usize;
    for len in (0..needed).step_by(509) {
        let message = error_of(&bytes[..len]);
        assert!(message.contains("FILE"), "{len}: {message}");
    }
    assert_eq!(
        error_of(&bytes[..needed - 1]),
        "cannot read the segment FILE: damaged segment: region live: reaches past the end of the file (was it cut off?)"
    );
    assert_eq!(
        error_of(&bytes[..100]),
        "cannot read the segment FILE: 100 bytes are too few for a segment, which begins with 4096"
    );
}

#[test]
fn a_file_that_shrinks_between_two_readings_is_an_error() {
    let file = TempSegment::new(&sample());
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    reader.snapshot().expect("reads");
    std::fs::OpenOptions::new().write(true).open(&file.path).and_then(|f| f.set_len(5000)).expect("shrinks");
    let error = reader.snapshot().expect_err("is cut off");
    assert!(error.to_string().contains("was it cut off?"), "{error}");
}

#[test]
fn another_version_says_so() {
    let mut segment = sample();
    segment.header.version = VERSION + 1;
    assert_eq!(
        error_of(&segment.build()),
        format!(
            "cannot read the segment FILE: segment of version {}, this poolscope reads versions {OLDEST_VERSION} to {VERSION}: use the poolscope that came with the library",
            VERSION + 1
        )
    );
}

#[test]
fn another_file_is_no_segment() {
    assert_eq!(
        error_of(&[b'x'; 8192]),
        "cannot read the segment FILE: not a poolscope segment (its first bytes are others)"
    );
    let folder = tempfile::tempdir().expect("there is room");
    let error = SegmentReader::open(folder.path()).expect_err("is a folder");
    assert!(matches!(error, ReadError::NotAFile { .. }), "{error}");
    let error = SegmentReader::open(folder.path().join("none")).expect_err("is not there");
    assert!(error.to_string().ends_with("No such file or directory (os error 2)"), "{error}");
}

#[test]
fn a_zeroed_segment_is_one_that_was_never_set_up() {
    let message = error_of(&vec![0; 1 << 16]);
    assert_eq!(
        message,
        "the segment FILE is still being set up by process 1: try again in a moment; if that process is gone, it died while it started, and `poolscope gc` removes the file"
    );
}

#[test]
fn a_program_that_is_starting_is_waited_for() {
    let mut segment = sample();
    segment.header.state = state::STARTING;
    let file = TempSegment::new(&segment);
    let begun = Instant::now();
    assert!(matches!(SegmentReader::open_within(&file.path, Duration::ZERO), Err(ReadError::Starting { .. })));
    assert!(begun.elapsed() < Duration::from_millis(300));

    segment.header.state = state::LIVE;
    let (path, bytes) = (file.path.clone(), segment.build());
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
        file.write_all_at(&bytes, 0).expect("writes");
    });
    let mut reader = SegmentReader::open_within(&file.path, Duration::from_secs(20)).expect("opens in the end");
    writer.join().expect("ends");
    reader.snapshot().expect("reads");
}

#[test]
fn a_block_without_a_stack_is_counted_and_left_out() {
    let mut segment = sample();
    segment.live[0].stack = 999;
    segment.live[1].kind = 0;
    let snapshot = read(&segment);
    assert_eq!(snapshot.live.len(), 3);
    assert_eq!(snapshot.dropped, Dropped { invalid: 1, ..Dropped::default() });
}

#[test]
fn a_stack_whose_frames_lie_outside_keeps_its_totals() {
    let mut segment = sample();
    segment.stacks[1].first_frame = u32::MAX;
    segment.stacks[2].depth = u16::MAX;
    let snapshot = read(&segment);
    assert_eq!(snapshot.dropped.invalid, 2);
    assert!(snapshot.stacks[1].frames.is_empty());
    assert_eq!(snapshot.stacks[1].allocated.samples, 2);
}

#[test]
fn a_stack_that_says_something_else_than_before_has_its_frames_read_again() {
    let mut segment = sample();
    let file = TempSegment::new(&segment);
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    let first = reader.snapshot().expect("reads");
    let (one, other) = (segment.stacks[1], segment.stacks[2]);
    assert_ne!(first.stacks[1].frames, first.stacks[2].frames);
    for (first_frame, depth, of) in [(other.first_frame, other.depth, 2), (one.first_frame, one.depth, 1)] {
        (segment.stacks[1].first_frame, segment.stacks[1].depth) = (first_frame, depth);
        std::fs::write(&file.path, segment.build()).expect("is written");
        let snapshot = reader.snapshot().expect("reads");
        assert_eq!(snapshot.stacks[1].frames, first.stacks[of].frames);
        assert_eq!(snapshot.stacks[2].frames, first.stacks[2].frames);
        assert_eq!(snapshot.dropped, first.dropped);
    }
}

#[test]
fn stacks_that_all_point_at_the_same_frames_do_not_multiply_them() {
    let mut segment = Segment::new();
    segment.frames = vec![1; 50_000];
    segment.stacks = vec![StackRecord { depth: 50_000, ..StackRecord::ZERO }; 20_000];
    let snapshot = read(&segment);
    let frames: usize = snapshot.stacks.iter().map(|stack| stack.frames.len()).sum();
    assert!(frames <= 200_000, "{frames} frames");
    assert!(snapshot.dropped.invalid > 19_000);
}

/// What the stacks of a segment have in it, whole and part by part.
fn frames_both_ways(segment: &Segment) -> (Vec<Vec<u64>>, u64) {
    let file = TempSegment::new(segment);
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    let snapshot = reader.snapshot().expect("reads");
    let whole: Vec<Vec<u64>> = snapshot.stacks.iter().map(|stack| stack.frames.to_vec()).collect();
    let outline = reader.outline().expect("reads");
    for from in 0..whole.len() {
        for to in from + 1..=whole.len() {
            let part = reader.part(&outline, from..to).expect("reads");
            assert!(part.stacks.iter().map(|stack| stack.frames.to_vec()).eq(whole[from..to].iter().cloned()));
        }
    }
    (whole, snapshot.dropped.invalid)
}

#[test]
fn stacks_that_share_their_outer_frames_have_all_of_them_whole_and_part_by_part() {
    let mut segment = Segment::new();
    let long: Vec<u64> = (1..=60).collect();
    let first = segment.stack(&long);
    let second = segment.sharing(&[100, 101], first, 10, 52);
    let third = segment.sharing(&[200], second, 1, 51);
    // More of its own than is read at once, not all of the other's, and nothing of its own.
    let fourth = segment.sharing(&long[..40], third, 0, 45);
    let fifth = segment.sharing(&[], fourth, 39, 3);
    // Some behind them, which the next one does not have; that has others.
    let sixth = segment.sharing_its_middle(&[300], &[91, 92], second, 0, 20);
    let seventh = segment.sharing_its_middle(&[400], &[93], sixth, 0, 19);
    let stacks = frames_both_ways(&segment);
    let of = |stack: u32| stacks.0[stack as usize].clone();
    assert_eq!(of(second), [&[100, 101], &long[10..]].concat());
    assert_eq!(of(third), [&[200, 101], &long[10..59]].concat());
    assert_eq!(of(fourth), [&long[..40], &[200, 101, 11, 12, 13]].concat());
    assert_eq!((of(fifth), stacks.1), (vec![40, 200, 101], 0));
    assert_eq!(of(sixth), [&[300, 100, 101], &long[10..25], &[91, 92]].concat());
    assert_eq!(of(seventh), [&[400, 300, 100, 101], &long[10..24], &[93]].concat());
}

#[test]
fn a_stack_that_shares_what_no_other_has_is_counted_and_has_no_frames() {
    let mut segment = Segment::new();
    let first = segment.stack(&[1, 2, 3]);
    let shared = segment.sharing(&[9], first, 1, 3);
    let wrong = [
        (first, 3, 2),
        (first, 1, 4),
        (shared, 1, 2),
        (shared + 1, 0, 2),
        (u32::MAX, 0, 2),
        (first, 0, 300),
        (0, 0, 2),
    ];
    for (stack, from, depth) in wrong {
        let mut segment = segment.clone();
        segment.sharing(&[8], stack, from, depth);
        segment.block(shared + 1, 100, 1);
        let (stacks, invalid) = frames_both_ways(&segment);
        assert_eq!((stacks[shared as usize].as_slice(), stacks.last().unwrap().len()), (&[9, 2, 3][..], 0));
        assert_eq!(invalid, 1, "{stack} {from} {depth}");
    }
    // What the other one has behind what it shares, and more than the stack is deep.
    let ended = segment.sharing_its_middle(&[7], &[6, 5], first, 0, 6);
    assert_eq!(frames_both_ways(&segment).0[ended as usize], [7, 1, 2, 3, 6, 5]);
    for (tail, depth) in [(&[][..], 6), (&[1; 9], 8)] {
        let mut segment = segment.clone();
        let wrong = segment.sharing_its_middle(&[8], tail, ended, 0, depth);
        let (stacks, invalid) = frames_both_ways(&segment);
        assert!(stacks[wrong as usize].is_empty() && invalid == 1, "{stacks:?}");
    }
    // Its own words would lie past the end.
    let at = segment.stacks.len();
    segment.sharing(&[8], first, 0, 2);
    segment.stacks[at].first_frame += 1;
    assert_eq!(frames_both_ways(&segment).1, 1);
}

#[test]
fn a_stack_shares_the_frames_of_one_that_an_earlier_reading_saw() {
    let mut segment = Segment::new();
    let first = segment.stack(&[1, 2, 3]);
    let file = TempSegment::new(&segment);
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    reader.snapshot().expect("reads");
    for n in 0..3 {
        let new = segment.sharing(&[10 + n], first + n as u32, 0, 3);
        std::fs::write(&file.path, segment.build()).expect("is written");
        let snapshot = reader.snapshot().expect("reads");
        assert_eq!(snapshot.stacks[new as usize].frames.len(), 3);
        assert_eq!((snapshot.stacks[new as usize].frames.to_vec()[0], snapshot.dropped.invalid), (10 + n, 0));
    }
}

#[test]
fn impossible_modules_are_counted_and_a_cut_path_is_kept() {
    let mut segment = sample();
    segment.module(&"p".repeat(1000), 10, 20, 0, &[]);
    segment.module("/turned", 20, 10, 0, &[]);
    segment.module("/id", 10, 20, 0, &[]).build_id_len = 33;
    segment.module("/long", 10, 20, 0, &[]).path_len = u16::MAX;
    let snapshot = read(&segment);
    assert_eq!(snapshot.dropped, Dropped { invalid: 3, ..Dropped::default() });
    assert_eq!(snapshot.modules.len(), 3);
    assert!(snapshot.modules[2].path.ends_with("pp…"));
}

#[test]
fn a_record_that_is_being_written_is_torn() {
    let mut segment = sample();
    segment.live[2].seq = 3;
    segment.modules[1].seq = 1;
    let snapshot = read(&segment);
    assert_eq!(snapshot.dropped, Dropped { torn: 2, ..Dropped::default() });
    assert_eq!((snapshot.live.len(), snapshot.modules.len()), (4, 1));
}

/// As on a busy machine, in the middle of a record: what it is in is waited for, and not missing.
#[test]
fn a_writer_that_loses_its_processor_is_waited_for() {
    let mut segment = sample();
    segment.live[2].seq = 3;
    let at = segment.offset_of(Region::Live) as u64 + 2 * LiveRecord::LEN as u64;
    // A program that runs: nobody waits for one that is dead.
    let (_child, file) = python_mapping(segment);
    let handle = std::fs::OpenOptions::new().write(true).open(&file.path).expect("opens");
    let write = |seq: u32| handle.write_all_at(&seq.to_le_bytes(), at).expect("writes");
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    // One that is itself kept from its processor for as long as a reading waits has to try again.
    let seen = (0..20).find_map(|_| {
        write(3);
        let begun = Instant::now();
        let (snapshot, written) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                write(4);
                begun.elapsed()
            });
            (reader.snapshot().expect("reads"), writer.join().expect("no panic"))
        });
        (written < Duration::from_millis(60)).then_some(snapshot)
    });
    let snapshot = seen.expect("the writer was in time once");
    assert_eq!((snapshot.live.len(), snapshot.dropped.torn), (5, 0));
}

#[test]
fn a_writer_at_work_never_gives_a_mixture_of_two_blocks() {
    let mut segment = Segment::new();
    let stack = segment.stack(&[1, 2]);
    for _ in 0..200 {
        segment.block(stack, 100, 100);
    }
    let file = TempSegment::new(&segment);
    let offset = segment.offset_of(Region::Live) as u64;
    let record = segment.live[0];
    let path = file.path.clone();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
        let mut round = 1u64;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            for slot in 0..200 {
                let at = offset + slot * LiveRecord::LEN as u64;
                let seq = (round as u32).wrapping_mul(2);
                file.write_all_at(&(seq - 1).to_le_bytes(), at).expect("writes");
                let next = LiveRecord { seq: seq - 1, size: round, weight: round << 16, ..record };
                file.write_all_at(&next.to_bytes(), at).expect("writes");
                file.write_all_at(&seq.to_le_bytes(), at).expect("writes");
            }
            round += 1;
        }
    });
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let snapshot = reader.snapshot().expect("reads");
        assert_eq!(snapshot.live.len() as u64 + snapshot.dropped.torn, 200);
        for block in &snapshot.live {
            assert_eq!(block.size as f64, block.weight);
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().expect("ends");
}

#[test]
fn counts_beyond_all_reason_are_refused_before_memory_is_taken() {
    let file = TempSegment::new(&sample());
    let mut header = Header::from_bytes(&sample().build()).expect("is long enough");
    let huge = 1 << 40;
    let live = &mut header.regions[Region::Live as usize];
    (live.capacity, live.committed, live.count) = (huge, huge, huge / 64);
    let handle = std::fs::OpenOptions::new().write(true).open(&file.path).expect("opens");
    let end = live.offset + huge;
    for empty in [Region::Devices, Region::DeviceMaps, Region::Peaks] {
        header.regions[empty as usize].offset = end;
        header.regions[empty as usize].capacity = 0;
    }
    handle.write_all_at(&header.to_bytes(), 0).expect("writes");
    // The file is sparse: it takes no room.
    handle.set_len(end).expect("grows");
    let error = SegmentReader::open(&file.path).and_then(|mut reader| reader.snapshot()).expect_err("is refused");
    assert!(
        error.to_string().contains("region live counts 17179869184 records, and no more than 16777216 are read"),
        "{error}"
    );
}

#[test]
fn who_comes_late_has_the_totals_since_the_start_and_the_peak() {
    let mut segment = sample();
    for second in 0..300 {
        segment.total(second, if second == 77 { 900 << 20 } else { second << 20 });
    }
    let snapshot = read(&segment);
    let start = segment.header.start_monotonic_ns;
    let second = 1_000_000_000;
    assert_eq!(snapshot.history.totals.len(), 300);
    assert_eq!(snapshot.history.most(), Some(Most { bytes: 900 << 20, time_ns: start + 77 * second }));
    let trend = snapshot.history.trend(60 * second, start + 299 * second);
    assert!(trend.grows() && (trend.per_minute() / f64::from(60 << 20) - 1.0).abs() < 0.05, "{trend:?}");
    // A segment of before there was a history.
    segment.totals.clear();
    let snapshot = read(&segment);
    assert_eq!((snapshot.history, snapshot.dropped.total()), (History::default(), 0));
}

#[test]
fn a_history_that_cannot_be_is_left_out_and_said() {
    let mut segment = sample();
    segment.total(1, 1);
    let bytes = segment.build();
    for offset in [u64::MAX, bytes.len() as u64 - 8, 1 << 40] {
        let mut header = Header::from_bytes(&bytes).expect("is long enough");
        header.history = offset;
        let bytes = [&header.to_bytes()[..], &bytes[HEADER_LEN..]].concat();
        let file = TempSegment::from_bytes(&segment.name(), &bytes);
        let snapshot = SegmentReader::open(&file.path).and_then(|mut reader| reader.snapshot()).expect("is read");
        assert_eq!((snapshot.history, snapshot.dropped.invalid), (History::default(), 1), "{offset}");
    }
    // A program that was killed while it wrote.
    let mut torn = bytes;
    torn[HEADER_LEN] = 3;
    let file = TempSegment::from_bytes(&segment.name(), &torn);
    let snapshot = SegmentReader::open(&file.path).and_then(|mut reader| reader.snapshot()).expect("is read");
    assert_eq!((snapshot.history, snapshot.dropped.torn), (History::default(), 1));
}

#[test]
fn totals_of_hostile_counters_do_not_overflow() {
    let mut segment = sample();
    segment.header.dropped_live = u64::MAX;
    segment.header.dropped_stacks = u64::MAX;
    segment.threads[0].1[0].allocs = u64::MAX;
    segment.threads[0].1[0].cached = 0;
    segment.stacks[1].alloc_samples = u64::MAX;
    segment.header.exe_len = u32::MAX;
    segment.header.cmdline_len = u32::MAX;
    let snapshot = read(&segment);
    assert_eq!(snapshot.dropped.total(), u64::MAX);
    assert_eq!(snapshot.classes[0].allocs(), u64::MAX);
    assert_eq!(snapshot.classes[0].in_use_bytes(), u64::MAX);
}

#[test]
fn flags_and_states_are_told_apart() {
    let mut segment = sample();
    segment.header.flags = flags::EXACT | flags::FORKED;
    segment.header.state = state::EXITED;
    segment.header.period_bytes = 0;
    let snapshot = read(&segment);
    assert!(snapshot.exact && snapshot.process.forked);
    assert_eq!(snapshot.process.state, ProcessState::Exited);
    assert_eq!(snapshot.period_bytes, 1);
    assert_eq!(HEADER_LEN, 4096);
}

#[test]
fn escape_sequences_in_names_do_not_reach_the_terminal() {
    let mut segment = Segment::new();
    segment.module("/lib/\x1b]0;x\x07.so", 1, 2, 0, &[]);
    segment.header.cmdline[..6].copy_from_slice(b"a\x1b[2J\0");
    segment.header.cmdline_len = 6;
    let snapshot = read(&segment);
    assert_eq!(snapshot.modules[0].path, "/lib/\u{fffd}]0;x\u{fffd}.so");
    assert_eq!(snapshot.process.args, ["a\u{fffd}[2J"]);
}

/// What the libraries of the two versions before wrote of `samples/csrc/leak.c 40`, with every allocation recorded: 40
/// blocks of 1,024 bytes are left, and 1,000 blocks of 100 to 1,099 bytes were freed.
#[test]
fn segments_of_the_two_versions_before_are_read() {
    for version in [VERSION - 2, VERSION - 1] {
        let folder = tempfile::tempdir().unwrap();
        let packed = format!("{}/tests/data/segment-version-{version}.tar.gz", env!("CARGO_MANIFEST_DIR"));
        let unpacked = std::process::Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(folder.path()).status();
        assert!(unpacked.unwrap().success());
        let path = folder.path().join(format!("{version}.{version:016x}"));
        let mut reader = SegmentReader::open(&path).unwrap();
        assert_eq!(reader.header().version, version);
        let snapshot = reader.snapshot().unwrap();
        assert_eq!(snapshot.dropped.total(), 0, "{:?}", snapshot.dropped);
        assert!(snapshot.process.exe.ends_with("/leaky"), "{}", snapshot.process.exe);
        assert_eq!(snapshot.search, None);
        let profile = ProfileBuilder::new().build(&snapshot);
        let left: Vec<_> = profile.sites.iter().filter(|site| site.in_use.bytes == 40.0 * 1024.0).collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].in_use.objects, 40.0);
        let freed = |site: &&poolscope_profiler::Site| site.allocated.objects == 1000.0 && site.in_use.objects == 0.0;
        assert_eq!(profile.sites.iter().filter(freed).count(), 1);
        assert!(snapshot.stats().usage().in_use >= 40 * 1024);
    }
}
