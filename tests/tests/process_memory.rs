//! Where the memory of a process is, its peak and its growth, as the commands say it: against what the kernel says, and
//! against programs whose memory is known.

use std::ops::Range;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use poolscope_e2e::{Pool, Program, Running, compiler, library, sample, skip};
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn process(pool: &Pool, pid: u32) -> Value {
    let command = pool.poolscope().args(["stats", &pid.to_string(), "--json"]);
    let stats: Value = serde_json::from_str(&command.run().silent_success().stdout).expect("stats --json is JSON");
    stats["process"].clone()
}

/// The resident set of each mapping by its path, from `/proc/PID/smaps`.
fn mappings(pid: u32) -> Vec<(u64, String, u64)> {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let mut mappings: Vec<(u64, String, u64)> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, _)) = first.split_once('-') {
            let from = u64::from_str_radix(from, 16).expect("an address");
            mappings.push((from, words.nth(4).unwrap_or_default().to_owned(), 0));
        } else if let ("Rss:", Some(kib), Some(mapping)) = (first, words.next(), mappings.last_mut()) {
            mapping.2 = kib.parse::<u64>().expect("a number") << 10;
        }
    }
    mappings
}

/// Stops it, so that nothing changes between the kernel's figures and the command's.
fn stopped(running: &Running) {
    running.signal(libc::SIGSTOP);
    sleep(Duration::from_millis(100));
}

fn parts(process: &Value) -> (u64, impl Fn(&str) -> u64 + use<>) {
    let accounting = &process["accounting"];
    let parts = accounting["parts"].as_object().expect("parts").clone();
    (number(&accounting["memory_bytes"]), move |name: &str| number(&parts[name]))
}

fn assert_near(what: &str, said: u64, truth: u64, of: u64) {
    assert!(said.abs_diff(truth) * 100 < of, "{what}: {said} is said, {truth} is true, of {of}");
}

const PARTS: [&str; 8] =
    ["in_use", "thread_caches", "transfer_cache", "central_cache", "free", "metadata", "files", "other"];

/// In use, caches, free, metadata and what is not the pool's are the resident set, to the byte; what is not the pool's
/// is what the program mapped itself, with its files and its stack, to 1 % of the whole.
#[test]
fn parts_come_to_the_resident_set_and_what_is_not_the_pools_is_known() {
    const OWN: u64 = 48 << 20;
    let pool = Pool::new();
    let program = compiler::compile_linked(pool.files(), "tests/csrc/accounts.c", "accounts", &["-O2"]);
    let mut running = pool.program(program).args([&OWN.to_string(), "4000"]).start();
    running.wait_for_line("own");
    // The pool's thread says what a thread has freed that waits.
    let pid = running.pid();
    running.wait_until("what it has freed is known", |_| {
        let (memory, part) = parts(&process(&pool, pid));
        (part("in_use") < OWN / 4000 * 4096 + memory / 100).then_some(())
    });
    stopped(&running);
    let process = process(&pool, pid);
    let (memory, part) = parts(&process);
    assert_eq!(PARTS.into_iter().map(&part).sum::<u64>(), memory);
    let mappings = mappings(pid);
    let rss: u64 = mappings.iter().map(|(_, _, rss)| rss).sum();
    assert_near("memory", memory, rss, rss);
    let is_segment = |path: &str| path.contains(&format!("/{pid}."));
    let sum = |of: &dyn Fn(u64, &str) -> bool| -> u64 {
        mappings.iter().filter(|(from, path, _)| of(*from, path)).map(|(_, _, rss)| rss).sum()
    };
    let files = sum(&|_, path| path.starts_with('/') && !is_segment(path));
    let stack = sum(&|_, path| path == "[stack]" || path == "[heap]");
    assert_near("files", part("files"), files, rss);
    assert_near("what is not the pool's", part("files") + part("other"), files + stack + OWN, rss);
    assert_near("in use", part("in_use"), OWN / 4000 * 4096, rss);
    // The most in use was when it also had what it freed, a second before.
    let peak = number(&process["peak"]["in_use_bytes"]);
    assert_near("peak", peak, number(&process["accounting"]["in_use_bytes"]) + 4000 * 2048, rss);
    running.signal(libc::SIGKILL);
    running.finish();
}

