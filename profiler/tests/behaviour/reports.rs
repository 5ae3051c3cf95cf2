//! Reports as people and programs read them, kept as reviewed snapshots.

use std::sync::Arc;

use poolscope_profiler::faces::{json, text};
use poolscope_profiler::findings::Facts;
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::{Profile, ProfileBuilder};
use poolscope_wire::flags;

use crate::profiles::snapshot;
use crate::segment::{BIAS, Segment, sample};

fn named(segment: &Segment) -> (poolscope_profiler::Snapshot, Profile) {
    let mut snapshot = snapshot(segment);
    snapshot.taken_realtime_ns = 1_700_000_100_000_000_000;
    let mut profile = ProfileBuilder::new().build(&snapshot);
    for location in Arc::make_mut(&mut profile.locations) {
        for frame in &mut location.frames {
            let (name, line) = match frame.name.as_str() {
                "[sample+0x1004]" => ("main", Some(10)),
                "[sample+0x2004]" => ("parse", Some(20)),
                "[sample+0x3004]" => ("cache_insert", None),
                "[libc.so.6+0x10]" => ("_IO_file_doallocate", None),
                _ => continue,
            };
            frame.name = name.to_owned();
            frame.file = Some("/src/sample.c".to_owned()).filter(|_| name != "_IO_file_doallocate");
            frame.line = line;
        }
    }
    (snapshot, profile)
}

/// An exact run that leaves a leak, an empty block, and the buffer of a stream.
fn finished() -> Segment {
    let mut segment = sample();
    segment.header.flags = flags::EXACT;
    segment.header.period_bytes = 1;
    segment.live.remove(4);
    segment.module("/lib/libc.so.6", 0x7e00_0000_0000, 0x7e00_0010_0000, 0x7e00_0000_0000, &[1; 20]);
    let stack = segment.stack(&[0x7f00_0000_1000, 0x7e00_0000_0011, BIAS + 0x1005]);
    segment.block(stack, 1024, 1);
    let stack = segment.stack(&[0x7f00_0000_1000, BIAS + 0x5005]);
    segment.block(stack, 0, 1);
    segment
}

#[test]
fn the_table_of_call_sites() {
    let (_, profile) = named(&sample());
    insta::assert_snapshot!("top", text::sites_text(&profile, 2));
    insta::assert_snapshot!("top_of_nothing", text::sites_text(&Profile::default(), 10));
}

#[test]
fn the_model_as_json() {
    let (snapshot, profile) = named(&sample());
    let json = |rows| {
        let mut json = Vec::new();
        json::write_json(&Facts::of(&snapshot, Some(&profile)), &profile, rows, &mut json).expect("is written");
        String::from_utf8(json).expect("is text")
    };
    insta::assert_snapshot!("model_json", json(None).trim_end());
    let first: serde_json::Value = serde_json::from_str(&json(Some(1))).expect("is JSON");
    let written = first["sites"].as_array().expect("has sites").len();
    assert!((1..profile.sites.len()).contains(&written), "{first:#}");
    assert_eq!(first["sites_left_out"], profile.sites.len() - written);
}

#[test]
fn the_leaks_as_text_and_json() {
    let (snapshot, profile) = named(&finished());
    let report = LeakReport::new(&snapshot, &profile, &Suppressions::defaults());
    assert!(report.has_leaks());
    insta::assert_snapshot!("leaks", report.to_text());
    insta::assert_snapshot!("leaks_json", report.to_json().expect("is made"));
}

#[test]
fn without_suppressions_everything_is_a_leak() {
    let (snapshot, profile) = named(&finished());
    let with = LeakReport::new(&snapshot, &profile, &Suppressions::defaults());
    let without = LeakReport::new(&snapshot, &profile, &Suppressions::none());
    assert_eq!(without.suppressed, []);
    assert_eq!(without.bytes(), with.bytes() + 1024);
    assert_eq!(without.objects(), with.objects() + 1);
}

#[test]
fn a_users_suppressions_match_functions_modules_and_files() {
    let (snapshot, profile) = named(&finished());
    for (pattern, left) in [("cache_*", 2), ("sample.c:", 3), ("^/src/sample.c$", 1), ("/usr/bin/sample", 0)] {
        let mut suppressions = Suppressions::defaults();
        suppressions.add(&format!("leak:{pattern}"), "s.txt").expect("is fine");
        let report = LeakReport::new(&snapshot, &profile, &suppressions);
        assert_eq!(report.leaks.len(), left, "{pattern}: {}", report.to_text());
        assert_eq!(report.bytes() + report.suppressed.iter().map(|kept| kept.bytes).sum::<u64>(), 546_312);
    }
}

#[test]
fn a_clean_run_says_so_and_an_estimate_says_that_it_is_one() {
    let (snapshot, profile) = named(&Segment::new());
    let report = LeakReport::new(&snapshot, &profile, &Suppressions::defaults());
    assert!(!report.has_leaks());
    insta::assert_snapshot!("no_leaks", report.to_text());
    let (mut snapshot, profile) = named(&sample());
    snapshot.dropped.live = 12;
    let report = LeakReport::new(&snapshot, &profile, &Suppressions::defaults());
    insta::assert_snapshot!("leaks_estimated", report.to_text());
}
