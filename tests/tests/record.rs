//! Full traces: programs whose every allocation is known, recorded and reported.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::{compile, compile_into, compile_library};
use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Output, Pool, Program, Running, Segment};
use poolscope_wire::trace::{RingHeader, TRACE_PAGE, TraceHeader};
use poolscope_wire::{HEADER_LEN, Header};
use serde_json::Value;

/// Compiles a program that is to be recorded.
fn program(pool: &Pool, source: &str, flags: &[&str]) -> PathBuf {
    let output = pool.files().join("traced");
    compile_into(&output, Path::new(source), &[&["-O2", "-fno-builtin"], flags].concat(), &[]);
    output
}

fn traced(pool: &Pool) -> PathBuf {
    program(pool, "tests/csrc/traced.c", &[])
}

const FILE: &str = "test.rec";

/// Records a command to its end.
fn record(pool: &Pool, options: &[&str], command: &[&str]) -> Output {
    pool.poolscope().args(["record", "-o", FILE]).args(options).arg("--").args(command).run()
}

/// The report of the recording.
fn report(pool: &Pool, options: &[&str]) -> Value {
    let output = pool.poolscope().args(["report", FILE, "--json"]).args(options).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    serde_json::from_str(&output.stdout).expect("the report is JSON")
}

/// What the functions of a program did, with all that they called: allocations, bytes, frees.
fn by_function(report: &Value) -> BTreeMap<String, [u64; 3]> {
    let mut functions: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for site in report["sites"].as_array().expect("sites") {
        let names =
            site["frames"].as_array().expect("frames").iter().map(|frame| frame["function"].as_str().unwrap_or(""));
        let names: std::collections::BTreeSet<&str> = names.collect();
        let figure = |of: &str, what: &str| site[of][what].as_u64().expect("a figure");
        let figures = [figure("allocated", "objects"), figure("allocated", "bytes"), figure("freed", "objects")];
        for name in names {
            let function = functions.entry(name.to_owned()).or_default();
            function.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
    }
    functions
}

/// What a program says of itself, a line for each function: its name, allocations, bytes (0 for any) and frees.
#[track_caller]
fn assert_as_said(report: &Value, said: &str) {
    let functions = by_function(report);
    let mut lines = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, numbers @ ..] = words.as_slice() else { continue };
        let expected: Vec<u64> = numbers.iter().map(|number| number.parse().expect("a number")).collect();
        let mut found = functions.get(*name).copied().unwrap_or_default();
        if expected[1] == 0 {
            found[1] = 0;
        }
        assert_eq!(found.as_slice(), expected, "{name}");
        lines += 1;
    }
    assert!(lines > 0, "the program said nothing");
}

fn number(report: &Value, path: &[&str]) -> u64 {
    let value = path.iter().fold(report, |value, key| &value[*key]);
    value.as_u64().unwrap_or_else(|| panic!("{path:?} is no number but {value}"))
}

#[track_caller]
fn assert_nothing_lost(report: &Value) {
    assert_eq!(
        (number(report, &["lost", "events"]), report["finished"].as_bool()),
        (0, Some(true)),
        "{}",
        report["lost"]
    );
}

/// Starts a program that answers each line with a thousand blocks.
fn steps(pool: &Pool) -> Running {
    let traced = traced(pool);
    let mut running = pool.program(traced).arg("steps").start();
    running.wait_for_line("ready");
    running
}

/// Starts a recorder of a process, and waits until it records.
fn attach(pool: &Pool, target: &mut Running, options: &[&str], step: &mut u32) -> Running {
    // That of a recorder before it.
    let _ = std::fs::remove_file(pool.files().join(FILE));
    attach_to_file(pool, target, options, step)
}

/// The same, whatever the file has.
fn attach_to_file(pool: &Pool, target: &mut Running, options: &[&str], step: &mut u32) -> Running {
    let len = || std::fs::metadata(pool.files().join(FILE)).map_or(0, |file| file.len());
    let before = len();
    let mut recorder = pool.poolscope().args(["record", &target.pid().to_string(), "-o", FILE]).args(options).start();
    // The program answers when it allocates.
    recorder.wait_until("the program answered", |_| {
        take_step(target, step);
        (len() > before).then_some(())
    });
    recorder
}

fn take_step(target: &mut Running, step: &mut u32) {
    *step += 1;
    target.send("go\n");
    target.wait_for_line(&format!("step {step}"));
}

#[test]
fn every_call_is_counted_with_its_stack_and_bytes() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("nothing was lost"), "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert_as_said(&report, &output.stdout);
    assert_eq!(number(&report, &["lost", "unknown_frees"]), 0);
    // 500 blocks of 3 and 9 MiB came and went one by one, over a thousand small ones.
    let peak = number(&report, &["peak", "bytes"]);
    assert!((9 << 20..14 << 20).contains(&peak), "{peak}");
}

