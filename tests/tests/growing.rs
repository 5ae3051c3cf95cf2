//! A sampled buffer that grows in place, step by step: its record is not written with each step, and is right when it
//! is read.

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Pool, Running};
use poolscope_wire::LiveRecord;

/// Each block of this size is sampled, and stands for itself.
const FIRST: u64 = 32 << 20;

/// Waits until the program has said this, and returns the bytes that it has.
fn told(running: &mut Running, what: &str) -> u64 {
    let said = |running: &Running| {
        let stdout = running.stdout();
        let line = stdout.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(' ').map(str::to_owned));
        line.and_then(|bytes| bytes.parse().ok())
    };
    running.wait_until(what, said)
}

/// Waits until the segment has a record of a block of so many bytes.
fn recorded(pool: &Pool, running: &mut Running, bytes: u64) -> LiveRecord {
    let what = format!("a record of {bytes} bytes");
    running.wait_until(&what, |running| {
        pool.segment(running.pid())?.live().into_iter().find(|record| record.size == bytes)
    })
}

#[test]
fn a_sampled_block_that_grows_by_small_steps_is_recorded_now_and_then_and_right_when_it_is_read() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/growing.c", "growing", &["-O2", "-fno-builtin"]);
    let mut running = pool.program(&program).arg(FIRST.to_string()).env("POOLSCOPE_PERIOD", "512K").start();
    let in_use = |running: &Running| pool.segment(running.pid()).expect("it has its segment").in_use_bytes();

    let begun = told(&mut running, "begun");
    recorded(&pool, &mut running, begun);
    let others = in_use(&running) - begun;
    running.send("\n");

    let grown = told(&mut running, "grown");
    // Whoever reads it now, or finds it after the process was killed.
    let left =
        pool.segment(running.pid()).expect("it has its segment").live().into_iter().map(|record| record.size).max();
    assert!(left.is_some_and(|bytes| bytes > grown - grown / 64), "{left:?} of {grown}");
    let record = recorded(&pool, &mut running, grown);
    // Each change is two steps of the number.
    let changes = record.seq / 2;
    println!("{changes} changes of the record in 10,000 steps");
    assert!(changes < 1000, "{changes} changes of the record in 10,000 steps");
    assert_eq!(in_use(&running) - others, grown, "its call site's total");
    running.send("\n");

    let shrunk = told(&mut running, "shrunk");
    recorded(&pool, &mut running, shrunk);
    assert_eq!(in_use(&running) - others, shrunk, "its call site's total");
    let peak = pool.segment(running.pid()).expect("it has its segment").header.peak_bytes;
    assert_eq!(peak - others, grown, "the peak is what it was before it shrank");
    running.send("\n");

    told(&mut running, "freed");
    running.wait_until("its record has gone", |running| (in_use(running) == others).then_some(()));
    running.send("\n");
    running.finish().silent_success();
}
