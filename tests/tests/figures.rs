//! Figures of programs that go idle in every way, against what the programs know and what the kernel says.

use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use poolscope_e2e::{Pool, Program, Running, compiler, sample};
use serde_json::Value;

/// A program of `tests/csrc`.
fn compiled(pool: &Pool, name: &str) -> PathBuf {
    let source = format!("tests/csrc/{name}.c");
    compiler::compile_with_headers(pool.files(), &source, name, &["-O1", "-pthread"])
}

fn idle(pool: &Pool) -> PathBuf {
    compiled(pool, "figures")
}

/// The statistics of a process as a reader has them.
fn stats(pool: &Pool, pid: u32) -> Value {
    let command = pool.poolscope().args(["stats", &pid.to_string(), "--json"]);
    serde_json::from_str(&command.run().silent_success().stdout).expect("stats --json is JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Blocks in use of the class that serves `size`, or large ones.
fn blocks(stats: &Value, size: u64) -> u64 {
    if size > 256 << 10 {
        return number(&stats["large"]["in_use"]);
    }
    let classes = stats["classes"].as_array().expect("classes");
    let class = classes.iter().find(|class| number(&class["block_bytes"]) >= size && number(&class["in_use"]) > 0);
    class.map_or(0, |class| number(&class["in_use"]))
}

/// Blocks ever allocated of the class that serves `size`.
fn allocations(stats: &Value, size: u64) -> u64 {
    let classes = stats["classes"].as_array().expect("classes");
    let class = classes.iter().find(|class| number(&class["block_bytes"]) >= size);
    class.map_or(0, |class| number(&class["allocs"]))
}

/// Fails unless the figures say within a moment what `of` must be, and say so still after it. They may be 100 ms old; a
/// machine that is busy with other tests gets more.
#[track_caller]
fn assert_soon<T: PartialEq + Debug>(pool: &Pool, pid: u32, what: &str, expected: T, of: impl Fn(&Value) -> T) {
    let begun = Instant::now();
    sleep(Duration::from_millis(120));
    while of(&stats(pool, pid)) != expected && begun.elapsed() < Duration::from_secs(5) {
        sleep(Duration::from_millis(50));
    }
    for _ in 0..2 {
        let stats = stats(pool, pid);
        assert_eq!(of(&stats), expected, "{what}: {stats:#}");
        sleep(Duration::from_millis(250));
    }
}

/// The program, told what to do, says how many blocks it holds then.
fn told(running: &mut Running, line: &str) -> u64 {
    let said = running.stdout().lines().count();
    running.send(&format!("{line}\n"));
    running.wait_until("its answer", |running| {
        let stdout = running.stdout();
        let answer = stdout.strip_suffix('\n')?.lines().nth(said)?;
        Some(answer.strip_prefix("held ")?.parse().expect("a number"))
    })
}

fn start(pool: &Pool, program: &PathBuf, period: &str, size: u64, count: u64) -> Running {
    let program = pool.program(program).args([size.to_string(), count.to_string()]).env("POOLSCOPE_PERIOD", period);
    let mut running = program.start();
    running.wait_for_line("held");
    running
}

#[test]
fn what_a_program_holds_that_waits_is_known_to_the_block() {
    let pool = Pool::new();
    let program = idle(&pool);
    for period in ["512K", "1"] {
        for (size, count) in [(400, 3), (400, 100), (912, 1000), (2900, 300), (300_000, 5), (400, 100_000)] {
            let running = start(&pool, &program, period, size, count);
            let what = format!("{count} of {size}, period {period}");
            assert_soon(&pool, running.pid(), &what, count, |stats| blocks(stats, size));
            if size == 2900 {
                // No other block of the program has a size near this one.
                assert_soon(&pool, running.pid(), &what, count, |stats| allocations(stats, size));
            }
            running.finish().silent_success();
        }
    }
}

/// Whether it computes, sleeps, goes on later, or has been killed; and whoever of its threads freed the blocks.
#[test]
fn what_a_program_has_freed_is_known_however_it_goes_idle() {
    let pool = Pool::new();
    let program = idle(&pool);
    for period in ["512K", "1"] {
        let count = if period == "1" { 20_000 } else { 200_000 };
        let held = |stats: &Value| blocks(stats, 400);

        let mut computes = start(&pool, &program, period, 400, count);
        told(&mut computes, "free 9");
        let left = told(&mut computes, "spin");
        assert_eq!(left, count / 10);
        assert_soon(&pool, computes.pid(), "frees and computes", left, held);
        let pid = computes.pid();
        computes.signal(libc::SIGKILL);
        computes.finish();
        assert_eq!(held(&stats(&pool, pid)), left, "after its death");

        // What it frees later goes into slabs that have free blocks already: no call takes the slow path by itself.
        let mut later = start(&pool, &program, period, 400, count);
        for part in [4, 9] {
            let left = told(&mut later, &format!("free {part}"));
            assert_soon(&pool, later.pid(), "frees, waits, and frees more", left, held);
        }
        later.finish().silent_success();

        let mut sleeps = start(&pool, &program, period, 400, count);
        let left = told(&mut sleeps, "thread 9");
        assert_soon(&pool, sleeps.pid(), "another thread frees and sleeps", left, held);
        sleeps.signal(libc::SIGKILL);
        sleeps.finish();
    }
}

/// Of each thread whose cache had been taken, the blocks counted as cached that its lists had had at first.
#[test]
fn what_many_sleeping_threads_hold_is_known_while_their_caches_go_back() {
    const THREADS: u64 = 400;
    let pool = Pool::new();
    let program = pool.program(compiled(&pool, "idle_threads")).arg(THREADS.to_string()).env("POOLSCOPE_GC_MS", "700");
    let mut running = program.env("POOLSCOPE_SCAVENGE_MS", "1500").start();
    let said = running.wait_until("it holds", |running| {
        running.stdout().trim_end().strip_prefix("holds ").map(|blocks| blocks.parse::<u64>().expect("a number"))
    });
    assert_soon(&pool, running.pid(), "all threads sleep", said, |stats| blocks(stats, 500));
    let caches = |stats: &Value| number(&stats["usage"]["thread_caches"]);
    let mut last = stats(&pool, running.pid());
    let before = caches(&last);
    let begun = Instant::now();
    while caches(&last) > before / 4 && begun.elapsed() < Duration::from_secs(20) {
        let now = stats(&pool, running.pid());
        assert_eq!(blocks(&now, 500), said, "after {:?}: {now:#}", begun.elapsed());
        let [was, is] = [&last, &now].map(|stats| number(&stats["thread_caches"]["allocs"]));
        assert!(is >= was, "there were {was} allocations, and then {is}");
        last = now;
    }
    assert!(caches(&last) <= before / 4, "the caches are still there: {last:#}");
    running.end_input();
    running.finish();
}

/// Each thread keeps some of the other's blocks that it frees, and uses them again.
#[test]
fn what_threads_exchange_is_known_to_the_block() {
    let pool = Pool::new();
    let program = idle(&pool);
    for (size, exchanged) in [(400, "exchange"), (48, "exchange_on"), (2900, "exchange_on")] {
        let mut running = start(&pool, &program, "512K", size, 5000);
        assert_soon(&pool, running.pid(), "before", 5000, |stats| blocks(stats, size));
        let before = allocations(&stats(&pool, running.pid()), size);
        let both = |stats: &Value| (blocks(stats, size), allocations(stats, size) - before);
        for round in 1..3 {
            assert_eq!(told(&mut running, &format!("{exchanged} 150000")), 5000);
            let what = format!("{exchanged} of {size}, round {round}");
            assert_soon(&pool, running.pid(), &what, (5000, 300_000 * round), both);
        }
        let left = told(&mut running, "free 9");
        assert_soon(&pool, running.pid(), "frees nine of ten", left, |stats| blocks(stats, size));
        running.signal(libc::SIGKILL);
        running.finish();
    }
}

#[test]
fn memory_that_was_never_touched_is_none() {
    let pool = Pool::new();
    let program = idle(&pool);
    let mut running = start(&pool, &program, "512K", 400, 1000);
    let before = stats(&pool, running.pid());
    let more = |stats: &Value, name: &str| number(&stats["usage"][name]) as i64 - number(&before["usage"][name]) as i64;
    let near = |bytes: i64, mib: i64| (bytes - (mib << 20)).abs() < 1 << 20;
    told(&mut running, &format!("large {}", 200 << 20));
    for touched in [0, 150] {
        told(&mut running, &format!("touch {}", touched << 20));
        let is_so = |stats: &Value| {
            let (in_use, physical) = (more(stats, "in_use"), more(stats, "physical"));
            near(in_use, 200) && near(physical, touched) && near(more(stats, "untouched"), 200 - touched)
        };
        assert_soon(&pool, running.pid(), "a block of 200 MiB", 1, |stats| u64::from(is_so(stats)));
    }
    running.finish().silent_success();
}

/// Where slabs of samples come and go, too. The ends of blocks may be none.
#[test]
fn memory_that_was_written_to_is_some() {
    let pool = Pool::new();
    let mut running = start(&pool, &idle(&pool), "16K", 64, 1);
    told(&mut running, "mix 40000");
    let is_so = |stats: &Value| {
        let [in_use, untouched] = ["in_use", "untouched"].map(|name| number(&stats["usage"][name]));
        in_use > 12 << 20 && untouched * 25 < in_use
    };
    assert_soon(&pool, running.pid(), "memory", 1, |stats| u64::from(is_so(stats)));
}

/// An idle program is left alone: the pool's thread has ended, and nothing wakes.
#[test]
fn a_program_that_waits_has_no_wake_ups() {
    let pool = Pool::new();
    let program = idle(&pool);
    let held = pool.program(&program).args(["400", "100000"]);
    let mut running = held.env("POOLSCOPE_SCAVENGE_MS", "-1").env("POOLSCOPE_GC_MS", "-1").start();
    running.wait_for_line("held");
    let tasks = format!("/proc/{}/task", running.pid());
    let threads = || std::fs::read_dir(&tasks).expect("its threads").count();
    running.wait_until("its threads end", |_| (threads() == 1).then_some(()));
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid())).expect("its status");
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).expect("its switches");
        line.to_owned()
    };
    let before = switches();
    sleep(Duration::from_secs(1));
    assert_eq!((threads(), switches()), (1, before));
    running.finish().silent_success();
}

