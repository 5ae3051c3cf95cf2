//! From snapshots to profiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use poolscope_profiler::model::profile::Site;
use poolscope_profiler::model::snapshot::{Amount, Snapshot};
use poolscope_profiler::{Profile, ProfileBuilder, SegmentReader};

use crate::segment::{BIAS, Segment, TempSegment, sample};

pub fn snapshot(segment: &Segment) -> Snapshot {
    let file = TempSegment::new(segment);
    SegmentReader::open(&file.path).expect("opens").snapshot().expect("reads")
}

fn stacks(profile: &Profile) -> Vec<String> {
    let names = |site| profile.frames(site).map(|frame| frame.name.as_str()).collect::<Vec<_>>().join(" < ");
    profile.sites.iter().map(names).collect()
}

#[test]
fn the_pools_own_frames_go_and_equal_stacks_become_one_site() {
    let profile = ProfileBuilder::new().build(&snapshot(&sample()));
    assert_eq!(
        stacks(&profile),
        ["[sample+0x3004] < [sample+0x1004]", "[sample+0x2004] < [sample+0x1004]", "[unknown stack]"]
    );
    let parse = &profile.sites[1];
    assert_eq!(parse.in_use, Amount { objects: 16.0, bytes: 21_000.0, samples: 3 });
    let sizes: Vec<(u64, f64)> = parse.held.iter().map(|held| (held.size, held.amount.objects)).collect();
    assert_eq!(sizes, [(1000, 11.0), (2000, 5.0)]);
    assert_eq!(profile.totals().allocated.bytes, 524_288.0 + 4096.0 + 21_000.0 + 128.0);
}

#[test]
fn a_stack_of_nothing_but_the_pool_keeps_its_frames() {
    let mut segment = sample();
    let stack = segment.stack(&[0x7f00_0000_1000, 0x7f00_0000_2000]);
    segment.block(stack, 1 << 30, 1);
    let profile = ProfileBuilder::new().build(&snapshot(&segment));
    assert_eq!(stacks(&profile)[0], "[libpoolscope.so+0xfff] < [libpoolscope.so+0x1fff]");
}

#[test]
fn addresses_outside_of_all_modules_are_shown_as_they_are() {
    let mut segment = Segment::new();
    let stack = segment.stack(&[0, 0x1234, u64::MAX]);
    segment.block(stack, 1, 1);
    let profile = ProfileBuilder::new().build(&snapshot(&segment));
    assert_eq!(stacks(&profile), ["[0x0] < [0x1233] < [0xfffffffffffffffe]"]);
}

/// The bytes in use of each site, largest first.
fn in_use(profile: &Profile) -> Vec<f64> {
    profile.sites.iter().map(|site| site.in_use.bytes).collect()
}

#[test]
fn the_peak_is_what_the_process_wrote_down_unless_more_is_in_use_now() {
    let mut segment = sample();
    let now = ProfileBuilder::new().build(&snapshot(&segment));
    assert_eq!(now.peak.expect("is known").when(), "now");
    assert_eq!(in_use(&now.at_peak().expect("is known")), in_use(&now));

    segment.peak(&[0, 600_000, 1000, 70_000]);
    let later = ProfileBuilder::new().build(&snapshot(&segment));
    let peak = later.peak.expect("is known");
    assert_eq!((peak.bytes, peak.when().as_str()), (671_000.0, "1.5 s after the start"));
    assert_eq!(in_use(&later), in_use(&now));
    let then = later.at_peak().expect("is known");
    assert_eq!(in_use(&then), [670_000.0, 1000.0, 0.0], "two of the stacks are one site");
    assert!(then.sites.iter().all(|site| site.held.is_empty()), "nobody wrote the blocks down");

    segment.peak(&[0, 100, 0, 0]);
    let grown = ProfileBuilder::new().build(&snapshot(&segment));
    assert_eq!(grown.peak.expect("is known").after_ns, None);
    assert_eq!(in_use(&grown.at_peak().expect("is known")), in_use(&now));
}

