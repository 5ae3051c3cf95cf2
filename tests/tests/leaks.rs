//! `poolscope check` calls what nothing points to any more leaked, and nothing else. `tests/csrc/leaks.c` has a
//! scenario for each place where a pointer may be.

use std::path::Path;

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::leak_scenarios::{CLEAN, Expected, LOSING, SCENARIOS, TOOLCHAIN};
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

/// What each scenario of `tests/csrc/leaks_kernel.c` loses, and how many threads it has.
const KEPT_ELSEWHERE: &[(&str, &[u64], u64)] = &[
    ("epoll_data", &[], 1),
    ("epoll_closed", &[1337], 1),
    ("timer_value", &[], 1),
    ("timer_deleted", &[1337], 1),
    ("timer_with_thread", &[], 1),
    ("closed_to_writing", &[], 1),
    ("shared_with_children", &[], 1),
    // What lies on a stack that no signal uses holds nothing.
    ("signal_stack", &[1337], 1),
    ("signal_stack_given_up", &[20_000], 1),
    ("signal_stack_of_a_thread", &[1337], 2),
    ("ring_request", &[], 1),
    ("ring_closed", &[1337], 1),
];

#[test]
fn what_the_kernel_keeps_for_the_program_and_what_unusual_memory_holds_is_in_use() {
    let pool = Pool::new();
    let program = pool.files().join("leaks_kernel");
    compile_into(&program, Path::new("tests/csrc/leaks_kernel.c"), &["-O1", "-g", "-fno-builtin", "-pthread"], &[]);
    for (scenario, lost, threads) in KEPT_ELSEWHERE {
        for options in [&["--json"][..], &["--json", "--snapshot"]] {
            let command = pool.poolscope().arg("check").args(options).arg("--").arg(&program).arg(scenario);
            let output = command.run();
            let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
            let report = &report["processes"][0]["report"];
            assert_eq!(sizes(report, false), *lost, "{scenario}: {}", output.report());
            let checked = (report["checked"]["threads"].as_u64(), report["checked"]["stopped"].as_u64());
            assert_eq!(checked, (Some(*threads), Some(*threads)), "{scenario}: {}", output.report());
            assert_eq!(output.code(), if lost.is_empty() { 0 } else { 23 }, "{scenario}: {}", output.report());
        }
    }
}

#[test]
fn what_a_buffer_holds_of_an_earlier_block_keeps_nothing_in_use() {
    let pool = Pool::new();
    let program = pool.files().join("forgotten");
    compile_into(&program, Path::new("tests/csrc/forgotten.c"), &["-O1", "-g", "-fno-builtin"], &[]);
    let (_, report, _) = check(&pool, &[program.to_str().expect("a path")]);
    assert_eq!(sizes(&report, false), [3000; 40], "{report:#}");
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

/// What rules for programs of the system held, in all processes: bytes and blocks.
fn held_by_program_rules(report: &Value) -> (u64, u64) {
    let suppressed = report["suppressed"].as_array().expect("what is suppressed").iter();
    let held = suppressed.filter(|held| held["of_program"].as_bool() == Some(true));
    let number = |held: &Value, name: &str| held[name].as_u64().expect("a number");
    held.fold((0, 0), |(bytes, blocks), held| (bytes + number(held, "bytes"), blocks + number(held, "objects")))
}

#[test]
fn of_programs_of_the_system_that_lose_blocks_valgrind_says_the_same_and_a_rule_holds_them() {
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
        let lost = (direct + indirect, first + others);
        let (code, report, checked) = check(&pool, &words);
        assert_eq!(code, 0, "{program:?}: {}", checked.report());
        assert_eq!(held_by_program_rules(&report), lost, "{program:?}: {report:#}");
        let without = pool.poolscope().args(["check", "--json", "--no-program-rules", "--"]).args(&words).run();
        let report: Value = serde_json::from_str(&without.stdout).expect("JSON");
        let found = (report["bytes"].as_u64(), report["objects"].as_u64());
        assert_eq!((without.code(), found), (23, (Some(lost.0), Some(lost.1))), "{program:?}: {report:#}");
    }
}