#[test]
fn parts_come_to_the_resident_set_of_real_programs() {
    let pool = Pool::new();
    let held = "import time\nheld=[{'name': str(i), 'list': [i] * 9} for i in range(60000)]\n\
                print('ready', flush=True)\ntime.sleep(100)";
    let programs = [
        ("kv-server", pool.program(sample("kv-server")).args(["--seconds", "30", "--clients", "4"])),
        ("python3", pool.program("/usr/bin/python3").args(["-c", held])),
    ];
    for (name, program) in programs {
        let running = program.start();
        sleep(Duration::from_millis(1500));
        stopped(&running);
        let (memory, part) = parts(&process(&pool, running.pid()));
        assert_eq!(PARTS.into_iter().map(&part).sum::<u64>(), memory, "{name}");
        let mappings = mappings(running.pid());
        let rss: u64 = mappings.iter().map(|(_, _, rss)| rss).sum();
        assert_near(name, memory, rss, rss);
        let is_segment = |path: &str| path.contains(&format!("/{}.", running.pid()));
        let files: u64 = mappings
            .iter()
            .filter(|(_, path, _)| path.starts_with('/') && !is_segment(path))
            .map(|(_, _, rss)| rss)
            .sum();
        assert_near(name, part("files"), files, rss);
        running.signal(libc::SIGKILL);
        running.finish();
    }
}

/// A viewer that comes when all is over has the peak with its time, also of a program that was killed.
#[test]
fn who_comes_late_learns_the_peak_and_its_time() {
    let pool = Pool::new();
    let program = compiler::compile_linked(pool.files(), "tests/csrc/figures.c", "figures", &["-O2"]);
    let mut running = pool.program(program).args(["3000", "20000"]).start();
    running.wait_for_line("held");
    sleep(Duration::from_millis(700));
    running.send("free 9\n");
    running.wait_until("it has freed", |running| (running.stdout().matches("held").count() > 1).then_some(()));
    sleep(Duration::from_millis(500));
    let check = |process: &Value| {
        let (peak, now) = (number(&process["peak"]["in_use_bytes"]), number(&process["accounting"]["in_use_bytes"]));
        assert!((20_000 * 3000..20_000 * 3300).contains(&peak), "{process:#}");
        assert!(now < peak / 5, "{process:#}");
        assert!(process["peak"]["after_seconds"].as_f64().is_some_and(|after| after < 1.2), "{process:#}");
    };
    check(&process(&pool, running.pid()));
    let pid = running.pid();
    running.signal(libc::SIGKILL);
    running.finish();
    let dead = process(&pool, pid);
    check(&dead);
    assert!(dead["accounting"]["memory_bytes"].is_null(), "{dead:#}");
}

/// The sample server forgets the watches of its clients: that it grows is said, with its name and its figures.
#[test]
fn a_leak_is_found_by_watching_and_named() {
    let pool = Pool::new();
    let server = pool.program(sample("kv-server")).args(["--seconds", "60", "--clients", "4"]);
    let running = server.env("POOLSCOPE_PERIOD", "32K").start();
    sleep(Duration::from_secs(1));
    let report = pool.poolscope().args(["report", &running.pid().to_string(), "--watch", "6", "--json"]);
    let report: Value = serde_json::from_str(&report.run().success().stdout).expect("is JSON");
    let findings = report["findings"].as_array().expect("findings");
    // The store fills at first, so that others grow, too; but of these something was freed.
    let is_leak = |finding: &&Value| {
        let sentence = finding["sentence"].as_str().expect("a sentence");
        sentence.contains("remember_watch (audit.rs") && sentence.contains("nothing of it was ever freed")
    };
    let mut growing = findings.iter().filter(|finding| finding["rule"] == "site_grows");
    let found = growing.find(is_leak).unwrap_or_else(|| panic!("{findings:#?}"));
    let site = &report["sites"][number(&found["subject"]["index"]) as usize];
    assert!(site["function"].as_str().is_some_and(|function| function.contains("remember_watch")), "{site:#}");
    assert!(
        site["growth"]["grows"] == true && site["oldest_seconds"].as_f64().is_some_and(|age| age > 1.0),
        "{site:#}"
    );
    assert!(report["growth"]["grows"] == true, "{:#}", report["growth"]);
    let text = pool.poolscope().args(["stats", &running.pid().to_string()]).run().silent_success().stdout;
    assert!(text.contains("Memory of the process: ") && text.contains("Most in use: "), "{text}");
    running.signal(libc::SIGKILL);
    running.finish();
}