/// Bytes of these addresses that have memory, where the kernel has joined a mapping of the program's to the arena's
/// first one.
fn in_pagemap(pid: u32, from: u64, to: u64) -> u64 {
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).expect("its pages");
    let mut entries = vec![0; ((to - from) / 512) as usize];
    pagemap.read_exact_at(&mut entries, from / 512).expect("entries of its pages");
    entries.chunks_exact(8).filter(|entry| entry[7] >> 6 != 0).count() as u64 * 4096
}

/// Bytes of the pool's only arena that have memory, by `/proc/PID/smaps`: the arena ends with what is reserved and was
/// never used, and is as long as the setting says.
fn arena_in_smaps(pid: u32, arena: u64) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let mut mappings: Vec<(u64, u64, bool, u64)> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).expect("an address");
            let is_reserved = words.next() == Some("---p") && words.count() == 3;
            mappings.push((address(from), address(to), is_reserved, 0));
        } else if let ("Rss:" | "Swap:", Some(kib), Some(mapping)) = (first, words.next(), mappings.last_mut()) {
            mapping.3 += kib.parse::<u64>().expect("a number") << 10;
        }
    }
    // It begins and ends where a huge page does; what is reserved behind it by somebody else is joined to it.
    let (_, end, ..) = *mappings.iter().filter(|m| m.2).max_by_key(|m| m.1 - m.0).expect("an arena");
    let end = end & !((2 << 20) - 1);
    let within = mappings.iter().filter(|&&(from, to, ..)| to > end - arena && from < end);
    within.map(|&(from, to, _, bytes)| if from >= end - arena { bytes } else { in_pagemap(pid, end - arena, to) }).sum()
}

