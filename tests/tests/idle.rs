//! Memory that nobody uses goes back, also when the program makes no call any more.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use poolscope_e2e::compiler::{compile, compile_linked, compile_with_headers};
use poolscope_e2e::{Pool, Program, Running};

const DELAY: Duration = Duration::from_millis(2000);

fn idle(pool: &Pool) -> PathBuf {
    compile(pool.files(), "idle.c", "idle", &["-O2", "-fno-builtin", "-pthread"])
}

/// A program with a delay of two seconds.
fn soon_idle(pool: &Pool, program: PathBuf, mode: &str) -> Program {
    pool.program(program).arg(mode).env("POOLSCOPE_SCAVENGE_MS", "2000").env("POOLSCOPE_GC_MS", "1000")
}

/// The same with caches that may hold more than a program of its size would have.
fn soon_idle_with_caches(pool: &Pool, program: PathBuf, mode: &str) -> Program {
    soon_idle(pool, program, mode).env("POOLSCOPE_THREAD_CACHE", "256M")
}

fn start(pool: &Pool, mode: &str) -> Running {
    soon_idle(pool, idle(pool), mode).start()
}

/// Resident memory of a process in KiB, as the kernel has it.
fn resident(pid: u32) -> u64 {
    status(pid, "VmRSS:")
}

/// The same without pages of files, which are its segment, and those of libraries that it happened to touch.
fn anonymous(pid: u32) -> u64 {
    status(pid, "RssAnon:")
}

fn status(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is there").count()
}

/// The least resident memory until `limit` is reached or `time` is over.
fn falls_to(pid: u32, limit: u64, time: Duration) -> u64 {
    figure_falls_to(resident, pid, limit, time)
}

fn figure_falls_to(figure: fn(u32) -> u64, pid: u32, limit: u64, time: Duration) -> u64 {
    let end = Instant::now() + time;
    loop {
        let now = figure(pid);
        if now <= limit || Instant::now() > end {
            return now;
        }
        sleep(Duration::from_millis(50));
    }
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
}

#[test]
fn memory_of_sampled_blocks_goes_back_as_any_other() {
    let pool = Pool::new();
    let program = pool.program(idle(&pool)).arg("freed-small").env("POOLSCOPE_PERIOD", "1");
    let mut program = program.env("POOLSCOPE_SCAVENGE_MS", "2000").start();
    let pid = program.pid();
    program.wait_for_line("PEAK");
    let peak = resident(pid);
    program.send("\n");
    program.wait_for_line("READY");
    // 62 MiB of blocks. What was noted of them stays: 2 MiB.
    let left = falls_to(pid, peak / 10, 5 * DELAY);
    println!("{left} of {peak} KiB are left");
    assert!(left <= peak / 10, "{left} of {peak} KiB are left");
    assert_no_wake_ups(&mut program);
}

/// What a program may have above what it began with, when all but a few of its blocks are gone,
/// and what was noted of them.
const NOTES: u64 = 10 << 10;
/// What the hardened mode's quarantine keeps.
const QUARANTINE: u64 = 16 << 10;

/// Blocks of a function that are in use, by the profile that the command writes.
fn in_use(pool: &Pool, pid: u32, function: &str) -> u64 {
    poolscope_e2e::pprof::Raw::of_process(pool, pid).total_under(function, "inuse_objects/count")
}

/// Memory falls to `limit` KiB; until then, and afterwards, readers see these blocks and no others.
fn falls_while_read(pool: &Pool, pid: u32, limit: u64, stay: u64) -> u64 {
    let end = Instant::now() + 10 * DELAY;
    loop {
        let now = resident(pid);
        assert_eq!(in_use(pool, pid, "hold"), stay);
        if now <= limit || Instant::now() > end {
            return now;
        }
    }
}