#[test]
fn stacks_of_frees_say_who_freed_what_others_allocated() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless", "--free-stacks"], &[traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let with = report(&pool, &[]);
    assert_nothing_lost(&with);
    assert_as_said(&with, &output.stdout);
    let freed_here = |name: &str| {
        let sites = with["sites"].as_array().expect("sites").iter();
        let of = sites
            .filter(|site| site["frames"].as_array().expect("frames").iter().any(|frame| frame["function"] == name));
        of.fold([0, 0], |[objects, bytes], site| {
            [objects + number(site, &["freed_here", "objects"]), bytes + number(site, &["freed_here", "bytes"])]
        })
    };
    // It frees what with_malloc has allocated, and that frees nothing.
    assert_eq!(freed_here("free_held"), [1000, 500_500]);
    assert_eq!(freed_here("with_malloc"), [0, 0]);
    assert_eq!(freed_here("with_calloc"), [1000, 120_000]);
    let all: u64 =
        with["sites"].as_array().expect("sites").iter().map(|site| number(site, &["freed_here", "objects"])).sum();
    assert_eq!(all, number(&with, &["freed", "objects"]), "every free is somebody's");
    let text = pool.poolscope().args(["report", FILE, "--html", "page.html"]).run();
    assert_eq!(text.code(), 0, "{}", text.report());
    let page = std::fs::read_to_string(pool.files().join("page.html")).unwrap();
    let text = pool.poolscope().args(["report", FILE]).run().stdout;
    let table = text.split("Freed, by who frees").nth(1).expect("the text says who frees");
    assert!(page.contains("Freed, by who frees") && table.contains("free_held"), "{text}");

    let output = record(&pool, &["--lossless", "--free-stacks"], &[traced.to_str().unwrap(), "handover", "20000"]);
    let frees: u64 = output.stdout.trim().rsplit(' ').next().unwrap().parse().expect("it says its frees");
    let threads = report(&pool, &[]);
    let sites = threads["sites"].as_array().expect("sites").iter();
    let of_exchange = sites.filter(|site| site["frames"][0]["function"] == "exchange");
    let freed: u64 = of_exchange.map(|site| number(site, &["freed_here", "objects"])).sum();
    assert_eq!(freed, frees, "{}", output.report());

    record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "calls"]);
    let without = report(&pool, &[]);
    assert_eq!((&without["free_stacks"], &without["sites"][0]["freed_here"]), (&Value::Bool(false), &Value::Null));
    assert!(!pool.poolscope().args(["report", FILE]).run().stdout.contains("who frees"));
}

#[test]
fn blocks_that_change_threads_are_followed() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "handover", "100000"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert_as_said(&report, &output.stdout);
    let threads = report["threads"].as_array().expect("threads");
    let of_others: u64 = threads.iter().map(|thread| number(thread, &["frees_of_others"])).sum();
    assert!(threads.len() == 3 && of_others > 50, "{threads:?}");
}

/// The thread that allocates the memory again calls seldom: its events are of a batch that began before the others'.
#[test]
fn memory_that_changes_threads_is_one_block_after_the_other() {
    let pool = Pool::new();
    let output = record(&pool, &["--lossless"], &[traced(&pool).to_str().unwrap(), "regain", "20"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert_as_said(&report, &output.stdout);
}

/// The rings fill up while the recorder is stopped, and have more than it takes out of them at once: what it does not
/// take out of one is older than what it takes out of others.
#[test]
fn blocks_are_followed_by_a_recorder_that_was_held_up() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let command = [traced.to_str().unwrap(), "handover", "150000", "16"];
    let recorder = pool.poolscope().args(["record", "-o", FILE, "--"]).args(command).start();
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(300));
        recorder.signal(libc::SIGSTOP);
        std::thread::sleep(std::time::Duration::from_millis(700));
        recorder.signal(libc::SIGCONT);
    }
    let output = recorder.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert_as_said(&report, &output.stdout);
    let (unknown, found_out) =
        (number(&report, &["lost", "unknown_frees"]), number(&report, &["lost", "found_out_frees"]));
    assert_eq!((unknown, found_out), (0, 0));
}

#[test]
fn no_event_goes_astray_in_a_program_that_does_everything_at_once() {
    let pool = Pool::new();
    let stress = compile(pool.files(), "stress.cpp", "stress", &["-O2"]);
    let plugin = compile_library(pool.files(), "stress_plugin.cpp", "libstress_plugin.so", &["-O2"]);
    let command = [stress.to_str().unwrap(), plugin.to_str().unwrap(), "3", "--no-signal"];
    let output = record(&pool, &["--lossless"], &command);
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    let (unknown, found_out) =
        (number(&report, &["lost", "unknown_frees"]), number(&report, &["lost", "found_out_frees"]));
    let in_use = number(&report, &["in_use", "objects"]);
    assert!(number(&report, &["allocated", "objects"]) > 50_000, "the threads were at work");
    // Threads are created while the recorder looks on, and nothing is left but what the libraries keep.
    assert!(
        unknown == 0 && found_out == 0 && in_use < 100,
        "{unknown} unknown, {found_out} found out, {in_use} in use"
    );
}

#[test]
fn recording_is_turned_on_and_off_in_a_process_that_runs() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let started = (0..3).map(|_| {
        let first = step;
        let recorder = attach(&pool, &mut target, &["--lossless"], &mut step);
        for _ in 0..5 {
            take_step(&mut target, &mut step);
        }
        recorder.signal(libc::SIGINT);
        let output = recorder.finish();
        assert_eq!(output.code(), 0, "{}", output.report());
        assert!(output.stderr.contains("stopped by a signal"), "{}", output.report());
        let report = report(&pool, &[]);
        assert_nothing_lost(&report);
        let [allocs, _, frees] = by_function(&report)["step"];
        let most = u64::from(step - first) * 1000;
        assert!((5000..=most).contains(&allocs) && frees <= allocs, "{allocs} allocations, {frees} frees, {most}");
        assert!(
            report["cautions"]
                .as_array()
                .unwrap()
                .iter()
                .any(|text| { text.as_str().unwrap().contains("before the recording began") })
        );
        allocs
    });
    assert_eq!(started.count(), 3);
    take_step(&mut target, &mut step);
    target.send("end\n");
    assert_eq!(target.finish().code(), 0);
    assert_eq!(std::fs::read_dir(pool.segment_dir()).unwrap().count(), 1, "only the segment is left");
}