/// In use, caches, free and metadata are what the kernel says of the arena, to 1 %: of six programs at whatever they
/// do.
#[test]
fn figures_add_up_to_what_the_kernel_says() {
    const ARENA: u64 = 4 << 30;
    let pool = Pool::new();
    let on_pool = |program: &str| pool.program(program).env("POOLSCOPE_ARENA", ARENA.to_string());
    let socket = pool.files().join("redis.sock");
    let socket = socket.to_str().expect("is text");
    let python = "import time\nheld=[{'name': str(i), 'list': [i] * 9} for i in range(60000)]\ndel held[::2]\n\
                  print('ready', flush=True)\ntime.sleep(100)";
    let sql = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) \
               insert into t select i, hex(randomblob(40)) from n; create index ti on t(b); delete from t where a % 3;\n\
               select 'ready';\n";
    let stress = compiler::compile(pool.files(), "stress.cpp", "stress", &["-O2"]);
    let plugin = compiler::compile_library(pool.files(), "stress_plugin.cpp", "stress_plugin.so", &["-O2"]);
    let kv_server = sample("kv-server");
    let redis = ["--port", "0", "--unixsocket", socket, "--save", ""];
    let programs: [(&str, Program, &str); 6] = [
        ("kv-server", on_pool(kv_server.to_str().expect("is text")).args(["--seconds", "60", "--clients", "4"]), ""),
        ("python3", on_pool("/usr/bin/python3").args(["-c", python]), "ready"),
        ("sqlite3", on_pool("sqlite3").arg(":memory:"), "ready"),
        ("redis-server", on_pool("redis-server").args(redis), ""),
        ("stress", on_pool(stress.to_str().expect("is text")).arg(plugin).arg("60"), ""),
        ("idle", on_pool(idle(&pool).to_str().expect("is text")).args(["400", "200000"]), "held"),
    ];
    for (name, program, line) in programs {
        let mut running = program.start();
        match name {
            "sqlite3" => running.send(sql),
            "redis-server" => {
                let client = |args: &[&str]| Program::new("redis-cli").args(["-s", socket]).args(args).run();
                running.wait_until("redis answers", |_| client(&["ping"]).stdout.contains("PONG").then_some(()));
                client(&["debug", "populate", "50000", "key", "60"]).success();
            }
            _ => {}
        }
        if !line.is_empty() {
            running.wait_for_line(line);
        }
        if name == "idle" {
            told(&mut running, "free 9");
            told(&mut running, "spin");
        }
        sleep(Duration::from_millis(1500));
        // What it does meanwhile would be no error of the figures.
        running.signal(libc::SIGSTOP);
        sleep(Duration::from_millis(100));
        let (stats, kernel) = (stats(&pool, running.pid()), arena_in_smaps(running.pid(), ARENA));
        let usage = |name: &str| number(&stats["usage"][name]);
        let caches = usage("thread_caches") + usage("central_cache") + usage("transfer_cache");
        let figures = usage("in_use") - usage("untouched") + caches + usage("page_heap");
        let descriptors = number(&stats["system"]["used_bytes"]) / number(&stats["page_bytes"]) * 64;
        assert!(figures > 1 << 20, "{name}: {stats:#}");
        let figures = figures + descriptors.min(kernel);
        let off = figures.abs_diff(kernel) as f64 / kernel as f64;
        assert!(
            off < 0.01,
            "{name}: {figures} in the figures, {kernel} in the kernel's, {:.1} %: {stats:#}",
            off * 100.0
        );
        running.signal(libc::SIGKILL);
        running.finish();
    }
}