/// What samples read of a program's unwind tables is not mapped behind them, and what was written there stays.
#[test]
fn walks_leave_no_pages_of_unwind_tables_mapped_but_those_that_were_written() {
    let pool = Pool::new();
    let program = compiler::compile(pool.files(), "../../tests/csrc/unwind_tables.c", "unwind_tables", &["-O1"]);
    let pages = |mode: &[&str]| -> (u32, u32) {
        let run = pool.program(&program).env("POOLSCOPE_PERIOD", "4K").args(mode).run().silent_success();
        let words: Vec<&str> = run.stdout.split_whitespace().collect();
        assert_eq!(words.last(), Some(&"well"), "{}", run.stdout);
        (words[0].parse().expect("a number"), words[2].parse().expect("a number"))
    };
    let (mapped, all) = pages(&[]);
    assert!(all > 24 && mapped == 0, "{mapped} of {all}");
    let (mapped, all) = pages(&["written"]);
    assert!(mapped > 8, "{mapped} of {all}: samples read none");
}

/// The order that `alloc/preload/order.ld` gives the library's code, by what the linker made of it.
#[test]
fn what_every_program_runs_lies_together() {
    let library = library();
    let sections = Command::new("readelf").arg("-SW").arg(&library).output().expect("readelf is installed").stdout;
    let sections = String::from_utf8(sections).unwrap();
    let range = |name: &str| {
        let line = sections.lines().find(|line| line.contains(&format!(" {name} "))).expect(name);
        let mut fields = line.split_once("PROGBITS").expect(name).1.split_whitespace();
        let mut hex = || u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
        let (from, _, bytes) = (hex(), hex(), hex());
        from..from + bytes
    };
    let (common, rare) = (range(".text"), range(".text.rare"));
    let bytes = |range: &Range<u64>| range.end - range.start;
    assert!(2 * bytes(&common) < bytes(&rare), "{common:x?} and {rare:x?}");
    // The kernel maps 64 KiB of a file at a time.
    const WINDOW: u64 = 64 << 10;
    assert!(
        common.start % WINDOW < 64 && range(".plt").end <= common.start - common.start % WINDOW + 2 * WINDOW,
        "{common:x?}"
    );
    // What is zero at first lies in no file.
    assert!(bytes(&range(".data")) < 4096, "{:x?}", range(".data"));

    let symbols = Command::new("nm").arg(&library).output().expect("nm is installed").stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.split(' ').nth(2).is_some_and(|symbol| symbol.contains(name)));
        u64::from_str_radix(&line.expect(name)[..16], 16).unwrap()
    };
    for name in ["malloc_slow_at", "free_slow", "start_thread", "after_in_child", "registers_at_call"] {
        assert!(common.contains(&address(name)), "{name}");
    }
    // What a sample runs is in the window behind it, and in the one behind that what ends threads, grows blocks and
    // gives memory back.
    let behind = |windows: u64| common.start - common.start % WINDOW + windows * WINDOW;
    for name in ["sampler12sample_block", "Sampler6record", "walk4Walk4step", "table_pages9give_back", "fork_child"] {
        assert!((range(".plt").end..behind(3)).contains(&address(name)), "{name}");
    }
    for name in ["scavenger3run", "collector4exit10end_thread", "realloc13realloc_large", "10make_holes"] {
        assert!((behind(2)..behind(4)).contains(&address(name)), "{name}");
    }
    for name in
        ["malloc_stats", "poolscope_stats_json", "print_stack", "framehop", "poolscope_capture_0_1_on_stack", "NodeSet"]
    {
        assert!(rare.contains(&address(name)), "{name}");
    }
}

