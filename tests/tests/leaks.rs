//! `poolscope check` calls what nothing points to any more leaked, and nothing else. `tests/csrc/leaks.c` has a scenario
//! for each place where a pointer may be.

use std::path::Path;

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::{Output, Pool, Program};
use serde_json::Value;

/// Runs `poolscope check` with `--json`: the exit code, and the report of the program's own process.
fn check(pool: &Pool, command: &[&str]) -> (i32, Value, Output) {
    let output = pool.poolscope().args(["check", "--json", "--"]).args(command).run();
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
    (output.code(), report["processes"][0]["report"].clone(), output)
}

/// Blocks of so many bytes are leaked directly, and so many indirectly.
struct Expected {
    scenario: &'static str,
    direct: &'static [u64],
    indirect: &'static [u64],
}

const fn held(scenario: &'static str) -> Expected {
    Expected { scenario, direct: &[], indirect: &[] }
}

const fn lost(scenario: &'static str, direct: &'static [u64], indirect: &'static [u64]) -> Expected {
    Expected { scenario, direct, indirect }
}

/// Each scenario of `leaks.c`.
const SCENARIOS: &[Expected] = &[
    // Pointers in each kind of root.
    held("use_globals_initialized"),
    held("use_globals_uninitialized"),
    held("use_stacks"),
    held("use_stacks_threaded"),
    held("use_registers"),
    held("use_registers_extra"),
    held("red_zone"),
    held("use_tls_static"),
    held("use_tls_static_threaded"),
    held("use_tls_dynamic"),
    held("use_tls_pthread_specific_static"),
    held("use_tls_pthread_specific_dynamic"),
    held("mapped"),
    held("swapcontext_running"),
    held("swapcontext_suspended"),
    held("result_not_joined"),
    // Pointers in blocks, and into them.
    held("user_pointer"),
    held("interior"),
    held("large_interior"),
    held("in_large"),
    // No pointers.
    lost("lost", &[1337], &[]),
    lost("pointer_to_self", &[1337], &[]),
    lost("cycle", &[1337], &[1337]),
    lost("list", &[1337], &[1337, 1337, 1337, 1337]),
    lost("unaligned_is_none", &[1337], &[]),
    lost("stale_stack", &[1337], &[]),
    lost("stale_thread", &[1337], &[]),
    lost("tls_of_ended_thread", &[1337], &[]),
    lost("freed_holder", &[1337], &[]),
    lost("large_lost", &[3 << 20], &[]),
    // Threads that are hard to stop, and memory that is hard to read.
    held("exit_in_thread"),
    held("first_thread_ended"),
    held("many_threads"),
    held("closed_pages"),
    held("busy_threads"),
    held("signals_blocked"),
    // What threads get, return and keep until their ends.
    held("argument_of_thread"),
    held("before_thread_started"),
    held("cleanup_in_tsd_destructor"),
    held("exit_in_tsd_destructor"),
    held("many_tls_keys_pthread"),
    held("many_tls_keys_thread"),
    held("detached_thread_dlsym"),
    held("use_tls_dynamic_threaded"),
    // The record of the last of 11 threads that ended still has what it returned.
    lost("create_thread_leak", &[234, 234, 234, 234, 234, 234, 234, 234, 234, 234], &[]),
    // Stacks that are not the threads' own.
    held("alternate_stack"),
    held("interrupted_stack"),
    held("nested_coroutines"),
    lost("exit_atexit_stale_stack", &[1337], &[]),
    // Modules, and the loader's lock.
    lost("dlclosed_library", &[1337], &[]),
    held("libdl_deadlock"),
    held("exit_in_walk"),
    held("signal_during_stop_the_world"),
    // Sizes.
    lost("malloc_zero", &[0], &[]),
    held("realloc_zero"),
    lost("realloc_too_big", &[1337], &[]),
    held("realloc_failure_keeps_original"),
    held("realloc_moves"),
    held("fork_threaded"),
];

/// The sizes of leaked blocks, as a report has them.
fn sizes(report: &Value, indirect: bool) -> Vec<u64> {
    let leaks = report["leaks"].as_array().expect("leaks").iter();
    let of_kind = leaks.filter(|leak| leak["indirect"].as_bool() == Some(indirect));
    let mut sizes = Vec::new();
    for size in of_kind.flat_map(|leak| leak["sizes"].as_array().expect("sizes")) {
        let (bytes, objects) = (size["bytes"].as_u64().expect("bytes"), size["objects"].as_u64().expect("objects"));
        sizes.extend((0..objects).map(|_| bytes));
    }
    sizes
}

#[test]
fn what_nothing_points_to_is_leaked_and_nothing_else() {
    let pool = Pool::new();
    let (program, library) = (pool.files().join("leaks"), pool.files().join("libtls.so"));
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    compile_into(&program, Path::new("tests/csrc/leaks.c"), &flags, &["-ldl"]);
    compile_into(&library, Path::new("tests/csrc/leaks_tls.c"), &["-O1", "-shared", "-fPIC"], &[]);
    for Expected { scenario, direct, indirect } in SCENARIOS {
        let command = [program.to_str().expect("a path"), scenario, library.to_str().expect("a path")];
        let (code, report, output) = check(&pool, &command);
        assert_eq!((&*sizes(&report, false), &*sizes(&report, true)), (*direct, *indirect), "{scenario}: {report:#}");
        let expected = if direct.is_empty() { 0 } else { 23 };
        assert_eq!(code, expected, "{scenario}: {}", output.report());
        let checked = &report["checked"];
        assert_eq!(checked["threads"], checked["stopped"], "{scenario}: {checked}");
        if *scenario == "many_threads" {
            assert_eq!(checked["threads"].as_u64(), Some(201), "{checked}");
        }
        if *scenario == "interior" || *scenario == "large_interior" {
            assert_eq!(checked["possible"].as_u64(), Some(1), "{scenario}: {checked}");
        }
    }
}