/// Bytes of memory that no file is behind, stacks left out, by `/proc/PID/smaps`.
fn anonymous_in_smaps(pid: u32) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let (mut is_anonymous, mut bytes) = (false, 0);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words[0].contains('-') {
            is_anonymous = words.len() == 5;
        } else if is_anonymous && ["Rss:", "Swap:"].contains(&words[0]) {
            bytes += words[1].parse::<u64>().expect("a number") << 10;
        }
    }
    bytes
}

/// In the hardened mode many blocks have mappings of their own between guards. They are in use as any others.
#[test]
fn blocks_between_guards_are_in_use() {
    let pool = Pool::new();
    let program = idle(&pool);
    for (size, count) in [(2 << 20, 200), (400, 500), (3_000_000, 20)] {
        let held = pool.program(&program).args([size.to_string(), count.to_string()]).env("POOLSCOPE_HARDENED", "1");
        let mut running = held.start();
        running.wait_for_line("held");
        let pages = u64::next_multiple_of(size, 4096);
        // What it has beside is less than a mebibyte.
        let is_held = |stats: &Value, count: u64| {
            let in_use = number(&stats["usage"]["in_use"]);
            u64::from((count * pages..count * pages + (1 << 20)).contains(&in_use))
        };
        let what = format!("{count} of {size}");
        assert_soon(&pool, running.pid(), &what, 1, |stats| is_held(stats, count));
        let figures = stats(&pool, running.pid());
        assert!((count..count + 50).contains(&number(&figures["large"]["in_use"])), "{what}: {figures:#}");
        let kernel = anonymous_in_smaps(running.pid());
        if kernel > 20 << 20 {
            let usage = |name: &str| number(&figures["usage"][name]);
            let caches = usage("thread_caches") + usage("central_cache") + usage("transfer_cache") + usage("page_heap");
            let pool = usage("in_use") - usage("untouched") + caches;
            let off = kernel.abs_diff(pool);
            assert!(off < kernel / 100 + (1 << 20), "{what}: {pool}, and {kernel} in the kernel's: {figures:#}");
        }
        let left = told(&mut running, "free 9");
        assert_soon(&pool, running.pid(), &what, 1, |stats| is_held(stats, left));
        running.finish().silent_success();
    }
}

