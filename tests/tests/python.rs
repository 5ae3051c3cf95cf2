//! Python's functions in stacks, as people see them, compared with what Python itself says of its calls.

use std::collections::BTreeMap;
use std::path::Path;

use poolscope_e2e::{Pool, Running, calls, pythons, repository};
use serde_json::Value;

/// The first version whose calls the library can read.
const FIRST: u32 = 8;

/// Starts the script that allocates in calls of many kinds. Gives what Python says of the calls of each block, by its
/// bytes: names and lines, innermost first.
fn start(pool: &Pool, python: &Path, args: &[&str]) -> (Running, BTreeMap<u64, String>) {
    let mut running = pool
        .program(python)
        .args(args)
        .arg(repository().join("tests/python/calls.py"))
        .env("POOLSCOPE_PERIOD", "1")
        .env("PYTHONIOENCODING", "utf-8")
        .start();
    running.wait_for_line("ready");
    let said = calls::said(&running.stdout());
    (running, said)
}

/// A frame as the script says it, if it is a function's of Python's.
fn call(frame: &Value) -> Option<String> {
    let (name, file) = frame["function"].as_str()?.rsplit_once(" (")?;
    let is_python = file.ends_with(".py)") || file.starts_with('<');
    is_python.then(|| format!("{name}:{}", frame["line"]))
}

#[track_caller]
fn assert_same_calls(report: &Value, what: &str, said: &BTreeMap<u64, String>) {
    calls::assert_same(report, what, said, call);
}

#[test]
fn stacks_have_the_functions_and_lines_that_python_says_it_runs() {
    let found = pythons::from_version(FIRST);
    assert!(!found.is_empty(), "no CPython 3.{FIRST} or later");
    for python in found {
        let pool = Pool::new();
        let (mut running, said) = start(&pool, &python, &[]);
        let pid = running.pid().to_string();
        assert_same_calls(&pool.json(&["report", &pid, "--json"]), "in_use", &said);
        running.send("\n");
        running.finish();
    }
}

#[test]
fn a_function_that_is_called_through_its_perf_map_stands_in_a_stack_once() {
    for python in pythons::from_version(12) {
        let pool = Pool::new();
        let (mut running, said) = start(&pool, &python, &["-X", "perf"]);
        let pid = running.pid().to_string();
        assert_same_calls(&pool.json(&["report", &pid, "--json"]), "in_use", &said);
        running.send("\n");
        running.finish();
    }
}

#[test]
fn a_recording_has_the_functions_and_lines_that_python_says_it_runs() {
    for python in pythons::from_version(FIRST) {
        let pool = Pool::new();
        let recording = pool.files().join("calls.rec");
        let record = |args: &[&str]| {
            let command = pool.poolscope().args(["record", "-q", "--free-stacks"]).args(args).arg("-o").arg(&recording);
            let command = command.arg("--").arg(&python).arg(repository().join("tests/python/calls.py"));
            let ended = command.env("PYTHONIOENCODING", "utf-8").run();
            assert_eq!(ended.code(), 0, "{}", ended.report());
            calls::said(&ended.stdout)
        };
        let said = record(&[]);
        // Another part has functions of its own, which are the same.
        assert_eq!(record(&["--append"]), said);
        let twice = said.into_iter().map(|(bytes, calls)| (2 * bytes, calls)).collect();
        let report = pool.json(&["report", &recording.to_string_lossy(), "--json"]);
        assert_same_calls(&report, "allocated", &twice);
    }
}

#[test]
fn a_process_and_a_recording_have_the_same_paths() {
    let (pool, python) = (Pool::new(), Path::new("/usr/bin/python3"));
    let (mut running, said) = start(&pool, python, &[]);
    let process = pool.files().join("calls.pb.gz");
    let pid = running.pid().to_string();
    assert_eq!(pool.poolscope().args(["dump", &pid, "-o"]).arg(&process).run().code(), 0);
    running.send("\n");
    running.finish();
    let recording = pool.files().join("calls.rec");
    let record = pool.poolscope().args(["record", "-q", "-o"]).arg(&recording).arg("--").arg(python);
    let record = record.arg(repository().join("tests/python/calls.py")).env("PYTHONIOENCODING", "utf-8");
    assert_eq!(record.run().code(), 0);
    let files = [&process, &recording].map(|file| file.to_string_lossy());
    let difference = pool.json(&["diff", &files[0], &files[1], "--metric", "alloc_space", "--json"]);
    let paths = difference["sites"].as_array().expect("has sites");
    // What is the same is not told, and of the deepest stack each has as much as there is room for.
    for (bytes, _) in said.into_iter().filter(|(_, calls)| calls.matches(';').count() < 100) {
        let has = |path: &Value, of: &str| path[of]["allocated"]["bytes"].as_f64() == Some(bytes as f64);
        let of_one = paths.iter().find(|path| has(path, "before") != has(path, "after"));
        assert!(of_one.is_none(), "{of_one:#?}");
    }
}

#[test]
fn a_process_that_was_killed_has_the_functions_that_it_ran() {
    let pool = Pool::new();
    let (running, said) = start(&pool, Path::new("/usr/bin/python3"), &[]);
    let segment = pool.segment(running.pid()).expect("has a segment");
    running.signal(libc::SIGKILL);
    running.finish();
    assert_same_calls(&pool.json(&["report", &segment.path.to_string_lossy(), "--json"]), "in_use", &said);
}

#[test]
fn a_forked_child_has_the_functions_of_its_parent_and_its_own() {
    let pool = Pool::new();
    let script = "import os, sys, time\n\
                  def parent():\n    return bytearray(200000)\n\
                  def child():\n    return bytearray(300000)\n\
                  kept = [parent()]\n\
                  pid = os.fork()\n\
                  if pid == 0:\n    kept.append(child())\n    print('ready', os.getpid(), flush=True)\n    \
                  time.sleep(60)\n\
                  sys.stdin.readline()\nos.kill(pid, 9)\n";
    let mut running = pool.program("/usr/bin/python3").args(["-c", script]).env("POOLSCOPE_PERIOD", "1").start();
    let ready = running.wait_for_line("ready");
    let child = ready.trim().rsplit(' ').next().expect("has a number");
    let report = pool.json(&["report", child, "--json"]);
    let said = [(200_001, "parent:3;<module>:6"), (300_001, "child:5;<module>:9")];
    assert_same_calls(&report, "in_use", &said.map(|(bytes, calls)| (bytes, calls.to_owned())).into());
    running.send("\n");
    running.finish();
}