#[test]
fn a_recorder_that_is_killed_leaves_a_file_that_can_be_read_and_a_program_that_goes_on() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let recorder = attach(&pool, &mut target, &["--lossless", "--ring", "64K"], &mut step);
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(1500) {
        take_step(&mut target, &mut step);
    }
    // Kills it.
    drop(recorder);
    // The ring is full after a few steps, and nobody empties it: the program finds out.
    for _ in 0..50 {
        take_step(&mut target, &mut step);
    }
    let report = report(&pool, &[]);
    assert_eq!(report["finished"].as_bool(), Some(false));
    assert!(by_function(&report)["step"][0] >= 1000, "what was written is there");
    let text = pool.poolscope().args(["report", FILE]).run();
    assert!(text.stdout.contains("the recording was not finished"), "{}", text.report());
    // It can be recorded again.
    let recorder = attach(&pool, &mut target, &[], &mut step);
    recorder.signal(libc::SIGTERM);
    assert_eq!(recorder.finish().code(), 0);
    target.send("end\n");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn another_run_is_appended_and_every_command_reads_both() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let calls = [traced.to_str().unwrap(), "calls"];
    // As in a loop: the first one finds no file.
    let output = record(&pool, &["--lossless", "--append"], &calls);
    assert_eq!(output.code(), 0, "{}", output.report());
    let one = report(&pool, &[]);
    std::fs::copy(pool.files().join(FILE), pool.files().join("one.rec")).unwrap();
    let output = record(&pool, &["--lossless", "--append"], &calls);
    assert_eq!(output.code(), 0, "{}", output.report());
    let output = record(&pool, &["--lossless", "--append"], &["env", "A=1", calls[0], "fork"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("the recording begins anew"), "{}", output.report());

    let all = report(&pool, &[]);
    assert_nothing_lost(&all);
    let parts = all["parts"].as_array().expect("parts");
    let figures: Vec<[u64; 3]> =
        parts.iter().map(|part| ["from_us", "to_us", "pid"].map(|key| number(part, &[key]))).collect();
    assert!(
        figures.len() == 3 && figures.windows(2).all(|pair| pair[0][1] <= pair[1][0] && pair[0][2] != pair[1][2]),
        "{figures:?}"
    );
    let said = |of: &Value| by_function(of)["with_calloc"];
    assert_eq!(said(&all), said(&one).map(|figure| 2 * figure));
    let sites = |of: &Value| {
        of["sites"]
            .as_array()
            .expect("sites")
            .iter()
            .filter(|site| site["frames"][0]["function"] == "with_realloc")
            .count()
    };
    assert_eq!(sites(&all), sites(&one), "the same call path is one site, wherever the program was loaded");
    assert_eq!(number(&all, &["in_use", "objects"]), number(&parts[2], &["in_use", "objects"]));
    let first = report(&pool, &["--to", &(figures[0][1] as f64 / 1e6).to_string()]);
    assert_eq!((first["parts"].as_array().map(Vec::len), number(&first, &["pid"])), (Some(1), figures[0][2]));

    let run = |args: &[&str]| {
        let output = pool.poolscope().args(args).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        output.stdout
    };
    run(&["dump", FILE, "--allocs", "-o", "all.pb.gz"]);
    pprof_rules::check(
        &pool.files().join("all.pb.gz"),
        &Expected { main: "traced", shown: "alloc_space", delta: false },
    );
    run(&["flamegraph", FILE, "--metric", "alloc_space", "-o", "all.svg"]);
    assert!(std::fs::read_to_string(pool.files().join("all.svg")).unwrap().contains("with_large"));
    let changes: Value =
        serde_json::from_str(&run(&["diff", "one.rec", FILE, "--metric", "alloc_objects", "--json"])).unwrap();
    let changed = serde_json::to_string(&changes).unwrap();
    assert!(changed.contains("with_calloc") && !changed.contains("[traced+"), "{changed}");
    let text = run(&["report", FILE]);
    assert!(text.contains("in 3 parts") && text.contains("at its end"), "{text}");
    run(&["report", FILE, "--html", "page.html"]);
    assert!(std::fs::read_to_string(pool.files().join("page.html")).unwrap().contains("<h2>Parts</h2>"));
}

