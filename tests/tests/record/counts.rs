//! What a recording has: every call with its stack and its bytes, whichever thread frees a block.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::{compile, compile_library, compile_with_headers};
use poolscope_e2e::{Pool, Program};
use serde_json::Value;

use crate::harness::{FILE, assert_as_said, assert_nothing_lost, by_function, number, record, report, traced};

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

fn idle_threads(pool: &Pool) -> PathBuf {
    let source = "tests/csrc/idle_threads.c";
    compile_with_headers(pool.files(), source, "idle_threads", &["-O1", "-g", "-pthread"])
}

/// That what so many threads of it did was recorded, and nothing lost.
#[track_caller]
fn assert_all_of(pool: &Pool, threads: u64) {
    let report = report(pool, &[]);
    assert_nothing_lost(&report);
    let [allocations, _, frees] = by_function(&report)["work"];
    assert_eq!((allocations, allocations - frees), (3000 * threads, 16 * threads));
}

/// Of more than 512 at a time, the events of the later ones were lost. Then each took 2 MiB of memory.
#[test]
fn six_hundred_threads_at_a_time_are_recorded_and_share_what_there_is_for_rings() {
    const THREADS: u64 = 600;
    let pool = Pool::new();
    let record = pool.poolscope().args(["record", "-o", FILE, "--"]).arg(idle_threads(&pool)).arg(THREADS.to_string());
    let mut recorder = record.start();
    recorder.wait_for_line(&format!("holds {}", 16 * THREADS));
    let segments = std::fs::read_dir(pool.segment_dir()).expect("the folder of segments");
    let files = segments.map(|entry| entry.expect("a file").path());
    let trace = files.into_iter().find(|path| path.extension().is_some_and(|name| name == "trace")).expect("a trace");
    let rings = trace.metadata().expect("it is there").blocks() * 512;
    assert!((200 << 20..300 << 20).contains(&rings), "{} MiB", rings >> 20);
    let output = recorder.finish();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert_all_of(&pool, THREADS);
}

/// As a container's `/dev/shm` is, unless somebody said otherwise. Thirty rings were all that it had room for, and the
/// other threads tried for one at each event.
#[test]
fn two_hundred_threads_are_recorded_in_a_folder_of_64_mib() {
    const THREADS: u64 = 200;
    let pool = Pool::new();
    let script = "set -e; mount -t tmpfs -o mode=0700,size=64m tmpfs \"$1\"; \
                  POOLSCOPE_DIR=$1 exec \"$2\" record -o \"$3\" -- \"$4\" \"$5\"";
    let folder = pool.files().join("small");
    std::fs::create_dir(&folder).unwrap();
    let output = Program::with_own_mounts()
        .args(["bash", "-c", script, "bash"])
        .args([&folder, &poolscope_e2e::poolscope(), Path::new(FILE), &idle_threads(&pool)])
        .arg(THREADS.to_string())
        .dir(pool.files().path())
        .env("POOLSCOPE_LIB", poolscope_e2e::library())
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert_all_of(&pool, THREADS);
}