/// By call path: bytes in use, allocated and at the peak. Equal paths of several profiles are added up.
fn by_path(profiles: &[Profile]) -> BTreeMap<String, [f64; 3]> {
    let mut sums = BTreeMap::<String, [f64; 3]>::new();
    for (profile, site) in profiles.iter().flat_map(|profile| profile.sites.iter().map(move |site| (profile, site))) {
        let figures = [site.in_use.bytes, site.allocated.bytes, site.peak.bytes];
        let sum = sums.entry(profile.path(site)).or_default();
        sum.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    sums
}

#[test]
fn the_parts_of_an_outline_come_to_the_whole() {
    let mut segment = sample();
    // One that is lower than what is in use, and one that is not.
    for peak in [&[0, 100, 0, 0], &[0, 600_000, 1000, 70_000]] {
        segment.peak(peak);
        let whole = ProfileBuilder::new().build(&snapshot(&segment));
        let file = TempSegment::new(&segment);
        let mut reader = SegmentReader::open(&file.path).expect("opens");
        let outline = reader.outline().expect("reads");
        let mut builder = ProfileBuilder::new();
        let parts = (0..outline.stacks().len()).map(|stack| {
            builder.forget_stacks();
            builder.build(&reader.part(&outline, stack..stack + 1).expect("reads"))
        });
        assert_eq!(by_path(&parts.collect::<Vec<_>>()), by_path(&[whole]));
    }
}

#[test]
fn a_peak_that_was_never_written_to_its_end_is_left_out_and_counted() {
    let mut segment = sample();
    segment.peak(&[0, 600_000, 1000, 70_000]);
    segment.header.peak_seq = 3;
    let snapshot = snapshot(&segment);
    assert_eq!((snapshot.peak, snapshot.dropped.torn), (None, 1));
}

/// A dashboard reads ten times a second: what stays the same is not copied.
#[test]
fn readings_share_what_stays_the_same() {
    let mut segment = sample();
    let file = TempSegment::new(&segment);
    let mut reader = SegmentReader::open(&file.path).expect("opens");
    let mut builder = ProfileBuilder::new();
    let mut read = || reader.snapshot().expect("reads");
    let (one, other) = (read(), read());
    assert!(one.stacks.iter().zip(&other.stacks).all(|(a, b)| a.frames.ptr_eq(&b.frames)));
    let (one, other) = (builder.build(&one), builder.build(&other));
    assert!(Arc::ptr_eq(&one.locations, &other.locations));
    assert!(one.sites.iter().zip(&other.sites).all(|(a, b)| Arc::ptr_eq(&a.locations, &b.locations)));
    // A stack that is new leaves the others where they are.
    let stack = segment.stack(&[BIAS + 0x100, BIAS + 0x1005]);
    segment.block(stack, 10, 1);
    let more = builder.build(&snapshot(&segment));
    let known = |site: &Site| one.sites.iter().any(|known| Arc::ptr_eq(&known.locations, &site.locations));
    assert_eq!(more.sites.iter().filter(|site| !known(site)).count(), 1);
}

#[test]
fn a_builder_that_is_kept_gives_the_same_profile_as_a_new_one() {
    let mut kept = ProfileBuilder::new();
    let mut segment = sample();
    for round in 0..4 {
        let now = snapshot(&segment);
        let (one, other) = (kept.build(&now), ProfileBuilder::new().build(&now));
        assert_eq!(one.sites, other.sites, "round {round}");
        assert_eq!(one.locations, other.locations, "round {round}");
        let stack = segment.stack(&[BIAS + 0x100 * round, BIAS + 0x1005]);
        segment.block(stack, 10 + round, 1);
        segment.block(1, 7, 1);
        if round == 1 {
            segment.module("/lib/late.so", 0x1_0000, 0x2_0000, 0x1_0000, &[]);
        }
        if round == 2 {
            segment.header.start_monotonic_ns += 1;
            segment.frames[2] = BIAS + 0x4005;
        }
    }
}