#[test]
fn a_process_is_recorded_on_after_its_recorder_was_killed_in_the_middle_of_a_block() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let mut recorder = attach(&pool, &mut target, &["--lossless"], &mut step);
    let file = pool.files().join(FILE);
    let len = || std::fs::metadata(&file).unwrap().len();
    for what in ["a block was written", "another was written"] {
        let before = len();
        recorder.wait_until(what, |_| {
            take_step(&mut target, &mut step);
            (len() > before + 2048).then_some(())
        });
    }
    // Kills it.
    drop(recorder);
    let whole = len();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(whole - 7).unwrap();
    let first = report(&pool, &[]);
    assert_eq!(first["finished"].as_bool(), Some(false));

    let from = step;
    let recorder = attach_to_file(&pool, &mut target, &["--lossless", "--append"], &mut step);
    for _ in 0..5 {
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    let output = recorder.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("of a block that is not whole were cut off"), "{}", output.report());
    let both = report(&pool, &[]);
    assert_nothing_lost(&both);
    let parts = both["parts"].as_array().expect("parts");
    assert_eq!(
        (parts.len(), parts[0]["pid"].as_u64(), parts[1]["pid"].as_u64()),
        (2, first["pid"].as_u64(), first["pid"].as_u64())
    );
    assert_eq!(number(&parts[0], &["allocated", "objects"]), number(&first, &["allocated", "objects"]));
    let appended = number(&parts[1], &["allocated", "objects"]);
    assert!((5000..=u64::from(step - from) * 1000 + 100).contains(&appended), "{appended}");
    assert_eq!(by_function(&both)["step"][0], by_function(&first)["step"][0] + appended);
    let cautions = both["cautions"].to_string();
    assert!(cautions.contains("the recording of part 1 was not finished"), "{cautions}");
    target.send("end\n");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn what_cannot_be_appended_to_is_left_as_it_is() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &[], &[traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let whole = std::fs::read(pool.files().join(FILE)).unwrap();
    let mut damaged = whole.clone();
    let middle = whole.windows(4).position(|bytes| bytes == b"PBLK").unwrap() + 60;
    let middle = middle + whole[middle..].windows(4).position(|bytes| bytes == b"PBLK").unwrap();
    damaged[middle + 20] ^= 1;
    for (file, bytes, says) in [
        ("other", &b"not a recording at all"[..], "is no recording"),
        ("newer", b"POOLRECO\x63\0\0\0\0\0\0\0", "of version 99"),
        ("cut", b"POOLRECO\x02\0\0\0\0\0\0\0", "its first block is missing"),
        ("damaged", &damaged, "record to another file"),
    ] {
        std::fs::write(pool.files().join(file), bytes).unwrap();
        let output = pool.poolscope().args(["record", "--append", "-o", file, "--", "/bin/true"]).run();
        assert!(output.code() == 2 && output.stderr.contains(says), "{file}: {}", output.report());
        assert_eq!(std::fs::read(pool.files().join(file)).unwrap(), bytes, "{file}");
    }
    let output = pool.poolscope().args(["record", "--append", "--limit", "64K", "-o", FILE, "--", "/bin/true"]).run();
    assert!(output.code() == 2 && output.stderr.contains("--limit is"), "{}", output.report());

    let (mut target, mut step) = (steps(&pool), 0);
    let _first = attach(&pool, &mut target, &[], &mut step);
    for option in [&["--append"][..], &[]] {
        let second = pool.poolscope().args(["record", "-o", FILE]).args(option).args(["--", "/bin/true"]).run();
        assert!(
            second.code() == 2 && second.stderr.contains("another `poolscope record` writes to"),
            "{}",
            second.report()
        );
    }
}

/// A statically linked program, which no library can be loaded into.
fn static_program(pool: &Pool) -> PathBuf {
    let output = pool.files().join("static");
    compile_into(&output, Path::new("tests/csrc/traced.c"), &["-O2", "-fno-builtin", "-static"], &[]);
    output
}

#[test]
fn a_recording_stays_until_there_is_a_new_one() {
    let pool = Pool::new();
    let outside = static_program(&pool);
    let (outside, path) = (outside.to_str().unwrap(), pool.files().join(FILE));
    let other = Program::new("sleep").arg("100").start();
    let other = other.pid().to_string();
    let (mut target, mut step) = (steps(&pool), 0);
    let _recorder = attach(&pool, &mut target, &[], &mut step);
    let recorded = target.pid().to_string();
    let old = pool.files().join("old.rec");
    let run = |args: &[&str], code: i32, says: &str| {
        let output = pool.poolscope().args(["record"]).args(args).run();
        assert!(output.code() == code && output.stderr.contains(says), "{args:?}: {}", output.report());
    };
    for (what, code, says) in [
        (&["--", "/nonexistent/program"][..], 127, "no such file"),
        (&["--", "/etc/passwd"], 126, "not executable"),
        (&["--", outside, "calls"], 2, "was not on the pool"),
        (&[&other], 2, "does not run on the pool"),
        (&[&recorded], 2, "is being recorded already"),
        (&[&recorded, "--append"], 2, ""),
    ] {
        for file in ["old.rec", "new.rec"] {
            std::fs::write(&old, "an old recording").unwrap();
            run(&[&["-o", file], what].concat(), code, says);
            assert_eq!(std::fs::read_to_string(&old).unwrap(), "an old recording", "{what:?}");
            assert!(!pool.files().join("new.rec").exists(), "{what:?} left a file");
        }
    }
    // The program that does not answer, because it does nothing.
    let idle = steps(&pool);
    run(&["-o", "old.rec", "--duration", "0.1", &idle.pid().to_string()], 2, "nothing was recorded");
    assert_eq!(std::fs::read_to_string(&old).unwrap(), "an old recording");
    // And the one that does takes its place.
    std::fs::copy(&path, &old).unwrap();
    run(
        &["-o", "old.rec", "--", program(&pool, "tests/csrc/traced.c", &[]).to_str().unwrap(), "calls"],
        0,
        "nothing was lost",
    );
    let read = pool.poolscope().args(["report", "old.rec", "--json"]).run();
    let read: Value = serde_json::from_str(&read.stdout).expect("the report is JSON");
    assert!(number(&read, &["allocated", "objects"]) > 4000);
}

#[test]
fn a_program_that_is_killed_right_after_its_recorder_came_is_recorded_or_said_not_to_be() {
    let pool = Pool::new();
    let traced = traced(&pool);
    for micros in [0, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 50_000] {
        let _ = std::fs::remove_file(pool.files().join(FILE));
        let mut target = pool.program(&traced).arg("spin").start();
        target.wait_for_line("spinning");
        let recorder = pool.poolscope().args(["record", "--lossless", &target.pid().to_string(), "-o", FILE]).start();
        std::thread::sleep(std::time::Duration::from_micros(micros));
        drop(target);
        let output = recorder.finish();
        match output.code() {
            0 => {
                let report = report(&pool, &[]);
                let events = number(&report, &["allocated", "objects"]) + number(&report, &["lost", "unknown_frees"]);
                assert!(events > 0, "{}", output.report());
            }
            2 => assert!(!pool.files().join(FILE).exists(), "{}", output.report()),
            _ => panic!("{}", output.report()),
        }
        let left: Vec<_> =
            std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".trace")), "{micros}: {left:?}");
    }
}