#[test]
fn what_was_noted_of_blocks_goes_with_them() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/records.c", "records", &["-O1", "-g"]);
    for (hardened, allowed) in [("0", NOTES), ("1", NOTES + QUARANTINE)] {
        let program = pool.program(&program).env("POOLSCOPE_PERIOD", "1").env("POOLSCOPE_HARDENED", hardened);
        let mut program = program.env("POOLSCOPE_SCAVENGE_MS", "2000").limit(180).start();
        let pid = program.pid();
        program.wait_for_line("BASE");
        let base = resident(pid);
        program.send("\n");
        program.wait_for_line("PEAK");
        let peak = resident(pid);
        assert_eq!(in_use(&pool, pid, "hold"), 400_000);
        assert!(peak > base + (60 << 10), "from {base} to {peak} KiB: there was little to give back");
        program.send("\n");
        program.wait_for_line("FREED");
        let left = falls_while_read(&pool, pid, base + allowed, 20);
        println!("hardened {hardened}: {left} of {peak} KiB are left, {base} at first");
        assert!(left <= base + allowed, "hardened {hardened}: {left} of {peak} KiB are left, {base} at first");
        assert_no_wake_ups(&mut program);
        // What is gone is had again.
        program.send("\n");
        program.wait_for_line("AGAIN");
        assert_eq!(in_use(&pool, pid, "hold"), 100_000 + 15);
        program.send("\n");
        program.finish().silent_success();
    }
}

#[test]
fn redis_is_small_again_after_its_keys_are_gone() {
    let pool = Pool::new();
    let dir = pool.files().path().to_str().unwrap().to_owned();
    for (period, hardened, allowed) in [("512K", "0", NOTES), ("1", "0", NOTES), ("512K", "1", NOTES + QUARANTINE)] {
        let socket = format!("{dir}/{period}-{hardened}.sock");
        let options =
            ["--port", "0", "--unixsocket", &socket, "--dir", &dir, "--save", "", "--enable-debug-command", "yes"];
        let server = pool.program("redis-server").args(options).env("POOLSCOPE_PERIOD", period);
        let server = server.env("POOLSCOPE_HARDENED", hardened).env("POOLSCOPE_SCAVENGE_MS", "2000");
        let mut server = server.limit(180).start();
        let is_up = |running: &Running| running.stdout().contains("eady to accept connections").then_some(());
        server.wait_until("it was ready", is_up);
        let client = |args: &[&str]| Program::new("redis-cli").args(["-s", &socket]).args(args).run().success().stdout;
        let base = resident(server.pid());
        client(&["DEBUG", "POPULATE", "200000", "key", "60"]);
        let peak = resident(server.pid());
        assert!(peak > base + (20 << 10), "from {base} to {peak} KiB: there was little to give back");
        client(&["FLUSHALL"]);
        let left = falls_to(server.pid(), base + allowed, 10 * DELAY);
        println!("period {period}, hardened {hardened}: {left} of {peak} KiB are left, {base} at first");
        assert!(left <= base + allowed, "{period} {hardened}: {left} of {peak} KiB are left, {base} at first");
        client(&["DEBUG", "POPULATE", "1000", "again", "60"]);
        assert_eq!(client(&["DBSIZE"]).trim(), "1000");
        client(&["SHUTDOWN", "NOSAVE"]);
        server.finish().success();
    }
}

#[test]
fn where_no_thread_could_be_started_it_is_tried_again() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/limits.c", "limits", &["-O1", "-fno-builtin"]);
    let run = pool.program(&program).arg("threads").env("POOLSCOPE_SCAVENGE_MS", "1000").run();
    assert_eq!(run.stdout, "done\n", "{}", run.report());
}

/// Closing the fast path anew at each call, as long as there was none, took 50 us a call.
#[test]
fn calls_stay_cheap_where_no_thread_can_be_started() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/limits.c", "limits", &["-O1", "-fno-builtin"]);
    for who in ["barriers", "barriers-vfork"] {
        let run = pool.program(&program).arg(who).run();
        assert_eq!(run.stdout, "done\n", "{who}: {}", run.report());
    }
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
}

/// Runs a program that fills caches and sleeps, until it has less than `limit` KiB: what it settled at,
/// and the most it had.
///
/// No block is sampled. How many threads happen to take their samples at once decides how many read unwind tables, each
/// into a cache of its own, and what they have read stays: 430 KiB with the first one's.
/// That is no memory of an idle cache.
fn settles(program: Program, limit: u64) -> (u64, u64) {
    let mut program = program.env("POOLSCOPE_PERIOD", "1T").start();
    program.wait_for_line("READY");
    let pid = program.pid();
    let before = anonymous(pid);
    let left = figure_falls_to(anonymous, pid, limit, 5 * DELAY);
    assert_no_wake_ups(&mut program);
    (left.min(anonymous(pid)), before)
}

