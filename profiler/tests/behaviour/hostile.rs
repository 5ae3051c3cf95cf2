//! Segments that are damaged at random, through every reader: an error or a profile, never a panic or a hang.

use std::time::Duration;

use poolscope_profiler::faces::{flamegraph, json, pprof, text};
use poolscope_profiler::findings::Facts;
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::model::accounting::Accounting;
use poolscope_profiler::{Metric, ProfileBuilder, SegmentReader};
use poolscope_wire::{HEADER_LEN, Header, MAP_CELLS, Region};
use proptest::prelude::*;

use crate::segment::{self, Segment, TempSegment};

/// The sample's segment with something in every region.
fn sample_with_devices() -> Segment {
    let mut sample = segment::sample_with_devices();
    sample.peak(&[64, 600_000, 1 << 20, 70_000]);
    let sharing = sample.sharing(&[0x7f00_0000_1000, 0x40_2005], 2, 1, 5);
    let of_it = sample.sharing_its_middle(&[0x7f00_0000_1010], &[0x40_3005], sharing, 1, 4);
    sample.block(sharing, 100, 1);
    sample.block(of_it, 100, 1);
    (1..40).for_each(|second| sample.total(second, second << 20));
    sample
}

/// Reads a file with everything that reads; gives back whether it could be read at all.
fn read_with_everything(file: &TempSegment, builder: &mut ProfileBuilder) -> bool {
    let Ok(mut reader) = SegmentReader::open_within(&file.path, Duration::ZERO) else { return false };
    let _ = poolscope_profiler::segment::discovery::list_in(file.folder()).expect("the folder is fine");
    let mut readable = false;
    if let Ok(outline) = reader.outline() {
        let stacks = outline.stacks().len();
        for from in (0..stacks).step_by(3) {
            builder.forget_stacks();
            let _ = reader.part(&outline, from..stacks.min(from + 3)).map(|part| builder.build(&part));
        }
        builder.forget_stacks();
    }
    for _ in 0..2 {
        let Ok(snapshot) = reader.snapshot() else { continue };
        readable = true;
        let profile = builder.build(&snapshot);
        let _ = profile.at_peak().map(|then| then.totals());
        let _ = (snapshot.dropped.total(), profile.totals());
        let _ = (snapshot.history.most(), snapshot.history.trend(u64::MAX, snapshot.taken_ns));
        let accounting = Accounting::of(&snapshot);
        assert!(accounting.parts().all(|(part, bytes)| accounting.get(part) == bytes));
        let _: u64 = snapshot.classes.iter().map(|class| class.in_use_bytes() % 2).sum();
        pprof::write_pprof(&profile, Metric::InUseBytes, std::io::sink()).expect("is written");
        for metric in Metric::ALL {
            flamegraph::folded(&profile, metric);
        }
        flamegraph::write_flamegraph(&profile, Metric::InUseBytes, "fuzz", std::io::sink()).expect("is written");
        text::sites_text(&profile, 10);
        let facts = Facts::of(&snapshot, Some(&profile));
        json::write_json(&facts, &profile, Some(3), std::io::sink()).expect("is written");
        let leaks = LeakReport::new(&snapshot, &profile, &Suppressions::defaults());
        leaks.to_text();
        leaks.to_json().expect("is made");
    }
    readable
}

fn read_bytes(bytes: &[u8]) -> bool {
    let file = TempSegment::from_bytes("4000000000.1122334455667788", bytes);
    read_with_everything(&file, &mut ProfileBuilder::new())
}

/// The bytes of the sample's segment that mean something: the header's used part and the regions' records.
fn used_bytes() -> Vec<usize> {
    let header = Header::from_bytes(&sample_with_devices().build()).expect("is long enough");
    // The history follows the header.
    let mut used: Vec<usize> = (0..HEADER_LEN + 64 * 40).collect();
    for region in Region::ALL {
        let entry = header.region(region);
        let len = entry.count as usize * region.record_len();
        let start = entry.offset as usize;
        if region == Region::DeviceMaps {
            // The rest of a map is never looked at.
            let streams = MAP_CELLS + MAP_CELLS * size_of::<u64>();
            for (part, len) in [(0, 8), (MAP_CELLS, 32), (streams, 16)] {
                used.extend((start + part..).take(len));
            }
            continue;
        }
        used.extend((start..).take(len));
    }
    used
}

/// Values that break careless arithmetic, and small ones.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(1 << 63),
        Just(u64::from(u32::MAX)),
        Just(1 << 40),
        Just(0),
        0..10_000u64,
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        prop_assert!(!read_bytes(&bytes));
    }

    #[test]
    fn random_bytes_behind_a_good_header_do_no_harm(seed in any::<u64>()) {
        let mut bytes = sample_with_devices().build();
        let mut state = seed | 1;
        for at in used_bytes().into_iter().filter(|&at| at >= HEADER_LEN) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bytes[at] = (state >> 56) as u8;
        }
        prop_assert!(read_bytes(&bytes));
    }

    #[test]
    fn flipped_bytes_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut bytes = sample_with_devices().build();
        let used = used_bytes();
        for (at, value) in changes {
            bytes[*at.get(&used)] = value;
        }
        read_bytes(&bytes);
    }

    #[test]
    fn hostile_words_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), word()), 1..8)) {
        let mut bytes = sample_with_devices().build();
        let used = used_bytes();
        for (at, value) in changes {
            let at = *at.get(&used) & !7;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        read_bytes(&bytes);
    }

    #[test]
    fn a_hostile_region_table_does_no_harm(
        region in 0..Region::ALL.len(),
        offset in word(),
        capacity in word(),
        committed in word(),
        count in word(),
        len in prop_oneof![Just(None), word().prop_map(Some)],
    ) {
        let mut bytes = sample_with_devices().build();
        let mut header = Header::from_bytes(&bytes).expect("is long enough");
        let entry = &mut header.regions[region];
        (entry.capacity, entry.committed, entry.count) = (capacity, committed, count);
        if let Some(len) = len {
            (entry.offset, entry.record_len) = (offset, len as u32);
        }
        bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        read_bytes(&bytes);
    }

    #[test]
    fn truncation_and_growth_do_no_harm(len in 0..200_000usize) {
        let mut bytes = sample_with_devices().build();
        bytes.resize(len, 0xa5);
        read_bytes(&bytes);
    }

    #[test]
    fn one_builder_survives_one_hostile_snapshot_after_the_other(
        rounds in prop::collection::vec(prop::collection::vec((any::<prop::sample::Index>(), word()), 0..6), 2..5),
    ) {
        let mut builder = ProfileBuilder::new();
        let used: Vec<usize> = used_bytes().into_iter().filter(|&at| at >= HEADER_LEN).collect();
        for changes in rounds {
            let mut bytes = sample_with_devices().build();
            for (at, value) in changes {
                let at = *at.get(&used) & !7;
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            read_with_everything(&TempSegment::from_bytes("4000000000.1122334455667788", &bytes), &mut builder);
        }
    }

    #[test]
    fn modules_with_hostile_paths_do_no_harm(path in "\\PC{0,40}|/proc/self/(mem|exe|maps|fd/0)|/dev/(zero|full|tty|stdin)") {
        let mut segment = Segment::new();
        segment.module(&path, 0x1000, 0x2000, 0, &[1; 20]);
        let stack = segment.stack(&[0x1500, 0x1600]);
        segment.block(stack, 10, 1);
        prop_assert!(read_bytes(&segment.build()));
    }
}
