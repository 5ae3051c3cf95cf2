//! The sampler draws what it says: a Poisson process over the allocated bytes.
//!
//! `csrc/sampling_stats.c` runs four workloads, each of millions of blocks, and says how many samples are to be
//! expected: a block that takes `c` bytes is sampled with `p = 1 - exp(-c / T)`, so `n` such blocks give `n * p`
//! samples. The count is a sum of independent draws with the variance `sum p (1 - p)`, which for `c` far below `T` is
//! the expectation itself: sigma is its square root.
//!
//! The seeds are random, so a right sampler is now and then far off. A count within 3 sigma passes (997 of 1000), one
//! past 4 fails (1 of 16,000 of a right sampler). Between the two it is asked for three times as many samples, whose
//! count must be within 3.5 sigma, which is 2 % (1 of 2,000 of a right one is not). One that is off by 3 % gives 3 sigma
//! with 10,000 samples and 5.2 with 30,000: it fails nearly every second time, and one that is off by 5 % always.
//!
//! These loops do nothing but allocate, so that the governor (`POOLSCOPE_SAMPLE_RATE`) would hold their samples back;
//! the last test has it do that.

use std::time::{Duration, Instant};

use poolscope_e2e::compiler::{self, compile, compile_with_headers};
use poolscope_e2e::pprof::Raw;
use poolscope_e2e::{Pool, Running};

const PERIOD: u64 = 512 << 10;
/// With a sample every half MiB, 5000 MiB give 10,000: sigma is one per cent.
const MIB: u64 = 5000;

/// Runs one workload for so many MiB and returns by how many sigma the number of samples was off.
fn deviation(pool: &Pool, program: &mut Running, answers: &mut usize, workload: usize, mib: u64) -> f64 {
    let samples = || pool.segment(program.pid()).expect("the program has its segment").samples();
    let before = samples();
    program.send(&format!("{workload} {mib}\n"));
    let nth = *answers;
    *answers += 1;
    let expected: f64 = program.wait_until("it was done", |running| {
        let out = running.stdout();
        let whole = &out[..out.rfind('\n').map_or(0, |end| end + 1)];
        let mut done = whole.lines().filter_map(|line| line.strip_prefix("DONE "));
        done.nth(nth).map(|number| number.parse().expect("a number follows DONE"))
    });
    let taken = pool.segment(program.pid()).expect("the program has its segment").samples() - before;
    let sigma = expected.sqrt();
    let off = (taken as f64 - expected) / sigma;
    println!("workload {workload}: {taken} samples, {expected:.1} expected, {off:+.2} sigma");
    off
}

fn workload(number: usize) {
    let pool = Pool::new();
    let program = compile(pool.files(), "sampling_stats.c", "sampling_stats", &["-O2"]);
    let program = pool.program(program).arg(PERIOD.to_string()).env("POOLSCOPE_PERIOD", PERIOD.to_string());
    let mut program = program.env("POOLSCOPE_SAMPLE_RATE", "0").start();
    program.wait_for_line("READY");
    let mut answers = 0;
    let first = deviation(&pool, &mut program, &mut answers, number, MIB);
    assert!(first.abs() <= 4.0, "workload {number}: {first:+.2} sigma");
    if first.abs() > 3.0 {
        let more = deviation(&pool, &mut program, &mut answers, number, 3 * MIB);
        assert!(more.abs() <= 3.5, "workload {number}: {first:+.2}, and {more:+.2} sigma of three times as many");
    }
    program.finish().silent_success();
}

#[test]
fn one_block_of_64_bytes_at_a_time() {
    workload(0);
}

#[test]
fn random_sizes_with_4096_live() {
    workload(1);
}

#[test]
fn one_tiny_block_at_a_time() {
    workload(2);
}

#[test]
fn nearly_equal_sizes_with_4096_live() {
    workload(3);
}

