//! `poolscope check` calls what nothing points to any more leaked, and nothing else. `tests/csrc/leaks.c` has a
//! scenario for each place where a pointer may be.

use std::path::Path;

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::leak_scenarios::{CLEAN, Expected, LOSING, SCENARIOS};
use poolscope_e2e::{Output, Pool, Program};
use serde_json::Value;

/// Runs `poolscope check` with `--json`: the exit code, and the report of the program's own process.
fn check(pool: &Pool, command: &[&str]) -> (i32, Value, Output) {
    let output = pool.poolscope().args(["check", "--json", "--"]).args(command).run();
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
    (output.code(), report["processes"][0]["report"].clone(), output)
}

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

#[test]
fn of_real_programs_that_lose_blocks_valgrind_says_the_same() {
    let pool = Pool::new();
    for program in LOSING {
        let words: Vec<&str> = program.split(' ').collect();
        let output = Program::new("valgrind").args(["--leak-check=full"]).args(&words).run();
        let of = |kind: &str| -> (u64, u64) {
            let line = output.stderr.lines().find_map(|line| line.split_once(kind)).expect("a summary").1;
            let numbers: Vec<u64> =
                line.split_whitespace().filter_map(|word| word.replace(',', "").parse().ok()).collect();
            (numbers[0], numbers[1])
        };
        let ((direct, first), (indirect, others)) = (of("definitely lost:"), of("indirectly lost:"));
        let (code, report, checked) = check(&pool, &words);
        assert_eq!(code, 23, "{program:?}: {}", checked.report());
        let found = (report["bytes"].as_u64(), report["objects"].as_u64());
        assert_eq!(found, (Some(direct + indirect), Some(first + others)), "{program:?}: {report:#}");
    }
}