/// What a screen's header shows below a title.
fn card(screen: &str, title: &str) -> String {
    let lines: Vec<&str> = screen.lines().collect();
    let at = lines.iter().position(|line| line.contains(title)).unwrap_or_else(|| panic!("no {title}: {screen}"));
    let column = lines[at].find(title).expect("the title");
    lines[at + 1][column..].split("  ").next().expect("a value").trim().to_owned()
}

fn json(pool: &Pool, pid: u32) -> Value {
    let command = pool.poolscope().args(["top", &pid.to_string(), "--json"]);
    serde_json::from_str(&command.run().silent_success().stdout).expect("top --json is JSON")
}

/// The dashboard shows the counter, and not what the samples estimate, at any width. So does the list.
#[test]
fn the_dashboard_shows_what_is_in_use() {
    let pool = Pool::new();
    let running = start(&pool, &idle(&pool), "512K", 2900, 10_000);
    assert_soon(&pool, running.pid(), "10,000 of 2900", 10_000, |stats| blocks(stats, 2900));
    let in_use = number(&stats(&pool, running.pid())["usage"]["in_use"]);
    assert!((10_000 * 2900..10_000 * 3300).contains(&in_use), "{in_use}");
    let shown = format!("{:.1} MiB", in_use as f64 / f64::from(1 << 20));
    for size in ["60x24", "80x24", "120x36"] {
        let once = pool.poolscope().args(["top", &running.pid().to_string(), "--once", "--size", size]);
        let screen = once.run().silent_success().stdout;
        assert_eq!(card(&screen, "LIVE"), shown, "{size}: {screen}");
        assert!(!screen.contains("LIVE (EST.)"), "{screen}");
    }
    let json = json(&pool, running.pid());
    let last = json["history"].as_array().and_then(|points| points.last()).expect("a point");
    assert_eq!(last["live_bytes"].as_f64(), Some(in_use as f64));
    let listed = pool.json(&["list", "--json"]);
    assert_eq!(listed["processes"][0]["live_bytes"].as_f64(), Some(in_use as f64));
    let row = pool.poolscope().arg("list").run().silent_success().stdout;
    assert!(row.contains(&shown), "{shown}: {row}");
    running.finish().silent_success();
}

/// A program that allocates 100 kB a second has a sample in five seconds. By samples it allocated nothing in most of
/// them, and 500 kB in the others.
#[test]
fn the_dashboard_shows_how_much_a_slow_program_allocates_a_second() {
    let pool = Pool::new();
    let mut running =
        pool.program(compiled(&pool, "slowly")).args(["1000", "100"]).env("POOLSCOPE_PERIOD", "512K").start();
    running.wait_for_line("up");
    for _ in 0..4 {
        let rates = json(&pool, running.pid())["rates"].clone();
        let bytes = rates["allocated_bytes_per_second"].as_f64().expect("a rate");
        // Of 1,000 bytes, which lie in blocks of 1,024; what others do beside it makes readings late.
        assert!((70_000.0..140_000.0).contains(&bytes), "{rates}");
    }
    running.signal(libc::SIGKILL);
}

