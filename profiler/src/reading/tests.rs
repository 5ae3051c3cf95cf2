use super::*;
use crate::model::memory::Place;
use crate::model::reach::{Search, Verdict};
use crate::model::snapshot::{Amount, DevicePool, LiveBlock, ProcessInfo, Stack};
use crate::model::testing;
use poolscope_wire::{ClassStats, Total};

fn reading() -> Reading {
    let profile = testing::profile(&[("main;load", 300.0), ("main;serve;parse", 100.0)]);
    let block = |stack, address, verdict| LiveBlock {
        stack,
        address,
        size: 100,
        weight: 1.0,
        time_ns: 5,
        tid: 42,
        verdict,
        ..LiveBlock::default()
    };
    let mut class = ClassStats { block_bytes: 64, slab_bytes: 8192, slab_blocks: 128, ..ClassStats::EMPTY };
    class.threads.allocs = 9;
    class.shared[0] = 7;
    let total = |time_ns| Total { time_ns, in_use: 400, most: 500, most_ns: 1, ..Total::ZERO };
    let stack = |bytes| Stack {
        frames: vec![1, 2].into(),
        allocated: Amount { objects: 1.0, bytes, samples: 1 },
        ..Stack::default()
    };
    let snapshot = Snapshot {
        process: ProcessInfo { pid: 77, exe: "/usr/bin/sample".into(), args: vec!["sample".into()], ..<_>::default() },
        taken_ns: 10,
        classes: vec![class],
        stacks: vec![stack(300.0), stack(100.0)],
        live: vec![block(0, 0x10, Verdict::Direct), block(1, 0x20, Verdict::Indirect(0x10))],
        search: Some(Search { failed: Some("it runs in the hardened mode"), threads: 3, ..Search::default() }),
        devices: vec![DevicePool { place: Place::Device(1), name: "A device".into(), ..DevicePool::default() }],
        history: History { span_ns: 1, totals: vec![total(3), total(4)], began_late: true },
        ..Snapshot::default()
    };
    let children = vec![Child { pid: 78, name: "child".into(), rss: 1 }];
    Reading { snapshot, profile, site_of_stacks: vec![Some(1), Some(0)], children, on_pool: vec![78] }
}

fn bytes(reading: &Reading) -> Vec<u8> {
    let mut bytes = Vec::new();
    reading.write(&mut bytes).expect("is written");
    bytes
}

#[test]
fn a_reading_comes_out_as_it_went_in_but_for_code_addresses() {
    let sent = reading();
    let come = Reading::read(&bytes(&sent)).expect("is a reading");
    let mut wanted = sent.snapshot.clone();
    wanted.stacks.iter_mut().for_each(|stack| stack.frames = crate::model::frames::Frames::default());
    assert_eq!(format!("{:?}", come.snapshot), format!("{wanted:?}"));
    assert_eq!(format!("{:?}", come.profile), format!("{:?}", sent.profile));
    assert_eq!((come.site_of_stacks, come.children, come.on_pool), (sent.site_of_stacks, sent.children, sent.on_pool));
}

#[test]
fn another_version_and_other_bytes_say_so() {
    let mut sent = bytes(&reading());
    assert!(matches!(Reading::read(b"<html>"), Err(ReadingError::NoReading)));
    assert!(matches!(Reading::read(&[b'<'; 100]), Err(ReadingError::NoReading)));
    sent[8] += 1;
    let why = Reading::read(&sent).expect_err("is another version").to_string();
    assert!(why.contains(&format!("version {} (", VERSION + 1)) && why.contains("the same build"), "{why}");
}

#[test]
fn damaged_readings_are_errors_and_never_a_panic() {
    let sent = bytes(&reading());
    for end in 0..sent.len() {
        assert!(Reading::read(&sent[..end]).is_err(), "cut off at {end}");
    }
    for at in 0..sent.len() {
        let mut damaged = sent.clone();
        damaged[at] ^= 0x55;
        let _ = Reading::read(&damaged);
    }
}

#[test]
fn what_names_something_that_there_is_not_is_refused() {
    let refused = |change: fn(&mut Reading)| {
        let mut sent = reading();
        change(&mut sent);
        Reading::read(&bytes(&sent)).expect_err("is refused").to_string()
    };
    assert!(refused(|r| r.profile.sites[0].locations = [99].into()).contains("an address that there is not"));
    assert!(refused(|r| Arc::make_mut(&mut r.profile.locations)[0].module = Some(9)).contains("in no module"));
    assert!(refused(|r| Arc::make_mut(&mut r.profile.locations)[0].frames.clear()).contains("has no name"));
    assert!(refused(|r| r.snapshot.live[0].stack = 2).contains("a block is of no stack"));
    assert!(refused(|r| r.site_of_stacks[0] = Some(2)).contains("a stack is of no call site"));
    assert!(refused(|r| r.site_of_stacks.truncate(1)).contains("differ in number"));
}

#[test]
fn no_text_can_write_to_a_terminal() {
    let mut sent = reading();
    let evil = || "a\x1b[2Jb".to_owned();
    sent.snapshot.process.args = vec![evil()];
    sent.snapshot.devices[0].name = evil();
    sent.profile.thread_names.insert(42, evil());
    sent.children[0].name = evil();
    let frame = &mut Arc::make_mut(&mut sent.profile.locations)[0].frames[0];
    (frame.name, frame.file) = (evil(), Some(evil()));
    let come = Reading::read(&bytes(&sent)).expect("is a reading");
    assert!(!format!("{come:?}").contains("\\u{1b}"), "{come:?}");
}