/// A hot loop of so many MiB: its samples, the bytes that they stand for, and how long it took.
fn hot_loop(pool: &Pool, rate: u64) -> (u64, u64, Duration) {
    let program = compile(pool.files(), "sampling_stats.c", "sampling_stats", &["-O2"]);
    let program = pool.program(program).arg(PERIOD.to_string()).env("POOLSCOPE_PERIOD", PERIOD.to_string());
    let mut program = program.env("POOLSCOPE_SAMPLE_RATE", rate.to_string()).start();
    program.wait_for_line("READY");
    let begun = Instant::now();
    program.send(&format!("0 {MIB}\n"));
    program.wait_until("it was done", |running| running.stdout().contains("DONE").then_some(()));
    let took = begun.elapsed();
    let segment = pool.segment(program.pid()).expect("the program has its segment");
    let figures = (segment.samples(), segment.allocated_bytes(), took);
    program.finish().silent_success();
    figures
}

/// The governor raises the period of a hot loop, and the samples' weights with it. It goes by the clock: how many
/// samples a second are few depends on what the machine does besides, so a loop without a governor is asked first.
#[test]
fn fewer_samples_of_a_hot_loop_stand_for_as_many_bytes() {
    let pool = Pool::new();
    let (all, _, took) = hot_loop(&pool, 0);
    assert!((9000..11_000).contains(&all), "{all}");
    // On a machine that does nothing else, 5000 MiB take half a second, and this is 1,500. No thread gets less than 256.
    let rate = ((all as f64 / took.as_secs_f64() / 13.0) as u64).clamp(256, 1500);
    let (samples, estimate, took) = hot_loop(&pool, rate);
    let allocated = (MIB << 20) as f64;
    println!("{samples} samples at {rate} a second in {took:?}, {:+.1} %", (estimate as f64 / allocated - 1.0) * 100.0);
    // The first thousand pass, then those of the time that it took; the period that keeps the rate is found by some.
    let most = 1024.0 + 1.5 * rate as f64 * took.as_secs_f64() + 100.0;
    assert!((1000.0..most.min(7000.0)).contains(&(samples as f64)), "{samples} at {rate} a second in {took:?}");
    // Some 800 that came later stand for nine tenths of it: the standard error is 4 %.
    assert!((estimate as f64 / allocated - 1.0).abs() < 0.2, "{estimate} of {allocated}");
}

/// The samples that there may be were divided among the threads, of which most programs have some that only wait.
#[test]
fn one_thread_that_allocates_among_many_that_wait_has_the_samples_of_all() {
    let pool = Pool::new();
    let program =
        compile_with_headers(pool.files(), "tests/csrc/one_of_many.c", "one_of_many", &["-O1", "-fno-builtin"]);
    let mut running = pool.program(program).start();
    running.wait_for_line("ready");
    // 8 GB are 15,000 samples at the plain period, and on a slow machine they pass. A thousand pass at once anywhere; of a
    // twentieth of that 256 did.
    let samples = pool.segment(running.pid()).expect("the program has its segment").samples();
    assert!(samples >= 1000, "{samples}");
    running.send("\n");
    running.finish().silent_success();
}

#[test]
fn large_blocks_that_are_kept_beside_a_hot_loop_of_large_blocks_are_in_the_profile() {
    // Of another doubling, of the same one, and of the same length. A block of 1.5 MB is sampled with a chance of 94 %,
    // one of a mebibyte with 86 %: the standard errors of 41 are 4 and 6 %.
    for (hot, kept) in [(256 << 10, 1_500_000), (1_100_000, 1_500_000), (1 << 20, 1 << 20)] {
        let pool = Pool::new();
        let program =
            compile_with_headers(pool.files(), "tests/csrc/hot_beside.c", "hot_beside", &["-O1", "-g", "-fno-builtin"]);
        let mut running = pool.program(program).args([hot.to_string(), kept.to_string()]).start();
        let truth = running.wait_until("all are allocated", |running| {
            running.stdout().trim_end().strip_prefix("kept ")?.parse::<f64>().ok()
        });
        let said = Raw::of_process(&pool, running.pid()).total_under("keep", "inuse_space/bytes") as f64;
        println!("beside a loop of {hot}: {said} of {truth}");
        assert!((said / truth - 1.0).abs() < 0.32, "beside a loop of {hot}: {said} of {truth}");
        running.send("\n");
        running.finish().silent_success();
    }
}