#[test]
fn what_a_forked_child_loses_is_reported_as_the_childs() {
    let pool = Pool::new();
    let program = pool.files().join("leaks");
    compile_into(&program, Path::new("tests/csrc/leaks.c"), &["-O1", "-g", "-fno-builtin", "-pthread"], &["-ldl"]);
    let command = ["check", "--json", "--", program.to_str().expect("a path"), "fork_and_leak"];
    let output = pool.poolscope().args(command).run();
    assert_eq!(output.code(), 23, "{}", output.report());
    let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let processes = report["processes"].as_array().expect("processes");
    let found: Vec<Vec<u64>> = processes.iter().map(|process| sizes(&process["report"], false)).collect();
    assert_eq!(found, [vec![], vec![1337]], "{report:#}");
}

#[test]
fn every_report_says_what_was_looked_at() {
    let pool = Pool::new();
    let output = pool.poolscope().args(["check", "--", "/bin/true"]).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    let last = output.stderr.lines().last().expect("a report");
    assert!(last.starts_with("checked ") && last.ends_with(" 1 of 1 threads stopped"), "{}", output.report());
}

#[test]
fn where_it_can_not_look_it_says_why_and_exits_with_24() {
    let pool = Pool::new();
    let command = ["check", "--", "/bin/ls"];
    let output = pool.poolscope().env("POOLSCOPE_HARDENED", "1").args(command).run();
    assert_eq!(output.code(), 24, "{}", output.report());
    let why = "Could not be checked: it could not look for unreachable blocks: it runs in the hardened mode.";
    assert!(output.stderr.contains(why), "{}", output.report());
}

#[test]
fn what_was_never_freed_is_reported_where_that_is_asked_for() {
    let pool = Pool::new();
    let output = pool.poolscope().args(["check", "--growth", "--", "/bin/ls"]).run();
    assert_eq!(output.code(), 23, "{}", output.report());
    assert!(!output.stderr.contains("threads stopped"), "{}", output.report());
}

/// Real programs that lose nothing exit with their own code.
const CLEAN: &[&str] = &[
    "ls -la /usr/bin",
    "bash -c 'for i in 1 2 3; do echo $i | cat; done; exit 7'",
    "sh -c 'exit 3'",
    "git init -q repository",
    "git -C repository status",
    "python3 -c 'import json, re, collections; print(json.dumps({1: 2}))'",
    "sqlite3 :memory: 'create table t(a); insert into t values(1), (2); select sum(a) from t'",
    "awk 'BEGIN { for (i = 0; i < 1000; i++) a[i] = i; print a[5]; exit 4 }'",
    "grep -r root /etc/passwd",
    "grep nobody-at-all /etc/passwd",
    "sed s/a/b/ /etc/passwd",
    "find /etc -maxdepth 1 -name '*.conf'",
    "make --version",
    "gzip -c /etc/passwd",
    "xz -c /etc/passwd",
    "diff /etc/passwd /etc/group",
    "cat /etc/passwd",
    "cp /etc/passwd copy",
    "env",
    "redis-cli --version",
    "tar --version",
    "head -n 2 /etc/passwd",
    "wc /etc/passwd",
    "du -s /etc/ssl",
];

#[test]
fn real_programs_that_lose_nothing_exit_with_their_own_code() {
    let (pool, plain) = (Pool::new(), Pool::new());
    for program in CLEAN {
        let command = format!("exec {program}");
        let own = Program::new("sh").args(["-c", &command]).dir(plain.files().path()).run().code();
        let output = pool.poolscope().args(["check", "--", "sh", "-c", &command]).run();
        assert_eq!(output.code(), own, "{program}: {}", output.report());
        let last = output.stderr.lines().rfind(|line| line.starts_with("checked ")).unwrap_or_default();
        assert!(last.contains(" threads stopped"), "{program}: {}", output.report());
    }
}

/// Some of Debian's programs do lose blocks, by the thousand or one, when `main` returns. LeakSanitizer and valgrind
/// report them, too.
const LOSING: &[&[&str]] =
    &[&["date"], &["sort", "/etc/passwd"], &["perl", "-e", "1"], &["tar", "cf", "/dev/null", "/etc/passwd"]];

#[test]
fn of_real_programs_that_lose_blocks_valgrind_says_the_same() {
    let pool = Pool::new();
    for program in LOSING {
        let output = Program::new("valgrind").args(["--leak-check=full"]).args(*program).run();
        let of = |kind: &str| -> (u64, u64) {
            let line = output.stderr.lines().find_map(|line| line.split_once(kind)).expect("a summary").1;
            let numbers: Vec<u64> =
                line.split_whitespace().filter_map(|word| word.replace(',', "").parse().ok()).collect();
            (numbers[0], numbers[1])
        };
        let ((direct, first), (indirect, others)) = (of("definitely lost:"), of("indirectly lost:"));
        let (code, report, checked) = check(&pool, program);
        assert_eq!(code, 23, "{program:?}: {}", checked.report());
        let found = (report["bytes"].as_u64(), report["objects"].as_u64());
        assert_eq!(found, (Some(direct + indirect), Some(first + others)), "{program:?}: {report:#}");
    }
}