/// Times that each thread of a process was put to sleep or interrupted, by its id.
fn switches(pid: u32) -> Option<Vec<(String, Vec<String>)>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let count = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?;
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let lines = status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned).collect();
        Some((task.file_name().to_string_lossy().into_owned(), lines))
    };
    let mut counts: Vec<_> = tasks.map(count).collect::<Option<_>>()?;
    counts.sort();
    Some(counts)
}

/// Fails unless the program comes to a rest in which no thread of it wakes up.
#[track_caller]
fn assert_no_wake_ups(program: &mut Running) {
    let mut last = None;
    for _ in 0..15 {
        let now = switches(program.pid()).filter(|counts| !counts.is_empty());
        if now.is_some() && now == last {
            return;
        }
        last = now;
        sleep(Duration::from_secs(2));
    }
    panic!("it wakes up for ever: {last:?}");
}

/// What caches may leave behind in a whole process. One thread's cache alone has more.
const LEAVINGS: u64 = 1024;

#[test]
fn idle_memory_goes_back_after_children_of_vfork_freed_some_or_died() {
    let pool = Pool::new();
    let program = compile(pool.files(), "../../tests/csrc/vforked.c", "vforked", &["-O2", "-fno-builtin"]);
    for how in ["exec", "exit", "die"] {
        let output = pool.program(&program).arg(how).env("POOLSCOPE_SCAVENGE_MS", "1000").limit(60).run();
        assert_eq!(output.stdout, "FELL\nFORKED\n", "{how}: {}", output.report());
    }
}

/// Such a child took the thread that its parent had for its own, and gave nothing back.
#[test]
fn what_a_child_of_the_bare_system_call_frees_goes_back() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/raw_child.c", "raw_child", &["-O1", "-fno-builtin"]);
    let sizes = ["100", "1000", "10000", "100000", "1000000"];
    let output = pool.program(&program).args(sizes).run().silent_success();
    let kept: Vec<u64> = output
        .stdout
        .lines()
        .map(|line| line.split(' ').nth(1).and_then(|kib| kib.parse().ok()).expect("a size and what stays"))
        .collect();
    // Of 300 MB each.
    assert!(kept.len() == sizes.len() && kept.iter().all(|&kib| kib < 160 << 10), "{}", output.stdout);
}

#[test]
fn threads_that_end_by_the_bare_system_call_leave_no_cache_and_no_word_behind() {
    let pool = Pool::new();
    let flags = ["-O2", "-fno-builtin"];
    let source = "tests/csrc/raw_exit.c";
    let program = compile_with_headers(pool.files(), source, "raw_exit", &flags);
    // Who unmaps the stack: the thread itself before its end, another one, or nobody.
    for whose in ["own", "other", "kept"] {
        // The C library has the kernel write to a thread's memory whenever it was interrupted, which would end the
        // program between the unmapping of that memory and the thread's end.
        let program = soon_idle_with_caches(&pool, program.clone(), whose);
        let program = program.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        let mut program = program.start();
        program.wait_for_line("READY");
        let pid = program.pid();
        let recording = pool.files().join(format!("{whose}.rec"));
        let record =
            pool.poolscope().args(["record", &pid.to_string(), "--duration", "0.2", "-o"]).arg(recording).run();
        let ended = program.wait_for_line("ENDED");
        let before: u64 = ended.trim_start_matches("ENDED ").parse().expect("a number");
        // Eight caches of 3 MiB.
        let left = falls_to(pid, before / 5, 5 * DELAY);
        println!("{whose}: {left} of {before} KiB are left");
        program.assert_runs(&record.report());
        assert!(left <= before / 5, "{whose}: {left} of {before} KiB are left");
        assert_no_wake_ups(&mut program);
    }
}

