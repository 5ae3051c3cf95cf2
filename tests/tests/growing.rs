//! A sampled buffer that grows in place, step by step: its record is not written with each step, and is right when it
//! is read.

use std::fs;
use std::path::PathBuf;

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::pprof::Raw;
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

/// The program whose buffers grow.
fn grown(pool: &Pool) -> PathBuf {
    compile_with_headers(pool.files(), "tests/csrc/grown.c", "grown", &["-O1", "-g", "-fno-builtin"])
}

/// What a profile of the process says that `main` and what it called have.
fn in_profile(pool: &Pool, pid: u32, figure: &str) -> f64 {
    Raw::of_process(pool, pid).total_under("main", figure) as f64
}

/// The buffer that eats a program's memory: small when it was drawn, and large when somebody asks.
#[test]
fn a_buffer_that_grows_from_little_has_its_size_in_the_profile_of_the_killed_process() {
    let pool = Pool::new();
    let program = grown(&pool);
    let truth = pool.files().join("truth");
    // What is sampled, and when, is different each time.
    for _ in 0..4 {
        let _ = fs::remove_file(&truth);
        let mut running = pool.program(&program).arg("one").arg(&truth).env("POOLSCOPE_KEEP", "1").start();
        let has = || fs::read(&truth).ok()?.try_into().ok().map(u64::from_ne_bytes);
        running.wait_until("so much that it was sampled", |_| has().filter(|&bytes| bytes > 100_000_000));
        running.signal(libc::SIGKILL);
        let pid = running.pid();
        running.finish();
        let bytes = has().expect("it has said") as f64;
        let said = in_profile(&pool, pid, "inuse_space/bytes");
        assert!((0.98 * bytes..=1.001 * bytes).contains(&said), "{said} of {bytes}");
    }
}

/// One in four to one in nine of them is sampled, and for how many it stands changes while it grows.
#[test]
fn many_buffers_that_grow_in_place_have_their_bytes_and_number_in_the_profile() {
    let pool = Pool::new();
    const COUNT: u32 = 5000;
    let mut running =
        pool.program(grown(&pool)).args(["many", &COUNT.to_string()]).env("POOLSCOPE_PERIOD", "2M").start();
    let bytes = told(&mut running, "grown") as f64;
    // Each is sampled by 1 - exp(-size / period) at least: the standard error is below 3 %.
    for (figure, truth) in [("inuse_space/bytes", bytes), ("inuse_objects/count", f64::from(COUNT))] {
        let said = in_profile(&pool, running.pid(), figure);
        println!("{figure}: {said} of {truth}");
        assert!((said / truth - 1.0).abs() < 0.13, "{figure}: {said} of {truth}");
    }
    running.send("\n");
    running.finish();
}

/// Each of them comes before a budget that its thread has not needed yet. It is sampled with a chance of 44 % while it is
/// small, so that the standard error of 1,024 is 4 %.
#[test]
fn blocks_that_grow_a_little_in_threads_that_have_few_have_their_bytes_in_the_profile() {
    let pool = Pool::new();
    // Where the page heap places them, all have room behind them or none has.
    let grew_in_place = (0..20).find(|_| {
        let mut running = pool.program(grown(&pool)).args(["threads", "16"]).start();
        let bytes = told(&mut running, "grown") as f64;
        let moved = told(&mut running, "moved");
        let said = Raw::of_process(&pool, running.pid()).total_under("keep", "inuse_space/bytes") as f64;
        println!("{said} of {bytes}, {moved} moved");
        assert!((said / bytes - 1.0).abs() < 0.18, "{said} of {bytes}, {moved} moved");
        running.send("\n");
        running.finish();
        moved < 256
    });
    assert!(grew_in_place.is_some(), "most of them moved in each of 20 runs");
}