/// With the same draws in each, the sum over the workers of a server was off as far as each of them.
#[test]
fn forked_children_that_do_the_same_have_samples_of_their_own() {
    let pool = Pool::new();
    let flags = ["-O1", "-g", "-fno-builtin"];
    let program = compile_with_headers(pool.files(), "tests/csrc/forked_workers.c", "forked_workers", &flags);
    let mut running = pool.program(program).start();
    let workers: Vec<u32> = running.wait_until("all have allocated", |running| {
        let workers = running.stdout().trim_end().strip_prefix("workers ")?.to_owned();
        workers.split(' ').map(|pid| pid.parse().ok()).collect()
    });
    let said = |pid: &u32| Raw::of_process(&pool, *pid).total_under("keep", "inuse_space/bytes");
    let said: Vec<_> = workers.iter().map(said).collect();
    println!("{said:?} of 20,000,000");
    assert!(said.iter().any(|bytes| *bytes != said[0]), "{said:?}");
    // The standard error of one is 16 %.
    assert!(said.iter().all(|bytes| (*bytes as f64 / 2e7 - 1.0).abs() < 0.8), "{said:?}");
    running.finish().silent_success();
}

/// A list that a sample cuts mixes the order in which blocks are passed on, and with it the time that each of them
/// takes: a slab whose blocks are in two batches is freed by two threads. Where nothing put lists in order, 600 to 700 of
/// 1000 blocks of 64 bytes did not lie behind the one before. Where slabs were taken up while they came back, and lists
/// looked at for eight links, it was 37 to 64, and mostly 74 to 90 of 256 bytes, and passing them from processor to
/// processor took half as long again. Where each slab ends, 2 and 8 don't in any case.
#[test]
fn samples_leave_the_blocks_of_a_passing_thread_in_order() {
    let pool = Pool::new();
    let flags = ["-O2", "-fno-builtin", "-pthread"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/passed_on.c", "passed_on", &flags);
    for (size, period) in [(64, "1T"), (64, "512K"), (256, "512K")] {
        let run = pool.program(&program).args([2, size, 20_000].map(|n| n.to_string()));
        let run = run.env("POOLSCOPE_PERIOD", period).run().silent_success();
        let jumps: u32 = run.stdout.trim().parse().expect("a number");
        println!("{size} bytes, period {period}: {jumps} of 1000 blocks do not lie behind the one before");
        assert!(jumps <= 25, "{size} bytes, period {period}: {jumps} of 1000 blocks do not lie behind the one before");
    }
}

/// What the kernel says that a process has of its own, in KiB: private memory, and its segment.
fn own_memory(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the program runs");
    let of = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    of("Pss_Anon:") + of("Pss_Shmem:")
}

/// Tables of samples are as large as what there is in them. Tables for 65,536 stacks and 32,768 return addresses had a
/// page for nearly each of the first ones.
#[test]
fn samples_take_a_small_program_little_memory() {
    let pool = Pool::new();
    let program = compile(pool.files(), "../../tests/csrc/few_samples.c", "few_samples", &["-O2", "-fno-builtin"]);
    let memory = |period: &str| {
        let program = pool.program(&program).arg("4000").env("POOLSCOPE_PERIOD", period);
        let mut running = program.start();
        running.wait_for_line("READY");
        let (memory, segment) = (own_memory(running.pid()), pool.segment(running.pid()).expect("it has its segment"));
        let samples = segment.samples();
        running.finish().silent_success();
        (memory, samples)
    };
    let ((without, none), (with, samples)) = (memory("1T"), memory("512K"));
    println!("{without} KiB without samples, {with} KiB with {samples}");
    assert!(none == 0 && samples >= 30, "{none} and {samples} samples");
    assert!(with <= without + 256, "{without} KiB without samples, {with} KiB with {samples}");
}