#[test]
fn threads_that_sleep_lose_their_caches() {
    let pool = Pool::new();
    // 32 threads with 400 blocks of 8 KiB, beside those that never had so many.
    let (empty, _) = settles(soon_idle(&pool, idle(&pool), "empty-threads"), u64::MAX);
    let (left, before) = settles(soon_idle_with_caches(&pool, idle(&pool), "threads"), empty + LEAVINGS);
    println!("{left} of {before} KiB are left, without caches {empty}");
    assert!(before > empty + (60 << 10), "{before} KiB: there was nothing to collect");
    assert!(left <= empty + LEAVINGS, "{left} of {before} KiB are left, without caches {empty}");
}

#[test]
fn a_cache_is_collected_however_its_thread_sleeps() {
    let pool = Pool::new();
    let sleepers = compile(pool.files(), "../../tests/csrc/sleepers.c", "sleepers", &["-O2", "-fno-builtin"]);
    let (empty, _) = settles(soon_idle(&pool, sleepers.clone(), "empty"), u64::MAX);
    let (left, before) = settles(soon_idle_with_caches(&pool, sleepers, "full"), empty + LEAVINGS);
    println!("{left} of {before} KiB are left, without caches {empty}");
    assert!(before > empty + (15 << 10), "{before} KiB: there was nothing to collect");
    assert!(left <= empty + LEAVINGS, "{left} of {before} KiB are left, without caches {empty}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_cache_of_a_thread_that_was_interrupted_in_the_fast_path_is_its_own() {
    let pool = Pool::new();
    let flags = ["-O2", "-mno-red-zone", "-fno-builtin"];
    let interrupted = compile(pool.files(), "../../tests/csrc/interrupted.c", "interrupted", &flags);
    for (call, size, how, least) in [
        ("malloc", "64", "resethand", 10),
        ("malloc", "4096", "default", 20),
        ("free", "64", "default", 18),
        ("free", "4096", "resethand", 18),
    ] {
        let program = pool.program(&interrupted).args([call, size, how]);
        let output = program.env("POOLSCOPE_SCAVENGE_MS", "400").env("POOLSCOPE_GC_MS", "200").run().success();
        let places: u32 =
            output.stdout.lines().find_map(|line| line.strip_prefix("INTERRUPTED ")?.parse().ok()).unwrap();
        assert!(places >= least, "{call} of {size} bytes was interrupted at {places} instructions");
        assert!(output.stdout.contains("GOOD"), "{call} {size} {how}: {}", output.report());
    }
}

#[test]
fn twenty_thousand_short_threads_leave_no_growth() {
    let pool = Pool::new();
    let mut program = start(&pool, "short-threads");
    // It asks for what is free to go back first: how much that is hangs on how many threads ran at once.
    program.wait_for_line("ROUND");
    let first = anonymous(program.pid());
    program.send("\n");
    program.wait_until("the second round", |running| (running.stdout().matches("ROUND").count() >= 2).then_some(()));
    let second = anonymous(program.pid());
    program.send("\n");
    program.finish().silent_success();
    println!("{first} and {second} KiB");
    assert!(second <= first + 256, "from {first} to {second} KiB");
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
        let threads_left = |program: &Running| (threads(program.pid()) == 1).then_some(());
        program.wait_until("the pool's thread ends, which has nothing to do", threads_left);
        assert!(if kept { left > peak / 10 * 9 } else { left < peak / 4 }, "{delay}: {left} of {peak} KiB are left");
    }
}

#[test]
fn memory_that_a_program_frees_and_takes_in_turns_stays_with_it() {
    let pool = Pool::new();
    let turns = compile_with_headers(pool.files(), "tests/csrc/turns.c", "turns", &["-O1", "-fno-builtin"]);
    let one_size = ["1000", "16384", "20000", "65536", "100000"].map(|size| (size, 0.01));
    let others = [("of-all-sizes", 0.001), ("of-growing-sizes", 0.001), ("in-waves", 0.1)];
    for (blocks, most) in one_size.into_iter().chain(others) {
        let faults = pool.program(turns.clone()).arg(blocks).run().success();
        let faults: f64 = faults.stdout.trim().parse().expect("a number");
        println!("{blocks}: {faults} faults a block");
        assert!(faults < most, "{blocks}: {faults} faults a block");
    }
}

