//! Python's functions in stacks, as people see them, compared with what Python itself says of its calls.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Pool, Program, Running, calls, pythons, repository};
use serde_json::Value;

/// The first version whose calls the library can read.
const FIRST: u32 = 8;

/// Starts the script that allocates in calls of many kinds. Gives what Python says of the calls of each block, by its
/// bytes: names and lines, innermost first.
fn start(pool: &Pool, python: &Path, args: &[&str]) -> (Running, BTreeMap<u64, String>) {
    start_program(pool.program(python).args(args))
}

/// The same by a program that is ready but for the script.
fn start_program(program: Program) -> (Running, BTreeMap<u64, String>) {
    let program = program.arg(repository().join("tests/python/calls.py"));
    let mut running = program.env("POOLSCOPE_PERIOD", "1").env("PYTHONIOENCODING", "utf-8").start();
    running.wait_for_line("ready");
    let said = calls::said(&running.stdout());
    (running, said)
}

/// The libraries of the versions that have one, and what they have to be told.
fn libraries() -> Vec<(PathBuf, String)> {
    let pythons = pythons::from_version(FIRST);
    let found = pythons.iter().filter_map(|python| Some((pythons::library(python)?, pythons::home(python))));
    let found: Vec<(PathBuf, String)> = found.collect();
    assert!(!found.is_empty(), "no CPython has a library");
    found
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

/// A thread has a state in each, and one of them in use.
#[test]
fn a_function_of_another_interpreter_of_the_process_has_its_name_from_3_12_on() {
    for python in pythons::from_version(12) {
        let pool = Pool::new();
        let (take, beside) = match pythons::is_free_threaded(&python) {
            true => ("from ctypes import CDLL\\ntake = CDLL(None).malloc", "0"),
            false => ("take = bytearray", "33 if sys.version_info >= (3, 15) else 1"),
        };
        let script = format!(
            "import sys\n\
             try:\n    from _interpreters import create, exec as run\n\
             except ImportError:\n    from _xxsubinterpreters import create, run_string as run\n\
             kept = create()\ndef outside():\n    run(kept, '{take}\\ndef inside():\\n    return take(777000)\\nx = inside()')\n\
             outside()\n\
             print('ready', 777000 + ({beside}), flush=True)\n\
             sys.stdin.readline()\n"
        );
        let mut running = pool.program(python).args(["-c", &script]).env("POOLSCOPE_PERIOD", "1").start();
        let ready = running.wait_for_line("ready");
        let bytes = ready.trim().rsplit(' ').next().and_then(|bytes| bytes.parse().ok()).expect("says how many");
        let pid = running.pid().to_string();
        let report = pool.json(&["report", &pid, "--json"]);
        let site = calls::site_of(&report, "in_use", bytes);
        let names: Vec<&str> =
            site["frames"].as_array().expect("has frames").iter().filter_map(|f| f["function"].as_str()).collect();
        let has = |name: &str| names.iter().any(|of| of.starts_with(name));
        assert!(has("inside (<") && !has("outside (<"), "{names:?}");
        running.send("\n");
        running.finish();
    }
}

/// A server has Python in a plugin, for example (uWSGI, Apache, PostgreSQL).
#[test]
fn a_python_that_a_program_loads_when_it_runs_has_the_functions_that_it_runs() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/later_interpreter.c", "later", &["-O1"]);
    for (library, home) in libraries() {
        let command = pool.program(&program).arg(&library).env("PYTHONHOME", &home);
        let (mut running, said) = start_program(command);
        let pid = running.pid().to_string();
        assert_same_calls(&pool.json(&["report", &pid, "--json"]), "in_use", &said);
        running.send("\n");
        running.finish();

        let recording = pool.files().join("later.rec");
        let record = pool.poolscope().args(["record", "-q", "-o"]).arg(&recording).arg("--").arg(&program);
        let record = record.arg(&library).arg(repository().join("tests/python/calls.py"));
        let ended = record.env("PYTHONHOME", &home).env("PYTHONIOENCODING", "utf-8").run();
        assert_eq!(ended.code(), 0, "{}", ended.report());
        let report = pool.json(&["report", &recording.to_string_lossy(), "--json"]);
        assert_same_calls(&report, "allocated", &calls::said(&ended.stdout));
    }
}

#[test]
fn pythons_that_come_and_go_have_the_functions_that_they_run_as_long_as_they_are_there() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/later_interpreter.c", "later", &["-O1"]);
    let libraries = libraries();
    let rounds = 3;
    let paths = libraries.iter().map(|(library, _)| library);
    let command = pool.program(program).arg("-u").args(paths).arg(rounds.to_string());
    let mut running = command.env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("ready");
    let pid = running.pid().to_string();
    let report = pool.json(&["report", &pid, "--json"]);
    let sites = report["sites"].as_array().expect("has sites");
    for round in 0..rounds {
        for number in 0..libraries.len() {
            let name = format!("of_{number}_in_{round} (<string>)");
            let of_function = sites.iter().find(|site| {
                let frames = site["frames"].as_array().expect("has frames");
                frames.iter().any(|frame| frame["function"] == name.as_str())
            });
            let site = of_function.unwrap_or_else(|| panic!("{name}: {report:#}"));
            let bytes = site["allocated"]["bytes"].as_f64().expect("has bytes");
            let block = 300_000.0 + 1000.0 * f64::from(10 * round + number as u32);
            assert!((block..block + 60_000.0).contains(&bytes), "{name} has {bytes} bytes");
        }
    }
    running.send("\n");
    running.finish().silent_success();
}