/// It answers its recorder by the thread that gives its idle memory back, and calls nothing.
#[test]
fn a_program_that_allocates_nothing_while_it_is_recorded_leaves_the_file_as_it_was() {
    let pool = Pool::new();
    let idle = compile(pool.files(), "idle.c", "idle", &["-O2", "-fno-builtin", "-pthread"]);
    // It looks for a recorder twenty times a second.
    let target = pool.program(idle).arg("freed-small").env("POOLSCOPE_SCAVENGE_MS", "600000");
    let mut target = target.env("POOLSCOPE_GC_MS", "100").start();
    target.wait_for_line("PEAK");
    target.send("\n");
    target.wait_for_line("READY");
    let recording = record(&pool, &[], &[traced(&pool).to_str().unwrap(), "calls"]);
    assert_eq!(recording.code(), 0, "{}", recording.report());
    let old = std::fs::read(pool.files().join(FILE)).unwrap();
    let pid = target.pid().to_string();
    let recorder = |options: &[&str]| pool.poolscope().args(["record", &pid]).args(options).start();
    let assert_nothing = |output: Output, why: &str| {
        assert_eq!(output.code(), 2, "{}", output.report());
        let says = format!("nothing was recorded: {why}, and until then no allocation or free of the program came");
        assert!(output.stderr.contains(&says), "{}", output.report());
        assert!(!pool.files().join("new.rec").exists(), "a file was left: {}", output.report());
        assert_eq!(std::fs::read(pool.files().join(FILE)).unwrap(), old, "{}", output.report());
        let left = std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(left.filter(|name| name.to_string_lossy().ends_with(".trace")).count(), 0);
    };
    for options in [&["-o", "new.rec"][..], &["-o", FILE], &["-o", FILE, "--append"]] {
        let options = [options, &["--duration", "1.5"]].concat();
        assert_nothing(recorder(&options).finish(), "the time of --duration is over");
    }
    let output = recorder(&["-o", "-", "--duration", "1.5"]).finish();
    assert!(output.stdout.is_empty(), "{}", output.report());
    assert_nothing(output, "the time of --duration is over");
    let mut killed = recorder(&["-o", "new.rec"]);
    killed.wait_until("the recorder heard the answer", |_| {
        let mut files = std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.path());
        let trace = files.find(|path| path.extension().is_some_and(|end| end == "trace"))?;
        let opened = std::mem::offset_of!(TraceHeader, opened);
        (std::fs::read(trace).ok()?.get(opened) == Some(&1)).then_some(())
    });
    drop(target);
    assert_nothing(killed.finish(), "the program ended");
}

#[test]
fn a_full_folder_is_the_reason_that_nothing_was_recorded() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let script = "set -e; mount -t tmpfs -o mode=0700,nr_blocks=$2 tmpfs \"$1\"; \
                  code=0; POOLSCOPE_DIR=$1 \"$3\" record -o full.rec -- \"$4\" calls || code=$?; \
                  echo left: \"$1\"/*.trace; exit $code";
    // SAFETY: geteuid has no preconditions.
    let namespaces = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    let folder = pool.files().join("full");
    std::fs::create_dir(&folder).unwrap();
    let file = pool.files().join("full.rec");
    let begun = std::time::Instant::now();
    let mut codes = std::collections::BTreeSet::new();
    // No segment; no room for a ring; room.
    for blocks in ["1", "30", "60", "100", "2000"] {
        std::fs::write(&file, "an old recording").unwrap();
        let output = Program::new("unshare")
            .args([namespaces, "bash", "-c", script, "bash"])
            .args([&folder, Path::new(blocks), &poolscope_e2e::poolscope(), &traced])
            .dir(pool.files().path())
            .env("POOLSCOPE_LIB", poolscope_e2e::library())
            .run();
        assert!(output.stdout.contains("with_large 100 "), "the program ran: {}", output.report());
        assert!(output.stdout.trim_end().ends_with("*.trace"), "a file is left: {}", output.report());
        let text = std::fs::read(&file).unwrap();
        match output.code() {
            2 => {
                assert_eq!(text, b"an old recording", "{}", output.report());
                assert!(
                    ["no room", "room in /dev/shm"].iter().any(|says| output.stderr.contains(says)),
                    "{}",
                    output.report()
                );
            }
            0 => assert!(output.stderr.contains("nothing was lost"), "{}", output.report()),
            _ => panic!("{}", output.report()),
        }
        codes.insert(output.code());
    }
    assert_eq!(codes.len(), 2, "both were seen");
    // None of the programs has waited for a recorder that could not come.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn standard_output_has_the_recording_to_itself() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let script = "\"$1\" record -o - -- \"$2\" calls > test.rec";
    let output = pool.poolscope().run();
    assert_eq!(output.code(), 2, "without a command it says how it is used");
    let output = Program::new("bash")
        .args(["-c", script, "bash"])
        .args([poolscope_e2e::poolscope(), traced])
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .dir(pool.files().path())
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stdout.is_empty() && output.stderr.contains("in standard output"), "{}", output.report());
    assert!(!pool.files().join("-").exists(), "no file of that name");
    let said: String =
        output.stderr.lines().filter(|line| line.starts_with("with_")).map(|line| format!("{line}\n")).collect();
    assert_as_said(&report(&pool, &[]), &said);
    let output = pool.poolscope().args(["record", "--append", "-o", "-", "--", "/bin/true"]).run();
    assert!(output.code() == 2 && output.stderr.contains("--append needs a file"), "{}", output.report());
}

