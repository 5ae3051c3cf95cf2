//! The file of a recording: what stays of an older one, what ends early, limits, and who reads it.

use std::path::Path;

use poolscope_e2e::compiler::compile;
use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Output, Pool, Program};
use poolscope_wire::trace::TraceHeader;
use serde_json::Value;

use crate::harness::{
    FILE, assert_as_said, assert_nothing_lost, attach, number, program, record, report, static_program, steps, traced,
};

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

/// The time of --duration begins with the program's answer, which needs a processor.
#[test]
fn a_program_that_waits_for_a_processor_is_given_as_long_to_answer() {
    let pool = Pool::new();
    let traced = traced(&pool);
    // It runs where another one runs, and only while that does not: a few milliseconds a second.
    let mut target = pool.program("taskset").args(["-c", "0", "chrt", "--idle", "0"]).arg(traced).arg("spin").start();
    target.wait_for_line("spinning");
    let busy = Program::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).start();
    let recorder = ["record", &target.pid().to_string(), "--lossless", "--duration", "0.2", "-o", FILE];
    let output = pool.poolscope().args(recorder).run();
    drop(busy);
    // What it allocates in the time that is left is another matter.
    assert!(!output.stderr.contains("did not answer"), "{}", output.report());
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
        (*std::fs::read(trace).ok()?.get(opened)? != 0).then_some(())
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
    let folder = pool.files().join("full");
    std::fs::create_dir(&folder).unwrap();
    let file = pool.files().join("full.rec");
    let begun = std::time::Instant::now();
    let mut codes = std::collections::BTreeSet::new();
    // No segment; no room for a ring; room.
    for blocks in ["1", "30", "60", "100", "2000"] {
        std::fs::write(&file, "an old recording").unwrap();
        let output = Program::with_own_mounts()
            .args(["bash", "-c", script, "bash"])
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
        (&["report", "missing"], "nor a file that is there"),
        (&["report", "other", "--from", "5", "--to", "1"], "--from is after --to"),
        (&["record", &pid, "-o", "x.rec"], "does not run on the pool"),
        (&["record", "--limit", "10", "--", "true"], "--limit is too small"),
        (&["record", "--ring", "100K", "--", "true"], "a power of two"),
        (&["record", "-o", "/dev/null/x.rec", "--", "/bin/true"], "/dev/null/x.rec"),
    ] {
        let output = pool.poolscope().args(args).run();
        assert!(output.code() == 2 && output.stderr.contains(says), "{args:?}: {}", output.report());
    }
    let output = record(&pool, &[], &["/nonexistent/program"]);
    assert_eq!(output.code(), 127, "{}", output.report());
}
