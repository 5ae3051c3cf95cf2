//! Memory that nobody uses goes back, also when the program makes no call any more.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use poolscope_e2e::compiler::compile;
use poolscope_e2e::{Pool, Program, Running};

const DELAY: Duration = Duration::from_millis(2000);

fn idle(pool: &Pool) -> PathBuf {
    compile(pool.files(), "idle.c", "idle", &["-O2", "-pthread"])
}

/// The program with a delay of two seconds.
fn start(pool: &Pool, mode: &str) -> Running {
    pool.program(idle(pool)).arg(mode).env("POOLSCOPE_SCAVENGE_MS", "2000").env("POOLSCOPE_GC_MS", "1000").start()
}

/// Resident memory of a process in KiB, as the kernel has it.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there").count()
}

/// The least resident memory until `limit` is reached or `time` is over.
fn falls_to(pid: u32, limit: u64, time: Duration) -> u64 {
    let end = Instant::now() + time;
    loop {
        let now = resident(pid);
        if now <= limit || Instant::now() > end {
            return now;
        }
        sleep(Duration::from_millis(50));
    }
}

fn end(mut program: Running) {
    program.signal(libc::SIGKILL);
    program.wait_until("it was killed", |running| (!is_there(running.pid())).then_some(()));
}

fn is_there(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_freed_heap_falls_under_a_twentieth_of_its_peak_within_twice_the_delay() {
    let pool = Pool::new();
    let mut program = start(&pool, "freed");
    let pid = program.pid();
    program.wait_for_line("PEAK");
    let peak = resident(pid);
    program.send("\n");
    program.wait_for_line("READY");
    let at_once = resident(pid);
    assert!(at_once > peak / 2, "it is to go smoothly: {at_once} of {peak} KiB");
    let left = falls_to(pid, peak / 20, 2 * DELAY);
    println!("{left} of {peak} KiB are left");
    assert!(left <= peak / 20, "{left} of {peak} KiB are left");
    // With nothing left to do the thread ends.
    program.wait_until("the scavenger ended", |running| (threads(running.pid()) == 1).then_some(()));
    end(program);
}

#[test]
fn a_forked_child_has_a_scavenger_of_its_own() {
    let pool = Pool::new();
    let mut program = start(&pool, "freed-then-fork");
    program.wait_for_line("PEAK");
    program.send("\n");
    let child = program.wait_until("the child is there", |running| {
        let pid = running.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.trim().parse::<u32>().ok()
    });
    program
        .wait_until("the child has its peak", |running| (running.stdout().matches("PEAK").count() >= 2).then_some(()));
    let peak = resident(child);
    program.send("\n");
    program.wait_for_line("READY");
    let left = falls_to(child, peak / 20, 2 * DELAY);
    assert!(left <= peak / 20, "{left} of {peak} KiB are left");
    Program::new("kill").arg("-KILL").arg(child.to_string()).run().silent_success();
    end(program);
}

#[test]
fn threads_that_sleep_lose_their_caches() {
    let pool = Pool::new();
    let mut program = start(&pool, "threads");
    program.wait_for_line("READY");
    let pid = program.pid();
    let before = resident(pid);
    // 32 threads with 400 blocks of 8 KiB: 100 MiB, of which each may cache 4.
    assert!(before > 60 << 10, "{before} KiB: there was nothing to collect");
    let left = falls_to(pid, before / 8, 3 * DELAY);
    println!("{left} of {before} KiB are left");
    assert!(left <= before / 8, "{left} of {before} KiB are left");
    end(program);
}

#[test]
fn twenty_thousand_short_threads_leave_no_growth() {
    let pool = Pool::new();
    let mut program = start(&pool, "short-threads");
    program.wait_for_line("ROUND");
    let first = resident(program.pid());
    program.send("\n");
    program.wait_until("the second round", |running| (running.stdout().matches("ROUND").count() >= 2).then_some(()));
    let second = resident(program.pid());
    program.send("\n");
    program.finish().silent_success();
    println!("{first} and {second} KiB");
    assert!(second <= first + 1024, "from {first} to {second} KiB");
}

#[test]
fn memory_is_kept_if_it_is_never_to_go_and_gone_at_once_without_a_delay() {
    let pool = Pool::new();
    for (delay, kept) in [("-1", true), ("0", false)] {
        let program = pool.program(idle(&pool)).arg("freed").env("POOLSCOPE_SCAVENGE_MS", delay);
        let mut program = program.env("POOLSCOPE_GC_MS", "-1").start();
        program.wait_for_line("PEAK");
        let peak = resident(program.pid());
        program.send("\n");
        program.wait_for_line("READY");
        sleep(Duration::from_millis(300));
        let left = resident(program.pid());
        assert_eq!(threads(program.pid()), 1);
        assert!(if kept { left > peak / 10 * 9 } else { left < peak / 4 }, "{delay}: {left} of {peak} KiB are left");
        end(program);
    }
}