#[test]
fn a_command_waits_for_its_recorder_and_a_process_that_runs_already_does_not() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let spin = [traced.to_str().unwrap(), "handover", "300000"];
    let begun = std::time::Instant::now();
    let output = record(&pool, &["--ring", "64K"], &spin);
    assert_eq!(output.code(), 0, "{}", output.report());
    // The rings fill up more than two hundred times. The recorder is called then,
    // and does not come with its next nap's end only.
    assert!(begun.elapsed() < std::time::Duration::from_secs(11), "{:?}", begun.elapsed());
    let waited = report(&pool, &[]);
    assert_nothing_lost(&waited);
    assert_eq!(waited["lossless"].as_bool(), Some(true));
    let output = record(&pool, &["--ring", "64K", "--lossy"], &spin);
    assert_eq!((output.code(), report(&pool, &[])["lossless"].as_bool()), (0, Some(false)), "{}", output.report());

    let (mut target, mut step) = (steps(&pool), 0);
    for (options, waits) in [(&[][..], false), (&["--lossless"], true)] {
        let recorder = attach(&pool, &mut target, options, &mut step);
        recorder.signal(libc::SIGINT);
        assert_eq!(recorder.finish().code(), 0);
        assert_eq!(report(&pool, &[])["lossless"].as_bool(), Some(waits));
    }
}

/// Small, medium and large blocks, with samples and without: whatever a thread serves itself from,
/// it hears of a recorder.
#[test]
fn a_program_that_only_takes_up_what_it_has_freed_is_recorded() {
    let pool = Pool::new();
    let traced = traced(&pool);
    for period in ["512K", "1024G"] {
        for bytes in ["64", "1500", "4096", "200000", "1000000"] {
            let mut target = pool.program(&traced).args(["reuse", bytes]).env("POOLSCOPE_PERIOD", period).start();
            target.wait_for_line("reusing");
            let output = pool
                .poolscope()
                .args(["record", &target.pid().to_string(), "--lossless", "--duration", "1.5", "-o", FILE])
                .run();
            assert_eq!(output.code(), 0, "{bytes} bytes, a period of {period}: {}", output.report());
            let [allocs, of_bytes, _] = by_function(&report(&pool, &[]))["reuse"];
            assert_eq!(of_bytes, allocs * bytes.parse::<u64>().unwrap());
            assert!(allocs > 100, "{bytes} bytes, a period of {period}: {allocs} allocations");
        }
    }
}

#[test]
fn the_recorder_of_an_idle_program_sleeps_and_hears_it_when_it_goes_on() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let recorder = attach(&pool, &mut target, &["--lossless"], &mut step);
    let pid = recorder.pid();
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let statuses = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).unwrap());
        let of = |status: &str| -> u64 {
            let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
            lines.map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        statuses.map(|status| of(&status)).sum::<u64>()
    };
    // What it has to do at the start is over.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (begun, before) = (std::time::Instant::now(), switches());
    std::thread::sleep(std::time::Duration::from_secs(3));
    let wakes = (switches() - before) as f64 / begun.elapsed().as_secs_f64();
    assert!(wakes < 25.0, "{wakes} wake-ups a second");
    let from = step;
    for _ in 0..50 {
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    assert_eq!(recorder.finish().code(), 0);
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert!(by_function(&report)["step"][0] >= u64::from(step - from) * 1000);
}

#[test]
fn a_second_recorder_is_refused_and_the_first_one_goes_on() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let first = attach(&pool, &mut target, &[], &mut step);
    let second = pool.poolscope().args(["record", &target.pid().to_string(), "-o", "second.rec"]).run();
    assert!(second.code() == 2 && second.stderr.contains("being recorded already"), "{}", second.report());
    take_step(&mut target, &mut step);
    first.signal(libc::SIGINT);
    assert_eq!(first.finish().code(), 0);
    assert_nothing_lost(&report(&pool, &[]));
}

/// Waits until the recorder has taken everything out of the first ring: the allocations that found no room there.
fn wait_until_read(pool: &Pool, recorder: &mut Running) -> u64 {
    recorder.wait_until("the recorder read the ring", |_| {
        let mut files = std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.path());
        let trace = File::open(files.find(|path| path.extension().is_some_and(|end| end == "trace"))?).ok()?;
        let mut header = [0; RingHeader::LEN];
        trace.read_exact_at(&mut header, TRACE_PAGE as u64).ok()?;
        let ring = RingHeader::from_bytes(&header)?;
        (ring.head > 0 && ring.tail == ring.head).then_some(ring.lost_allocs)
    })
}

#[test]
fn a_recorder_that_sleeps_costs_events_which_are_counted() {
    let pool = Pool::new();
    let (mut target, mut step) = (steps(&pool), 0);
    let mut recorder = attach(&pool, &mut target, &["--ring", "64K"], &mut step);
    // A recorder that is short of time loses some, too: it gets the time it needs while it does not sleep.
    let before = wait_until_read(&pool, &mut recorder);
    recorder.signal(libc::SIGSTOP);
    let first = step;
    // Longer than the program waits before it asks whether the recorder lives.
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_millis(2500) {
        take_step(&mut target, &mut step);
    }
    let slept = u64::from(step - first) * 1000;
    recorder.signal(libc::SIGCONT);
    for _ in 0..20 {
        wait_until_read(&pool, &mut recorder);
        take_step(&mut target, &mut step);
    }
    recorder.signal(libc::SIGINT);
    let output = recorder.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    let lost = &report["lost"]["threads"][0];
    let (allocs, frees) = (number(lost, &["allocs"]) - before, number(lost, &["frees"]));
    assert!(allocs > slept / 4 && frees > slept / 4 && allocs <= slept, "{lost}, {slept} while it slept");
    assert!(report["cautions"][0].as_str().unwrap().contains("figures are too low"), "{}", report["cautions"]);
    // What came afterwards is there.
    assert!(by_function(&report)["step"][0] > 10_000);
    assert!(output.stderr.contains("lost of thread"), "{}", output.report());
}