#[test]
fn a_program_whose_last_thread_ends_by_the_bare_system_call_ends() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/bare_exit.c", "bare_exit", &["-O1"]);
    // Where every block is recorded, the pool's thread may listen by the time that the other thread ends.
    for (args, period) in [(&[][..], "512K"), (&[], "1"), (&["with-another-thread"], "512K")] {
        let output = pool.program(&program).args(args).env("POOLSCOPE_PERIOD", period).run();
        assert_eq!(output.status.code(), Some(3), "{args:?} with a period of {period}");
    }
}

/// What `tests/csrc/reused.c` prints.
fn reused(what: &str) -> i64 {
    reused_with(what, "512K")
}

fn reused_with(what: &str, period: &str) -> i64 {
    let pool = Pool::new();
    let program = compile_linked(pool.files(), "tests/csrc/reused.c", "reused", &["-O1", "-fno-builtin", "-pthread"]);
    let output = pool.program(program).arg(what).env("POOLSCOPE_PERIOD", period).run().success();
    output.stdout.trim().parse().expect("a number")
}

/// Forty sizes, of each a mebibyte, one after the other.
#[test]
fn what_a_thread_has_freed_serves_any_size_before_the_program_becomes_larger() {
    let kilobytes = reused("sizes");
    assert!(kilobytes < 2560, "{kilobytes} KiB more for the other sizes");
}

#[test]
fn a_long_block_that_a_program_needed_once_serves_blocks_of_any_size() {
    let kilobytes = reused_with("long", "1T");
    assert!(kilobytes < 600, "{kilobytes} KiB more for one block each of other sizes");
}

#[test]
fn a_few_blocks_of_many_sizes_leave_idle_memory_to_longer_ones() {
    let kilobytes = reused_with("few", "1T");
    assert!(kilobytes < 900, "{kilobytes} KiB more for one block each of sixty sizes");
}

#[test]
fn a_thread_frees_what_it_has_inherited_as_its_own() {
    let of_a_thousand = reused("heirs");
    assert!(of_a_thousand < 10, "{of_a_thousand} of a thousand blocks were freed under a lock");
}

#[test]
fn medium_blocks_that_threads_exchange_stay_with_who_frees_them() {
    let of_a_thousand = reused("swapped");
    assert!(of_a_thousand < 50, "{of_a_thousand} of a thousand blocks went back to the thread that had made them");
}

/// A few small blocks lie in each slab of what the program had before, and each is whole when it is freed.
#[test]
fn pages_between_the_last_blocks_of_a_size_go_back_while_the_program_uses_others() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/shifting.c", "shifting", &["-O2"]);
    let ratio = |small: &str, part: &str, scavenge_ms: &str| {
        let program = pool.program(&program).args([small, part]).env("POOLSCOPE_SCAVENGE_MS", scavenge_ms);
        let output = program.run().success();
        let figures: Vec<f64> = output.stdout.split_whitespace().map(|it| it.parse().unwrap()).collect();
        figures[1] / figures[0]
    };
    for (small, part) in [("64", "256"), ("9000", "8")] {
        let held = ratio(small, part, "10000");
        assert!(held < 1.5, "blocks of {small} bytes, then others: {held:.2} times what is in use");
    }
    let kept = ratio("64", "256", "-1");
    assert!(kept > 1.8, "nothing is to go back, and {kept:.2} times what is in use is held");
}

/// Hardly any block fits where one was freed.
#[test]
fn a_program_whose_long_blocks_are_of_all_sizes_holds_little_more_than_they_are() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/long_blocks.c", "long_blocks", &["-O1"]);
    for (goal, most) in [("balanced", 1.35), ("memory", 1.15)] {
        let output = pool.program(&program).env("POOLSCOPE_GOAL", goal).run().success();
        let figures: Vec<f64> = output.stdout.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let held = figures[1] / figures[0];
        println!("{goal}: {held:.2} times what is in use at its most");
        assert!(held < most, "{goal}: {held:.2} times what is in use at its most");
    }
}
