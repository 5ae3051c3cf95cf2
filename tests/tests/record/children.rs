//! All that a command starts, each process with a recording of its own.

use std::fs;
use std::time::{Duration, Instant};

use poolscope_e2e::{Output, Pool, poolscope};
use serde_json::Value;

use crate::harness::{assert_as_said, assert_nothing_lost, by_function, traced};

/// Records a command and what it starts.
fn record_all(pool: &Pool, command: &[&str]) -> Output {
    pool.poolscope().args(["record", "--children", "-o", "all.%p.rec", "--"]).args(command).run()
}

fn report_of(pool: &Pool, pid: &str) -> Value {
    let output = pool.poolscope().args(["report", &format!("all.{pid}.rec"), "--json"]).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    serde_json::from_str(&output.stdout).expect("the report is JSON")
}

/// Names of the files with recordings.
fn recordings(pool: &Pool) -> Vec<String> {
    let entries = fs::read_dir(pool.files().path()).expect("the folder can be read");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
    names.filter(|name| name.ends_with(".rec")).collect()
}

#[test]
fn each_process_that_a_command_starts_has_a_recording_of_its_own() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let script = format!(
        "{0} calls > first & echo $!; wait; (env A=1 {0} calls > second; :) & wait; exec {0} handover 500 > third",
        traced.display()
    );
    let output = record_all(&pool, &["sh", "-c", &script]);
    assert_eq!(output.code(), 0, "{}", output.report());

    let first = report_of(&pool, output.stdout.trim());
    assert_nothing_lost(&first);
    assert_as_said(&first, &fs::read_to_string(pool.files().join("first")).expect("what it said"));
    // What became another program twice by `exec` has one recording, of the last one; and so has the command.
    let mut kinds = Vec::new();
    for name in recordings(&pool) {
        let report = report_of(&pool, name.split('.').nth(1).expect("a number"));
        assert_nothing_lost(&report);
        if report["exe"].as_str().expect("a path").ends_with("traced") {
            let is_handover = by_function(&report).contains_key("exchange");
            kinds.push(if is_handover { "third" } else { "second" });
            let said = fs::read_to_string(pool.files().join(kinds[kinds.len() - 1])).expect("what it said");
            assert_as_said(&report, &said);
        }
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["second", "second", "third"], "{}", output.report());
    let count = recordings(&pool).len();
    assert!(output.stderr.contains(&format!("{count} processes recorded, with ")), "{}", output.report());
    assert!(output.stderr.contains(&format!("of traced ({}) in all.", output.stdout.trim())), "{}", output.report());
}

#[test]
fn forked_children_are_recorded_from_their_first_allocation_on() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = record_all(&pool, &[traced.to_str().expect("a path"), "fork"]);
    assert_eq!(output.code(), 0, "{}", output.report());
    let files = recordings(&pool);
    assert_eq!(files.len(), 2, "{files:?}, {}", output.report());
    let mut of_the_child = 0;
    for name in files {
        let report = report_of(&pool, name.split('.').nth(1).expect("a number"));
        assert_nothing_lost(&report);
        match by_function(&report).get("of_the_child") {
            None => assert_as_said(&report, &output.stdout),
            Some(&[allocs, bytes, frees]) => {
                let all = (1..=1000).sum::<u64>();
                assert_eq!([allocs, bytes, frees], [1000, all, 0]);
                of_the_child += 1;
            }
        }
    }
    assert_eq!(of_the_child, 1);
}

/// A launcher is over before what it started: that is recorded to its end.
#[test]
fn what_a_command_leaves_behind_is_recorded_to_its_end() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let script = format!("(sleep 0.5; exec {} calls > left) & echo $!", traced.display());
    let output = record_all(&pool, &["sh", "-c", &script]);
    assert_eq!(output.code(), 0, "{}", output.report());
    // Whether its shell has started `sleep` by then, or not.
    let said = |processes| format!("the command has ended, what it started is recorded on ({processes})");
    let is_said = ["1 process", "2 processes"].iter().any(|processes| output.stderr.contains(&said(processes)));
    assert!(is_said, "{}", output.report());
    let left = report_of(&pool, output.stdout.trim());
    assert_nothing_lost(&left);
    assert_as_said(&left, &fs::read_to_string(pool.files().join("left")).expect("what it said"));
}

/// What the inner one's command starts has a recorder that lives, and that does not come for it.
#[test]
fn a_recorder_within_a_recording_records_its_command_alone() {
    let pool = Pool::new();
    let script = format!("{} calls > said; :", traced(&pool).display());
    let inner = ["record", "-o", "inner.rec", "--", "sh", "-c", &script];
    let poolscope = poolscope();
    let command = [&[poolscope.to_str().expect("a path")][..], &inner].concat();
    let begun = Instant::now();
    let output = record_all(&pool, &command);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}, {}", begun.elapsed(), output.report());
    assert!(pool.files().join("inner.rec").exists() && !output.stderr.contains("of traced"), "{}", output.report());
}

/// It makes only the system calls of the C library's allocator, and has no segment.
#[test]
fn a_plain_program_and_its_forked_children_are_not_recorded() {
    let pool = Pool::new();
    let traced = traced(&pool);
    let output = pool
        .poolscope()
        .args(["record", "--children", "-o", "all.%p.rec", "--", "env", "POOLSCOPE_PLAIN=1"])
        .args([traced.to_str().expect("a path"), "fork"])
        .run();
    assert!(output.stdout.starts_with("with_malloc "), "{}", output.report());
    assert!(!output.stderr.contains("of traced"), "{}", output.report());
}

/// The environment outlives the recorder, in a daemon that is started anew.
#[test]
fn a_process_whose_recorder_has_gone_does_not_wait_for_it() {
    let pool = Pool::new();
    let gone = pool.poolscope().args(["list"]).start();
    let pid = gone.pid();
    gone.finish().success();
    let begun = Instant::now();
    let output = pool
        .program(traced(&pool))
        .args(["calls"])
        .env("POOLSCOPE_RECORDER", pid.to_string())
        .env("POOLSCOPE_RECORD_CHILDREN", "1")
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn names_of_recordings_say_for_which_processes_they_are() {
    let pool = Pool::new();
    let refused = |options: &[&str], says: &str| {
        let output = pool.poolscope().arg("record").args(options).args(["--", "touch", "started"]).run();
        assert!(output.code() == 2 && output.stderr.contains(says), "{options:?}: {}", output.report());
        assert!(!pool.files().join("started").exists());
    };
    refused(&["--children", "-o", "all.rec"], "put %p, which stands for its id, into the file's name");
    refused(&["-o", "all.%p.rec"], "needs --children");
    refused(&["--children", "-o", "nowhere/all.%p.rec"], "cannot write recordings to nowhere");
    refused(&["--children", "--append", "-o", "all.%p.rec"], "cannot be used with");
    // A name need not be given.
    let output = pool.poolscope().args(["record", "--children", "--", "sh", "-c", "sh -c :; :"]).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(recordings(&pool).iter().all(|name| name.starts_with("poolscope.")), "{:?}", recordings(&pool));
}