#[test]
fn a_program_that_is_killed_is_recorded_up_to_there() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let mut recorder = pool.poolscope().args(["record", "-o", FILE, "--"]).arg(traced).arg("spin").start();
    recorder.wait_for_line("spinning");
    let pid = recorder.pid();
    let child: i32 = recorder.wait_until("the program is a child", |_| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.trim().parse().ok()
    });
    std::thread::sleep(std::time::Duration::from_millis(300));
    // SAFETY: the child of the recorder, which has not waited for it.
    unsafe { libc::kill(child, libc::SIGKILL) };
    let output = recorder.finish();
    assert_eq!(output.code(), 128 + 9, "{}", output.report());
    assert!(pool.files().join(FILE).exists(), "{}", output.report());
    let report = report(&pool, &[]);
    assert_eq!(report["finished"].as_bool(), Some(true));
    assert!(by_function(&report)["step"][0] > 1000);
    let left: Vec<_> =
        std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".trace")), "{left:?}");
}

/// Numbers of processes come again, and segments of killed ones stay.
#[test]
fn a_segment_that_an_earlier_process_of_the_same_number_left_is_not_taken_for_the_commands() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let dead = pool.program(&traced).arg("calls").start();
    let pid = dead.pid();
    dead.finish().success();
    let left = pool.segment(pid).expect("its segment stays");
    // The next few thousand numbers.
    for number in pid + 1..pid + 4000 {
        leave_to(&pool, &left, number);
    }
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert_as_said(&report(&pool, &[]), &output.stdout);
}

/// Puts the beginning of a segment there as if a process of this number had left it: the path.
fn leave_to(pool: &Pool, left: &Segment, number: u32) -> PathBuf {
    let path = pool.segment_dir().join(format!("{number}.{:016x}", left.header.generation));
    let mut header = [0; HEADER_LEN];
    let whole = File::open(&left.path).unwrap();
    whole.read_exact_at(&mut header, 0).unwrap();
    let at = std::mem::offset_of!(Header, pid);
    header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    let file = File::create(&path).unwrap();
    file.write_all_at(&header, 0).unwrap();
    file.set_len(whole.metadata().unwrap().len()).unwrap();
    path
}

#[test]
fn a_process_without_the_pool_is_not_taken_for_an_earlier_one_of_its_number() {
    let pool = Pool::new();
    let dead = pool.program(traced(&pool)).arg("calls").start();
    let pid = dead.pid();
    dead.finish().success();
    let left = pool.segment(pid).expect("its segment stays");
    let sleeper = Program::new("sleep").arg("100").start();
    let path = leave_to(&pool, &left, sleeper.pid());
    let output = pool.poolscope().args(["record", &sleeper.pid().to_string()]).run();
    let says = format!("left {}: name that file to read it", path.display());
    assert!(
        output.code() == 2 && output.stderr.contains("does not run on the pool") && output.stderr.contains(&says),
        "{}",
        output.report()
    );
}

#[test]
fn a_forked_child_is_not_recorded_and_an_exec_begins_anew() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "fork"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let parent = report(&pool, &[]);
    assert_nothing_lost(&parent);
    assert_as_said(&parent, &output.stdout);
    assert!(!by_function(&parent).contains_key("of_the_child"));

    let output = record(&pool, &["--lossless"], &["env", "A=1", traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let after = report(&pool, &[]);
    assert_nothing_lost(&after);
    assert!(after["exe"].as_str().unwrap().ends_with("traced"), "{}", after["exe"]);
    assert_as_said(&after, &output.stdout);
}

#[test]
fn a_hundred_thousand_stacks_are_told_apart_in_bounded_memory() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "stacks", "100000"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    assert_as_said(&report, &output.stdout);
    let sites = report["sites"].as_array().unwrap().len();
    assert!(sites > 100_000, "{sites} sites");
    assert!(number(&report, &["recorder_bytes"]) < 256 << 20);
}

#[test]
fn a_recording_stops_at_its_limit_and_the_program_goes_on() {
    let pool = Pool::new();
    let churn = program(&pool, "samples/csrc/churn.cpp", &["-fno-optimize-sibling-calls"]);
    let output = record(&pool, &["--limit", "512K"], &[churn.to_str().unwrap(), "1000000"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stdout.contains("ns a pair"), "the program ran to its end");
    assert!(output.stderr.contains("the size that --limit allows"), "{}", output.report());
    let bytes = std::fs::metadata(pool.files().join(FILE)).unwrap().len();
    assert!((128 << 10..=512 << 10).contains(&bytes), "{bytes} bytes");
    assert_eq!(report(&pool, &[])["finished"].as_bool(), Some(true));
}

/// When it goes on, its first reading finds more in the rings than the file has room for.
#[test]
fn a_recorder_that_was_held_up_stops_at_its_limit() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let command = ["record", "--limit", "512K", "-o", FILE, "--", traced.to_str().unwrap(), "handover", "100000", "16"];
    let mut recorder = pool.poolscope().args(command).start();
    recorder.wait_until("the recording began", |_| pool.files().join(FILE).exists().then_some(()));
    recorder.signal(libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_millis(700));
    recorder.signal(libc::SIGCONT);
    let output = recorder.finish();
    assert!(output.code() == 0 && output.stderr.contains("the size that --limit allows"), "{}", output.report());
    let bytes = std::fs::metadata(pool.files().join(FILE)).unwrap().len();
    assert!((128 << 10..=512 << 10).contains(&bytes), "{bytes} bytes");
    assert_eq!(report(&pool, &[])["finished"].as_bool(), Some(true));
}