/// By what the kernel has mapped of the library: two windows of 64 KiB in a program that takes no sample, and four in
/// one that takes samples, starts and ends threads, grows blocks and gives memory back.
#[test]
fn a_program_has_as_much_of_the_librarys_code_as_it_runs() {
    let pool = Pool::new();
    // What was just written in long parts may lie in large pieces in the system's cache of files, which are mapped
    // whole: a copy, written page by page.
    let library = pool.files().join("libpoolscope.so");
    let files = [format!("if={}", self::library().display()), format!("of={}", library.display())];
    Program::new("dd").args(files).args(["bs=4096", "status=none"]).run().silent_success();
    let code = |running: &Running| {
        sleep(Duration::from_secs(1));
        let found = mappings(running.pid()).into_iter().filter(|(_, path, _)| path.ends_with("libpoolscope.so"));
        let resident = found.map(|(_, _, resident)| resident).max().expect("the library");
        running.signal(libc::SIGKILL);
        resident
    };
    let idle = pool.program("sleep").args(["60"]).env("LD_PRELOAD", &library).start();
    let resident = code(&idle);
    idle.finish();
    if resident > 128 << 10 {
        return skip("the library's code in memory: this kernel maps more of a file at once than 64 KiB");
    }
    let server = pool.program(sample("kv-server")).args(["--seconds", "60", "--clients", "4"]);
    let server = server.env("LD_PRELOAD", &library).start();
    let resident = code(&server);
    server.finish();
    assert!(resident <= 256 << 10, "{} KiB", resident >> 10);
}

/// It had two pages for each one that it needed, since its lists of few blocks grew up to a slab of each class.
#[test]
fn a_thread_that_works_now_and_then_has_hardly_more_pages_than_its_blocks_fill() {
    let pool = Pool::new();
    let program =
        compiler::compile_with_headers(pool.files(), "tests/csrc/few_live.c", "few_live", &["-O1", "-fno-builtin"]);
    let output = pool.program(program).args(["20000", "1000"]).run().silent_success();
    let pages: Vec<f64> = output.stdout.split_ascii_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
    let [used, needed] = pages[..] else { panic!("{}", output.report()) };
    println!("{used} pages, {needed} needed");
    assert!(needed > 70.0 && used < 1.5 * needed, "{used} pages, {needed} needed");
}

/// A thread's structures lay in arrays by class, all of which were written to when it began: 48 KiB for one block.
#[test]
fn a_thread_that_allocates_little_makes_the_program_little_larger() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/little_each.c", "little_each", &["-O1"]);
    for (sizes, most) in [("1", 24), ("4", 36)] {
        let bytes = |program: Program| {
            let output = program.args(["400", sizes, "3000"]).run().silent_success();
            let words = output.stdout.split_ascii_whitespace().skip(1);
            words.map(|word| word.parse::<u64>().expect("a number")).collect::<Vec<_>>()
        };
        // What the C library and the kernel have of a thread anyway.
        let with_none = Program::new(&program).args(["400", "0", "0"]).run().silent_success().stdout;
        let with_none: u64 =
            with_none.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("bytes");
        for now in bytes(pool.program(&program)) {
            let kib = now.saturating_sub(with_none) >> 10;
            println!("{sizes} sizes: {kib} KiB");
            assert!(kib <= most, "{kib} KiB for a thread with blocks of {sizes} sizes");
        }
    }
}