/// A subshell leaves the commands that it was in by a jump, and nothing points to them any more.
#[test]
fn what_a_shell_was_in_when_a_subshell_exited_is_no_leak_of_the_script() {
    let pool = Pool::new();
    let script = "f() { for x in 1 2; do (echo $x; exit $x); done; }; f | cat; (f; exit 3); exit 9";
    let output = pool.poolscope().args(["check", "--", "/usr/bin/bash", "-c", script]).run();
    assert_eq!(output.code(), 9, "{}", output.report());
    let without = pool.poolscope().args(["check", "--no-program-rules", "--", "/usr/bin/bash", "-c", script]).run();
    assert_eq!(without.code(), 23, "{}", without.report());
}

#[test]
fn a_compiler_exits_with_its_own_code_and_the_report_counts_what_each_program_lost() {
    let pool = Pool::new();
    pool.files().write("one.c", "int main(void) { return 0; }\n");
    pool.files().write("wrong.c", "int main(void) { return }\n");
    for &(command, code) in TOOLCHAIN {
        let words: Vec<&str> = command.split(' ').collect();
        let output = pool.poolscope().args(["check", "--"]).args(&words).dir(pool.files().path()).run();
        assert_eq!(output.code(), code, "{command}: {}", output.report());
        let last = output.stderr.lines().rfind(|line| line.starts_with("Suppressed by rules for programs"));
        let of_gcc = last.is_some_and(|line| line.contains("-gcc") && line.contains(" blocks ("));
        assert!(of_gcc, "{command}: {}", output.report());
    }
}

#[test]
fn what_an_extension_of_ones_own_loses_in_perl_and_python_is_found() {
    let pool = Pool::new();
    let compiled = |library: &str, source: &str, ask: &mut Program| {
        let flags = std::mem::replace(ask, Program::new("true")).run().success().stdout;
        let mut all: Vec<&str> = vec!["-shared", "-fPIC", "-O1", "-g"];
        all.extend(flags.split_whitespace());
        compile_into(&pool.files().join(library), Path::new(source), &all, &[]);
    };
    let script = "use Config; print \"$Config{ccflags} -I$Config{archlib}/CORE\"";
    compiled("leaky_perl.so", "tests/csrc/leaky_perl.c", &mut Program::new("/usr/bin/perl").args(["-e", script]));
    let python = &mut Program::new("/usr/bin/python3-config").args(["--includes"]);
    compiled("leaky.so", "tests/csrc/leaky_extension.c", python);
    let perl = "require DynaLoader; my $library = DynaLoader::dl_load_file($ARGV[0]) or die; \
                DynaLoader::dl_install_xsub('main::lose', DynaLoader::dl_find_symbol($library, 'lose')); main::lose(1337)";
    let python = "import sys; sys.path.insert(0, sys.argv[1]); import leaky; leaky.lose(1337)";
    let folder = pool.files().path().to_str().expect("a path").to_owned();
    let library = format!("{folder}/leaky_perl.so");
    for command in [["/usr/bin/perl", "-e", perl, &library], ["/usr/bin/python3", "-c", python, &folder]] {
        let (code, report, output) = check(&pool, &command);
        assert_eq!((code, sizes(&report, false)), (23, vec![1337]), "{}", output.report());
        assert!(report["leaks"].to_string().contains("lose_a_block"), "{report:#}");
    }
}

#[test]
fn a_program_of_the_systems_name_that_somebody_built_has_no_rule() {
    let pool = Pool::new();
    let program = pool.files().join("perl");
    compile_into(&program, Path::new("tests/csrc/leaks.c"), &["-O1", "-fno-builtin", "-pthread"], &["-ldl"]);
    let (code, report, output) = check(&pool, &[program.to_str().expect("a path"), "lost"]);
    assert_eq!((code, sizes(&report, false)), (23, vec![1337]), "{}", output.report());
}