#[test]
fn a_long_run_takes_at_most_four_bytes_a_pair() {
    let pool = Pool::new();
    let churn = program(&pool, "samples/csrc/churn.cpp", &["-fno-optimize-sibling-calls"]);
    let output = record(&pool, &["--lossless"], &[churn.to_str().unwrap(), "1000000"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let report = report(&pool, &[]);
    assert_nothing_lost(&report);
    let pairs = number(&report, &["allocated", "objects"]);
    let bytes = number(&report, &["file_bytes"]);
    assert!(pairs > 1_000_000 && bytes < 4 * pairs, "{bytes} bytes for {pairs} pairs");
    let peak = number(&report, &["peak", "objects"]);
    assert!((10_000..10_010).contains(&peak), "{peak}");
    // 256 call paths, each as often.
    let paths =
        report["sites"].as_array().unwrap().iter().filter(|site| number(site, &["allocated", "objects"]) > 1000);
    assert_eq!(paths.count(), 256);
}

#[test]
fn programs_that_nobody_here_wrote_are_recorded_whole() {
    let pool = Pool::new();
    let sql = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) \
               insert into t select i, hex(randomblob(20)) from n; select count(distinct b) from t;";
    let output = record(&pool, &["--lossless"], &["sqlite3", ":memory:", sql]);
    assert_eq!((output.code(), output.stdout.trim()), (0, "20000"), "{}", output.report());
    let of_sqlite = report(&pool, &[]);
    assert_nothing_lost(&of_sqlite);
    assert!(number(&of_sqlite, &["allocated", "objects"]) > 20_000);

    let code = "import json, threading\ndef work():\n  for i in range(200): json.loads(json.dumps({str(n): [n] * 5 for n in range(50)}))\n\
                threads = [threading.Thread(target=work) for _ in range(2)]\nfor t in threads: t.start()\nfor t in threads: t.join()\nprint('done')";
    let output = record(&pool, &["--lossless"], &["/usr/bin/python3", "-c", code]);
    assert_eq!((output.code(), output.stdout.trim()), (0, "done"), "{}", output.report());
    let of_python = report(&pool, &[]);
    assert_nothing_lost(&of_python);
    assert!(of_python["threads"].as_array().unwrap().len() >= 3);
}

#[test]
fn recordings_are_read_by_every_command_that_reads_profiles() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record(&pool, &["--lossless"], &[traced.to_str().unwrap(), "calls"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let run = |args: &[&str]| {
        let output = pool.poolscope().args(args).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        output.stdout
    };
    run(&["dump", FILE, "--peak", "-o", "peak.pb.gz"]);
    pprof_rules::check(
        &pool.files().join("peak.pb.gz"),
        &Expected { main: "traced", shown: "inuse_space", delta: false },
    );
    run(&["flamegraph", FILE, "--metric", "alloc_space", "-o", "allocated.svg"]);
    assert!(std::fs::read_to_string(pool.files().join("allocated.svg")).unwrap().contains("with_large"));
    run(&["flamegraph", FILE, "--peak", "-o", "peak.svg"]);
    run(&["flamegraph", FILE, "--leaked", "-o", "leaked.svg"]);
    let page = pool.files().join("page.html");
    run(&["report", FILE, "--html", "page.html"]);
    let page = std::fs::read_to_string(page).unwrap();
    for part in ["<svg", "Temporary allocations", "with_realloc", "Nearly empty pages"] {
        assert!(page.contains(part), "the page has no {part}");
    }
    assert!(!page.contains("http://") || page.contains("http://www.w3.org"), "nothing is fetched");
    assert!(run(&["report", FILE]).contains("nothing was lost"));
}

#[test]
fn what_is_no_recording_and_what_cannot_be_recorded_is_said() {
    let pool = Pool::new();
    std::fs::write(pool.files().join("other"), "not a recording at all").unwrap();
    std::fs::write(pool.files().join("cut"), &b"POOLRECO\x02\0\0\0\0\0\0\0"[..]).unwrap();
    std::fs::write(pool.files().join("newer"), &b"POOLRECO\x63\0\0\0\0\0\0\0"[..]).unwrap();
    let other = Program::new("sleep").arg("100").start();
    let pid = other.pid().to_string();
    for (args, says) in [
        (&["report", "other"][..], "is no recording"),
        (&["report", "cut"], "its first block is missing"),
        (&["report", "newer"], "of version 99"),
        (&["report", "missing"], "cannot read missing"),
        (&["report", "other", "--from", "5", "--to", "1"], "--from is after --to"),
        (&["record", &pid, "-o", "x.rec"], "does not run on the pool"),
        (&["record", "--limit", "10", "--", "true"], "--limit is too small"),
        (&["record", "--ring", "100K", "--", "true"], "a power of two"),
        (&["record", "-o", "/nonexistent/x.rec", "--", "/bin/true"], "/nonexistent/x.rec"),
    ] {
        let output = pool.poolscope().args(args).run();
        assert!(output.code() == 2 && output.stderr.contains(says), "{args:?}: {}", output.report());
    }
    let output = record(&pool, &[], &["/nonexistent/program"]);
    assert_eq!(output.code(), 127, "{}", output.report());
}