/// A census of many threads is rare, so that it was now and then two of them in one second, and none in the next.
#[test]
fn the_dashboard_shows_how_much_many_threads_allocate_a_second() {
    const THREADS: u32 = 300;
    let pool = Pool::new();
    let mut running = pool.program(compiled(&pool, "steadily")).args([&THREADS.to_string(), "1000", "200"]).start();
    running.wait_for_line("up");
    sleep(Duration::from_secs(2));
    let truth = f64::from(THREADS) * 200.0 * 1008.0;
    for _ in 0..6 {
        let rates = json(&pool, running.pid())["rates"].clone();
        let bytes = rates["allocated_bytes_per_second"].as_f64().expect("a rate");
        println!("{bytes} of {truth} bytes a second");
        assert!((0.75..1.25).contains(&(bytes / truth)), "{rates}, and {truth} are true");
    }
    running.signal(libc::SIGKILL);
}

/// Large blocks are of no class, and where each is recorded no block is of a thread's cache: they were missing in what
/// threads had allocated.
#[test]
fn threads_have_the_large_blocks_that_they_allocated() {
    let pool = Pool::new();
    let program = compiled(&pool, "large_makers");
    for period in ["512K", "1"] {
        let mut running = pool.program(&program).env("POOLSCOPE_PERIOD", period).start();
        let [large, small] = running.wait_until("the threads are done", |running| {
            let said = running.stdout();
            let (large, small) = said.trim_end().strip_prefix("large ")?.split_once(" small ")?;
            Some([large, small].map(|tid| tid.parse::<u64>().expect("a thread's number")))
        });
        let of_thread = |json: &Value, tid: u64| {
            let threads = json["threads"].as_array().expect("threads");
            let thread = threads.iter().find(|thread| thread["tid"] == tid).expect("it lives").clone();
            ["allocs", "alloc_bytes"].map(|field| number(&thread[field]))
        };
        // The counters are looked at every 80 ms, and what a list of blocks has handed out since then is not counted yet.
        running.wait_until("they are counted", |running| {
            let json = json(&pool, running.pid());
            let ([of_large, large_bytes], [of_small, small_bytes]) = (of_thread(&json, large), of_thread(&json, small));
            let is_large = (500..510).contains(&of_large) && (500..502).contains(&(large_bytes >> 20));
            let is_small = (19_900..20_300).contains(&of_small);
            (is_large && is_small && (19_900 * 1000..20_500 * 1024).contains(&small_bytes)).then_some(())
        });
        let args = ["top", &running.pid().to_string(), "--once", "--plain", "--view", "threads", "--size", "160x24"];
        let screen = pool.poolscope().args(args).run().silent_success().stdout;
        let row = screen.lines().find(|line| line.contains(&format!(" {large} "))).expect("its row");
        assert!(row.contains(" 500 MiB "), "{row}");
        running.send("\n");
        running.finish().silent_success();
    }
}

/// Each thread counts its samples while it lives; what others took is nobody's.
#[test]
fn living_threads_have_samples() {
    let pool = Pool::new();
    let server = pool.program(sample("kv-server")).args(["--seconds", "30", "--clients", "4"]);
    let mut running = server.env("POOLSCOPE_PERIOD", "64K").start();
    let sums = |json: &Value| {
        let threads = json["threads"].as_array().expect("threads");
        let living = threads.iter().filter(|thread| thread["live"] == true);
        let living: Vec<u64> = living.map(|thread| number(&thread["samples"])).collect();
        let all: u64 = threads.iter().map(|thread| number(&thread["samples"])).sum();
        (living, all, number(&json["tiers"]["samples"]))
    };
    running.wait_until("its threads take samples", |running| {
        pool.segment(running.pid())?;
        let (living, ..) = sums(&json(&pool, running.pid()));
        (living.iter().filter(|samples| **samples > 0).count() > 1).then_some(())
    });
    // The total is not older than what the threads say, at whatever moment it stops.
    running.signal(libc::SIGSTOP);
    sleep(Duration::from_millis(100));
    let (living, all, total) = sums(&json(&pool, running.pid()));
    assert!(living.iter().sum::<u64>() > 0 && all <= total, "{living:?}, {all} of {total}");
    running.signal(libc::SIGKILL);
    running.finish();
}
