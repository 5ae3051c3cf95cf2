//! `poolscope check`: what was never freed, by stack, and exit code 23 for it.

use std::path::PathBuf;

use poolscope_e2e::compiler::compile;
use poolscope_e2e::{Output, Pool, Program};
use serde_json::Value;

struct Check {
    pool: Pool,
    program: PathBuf,
}

impl Check {
    fn new() -> Check {
        let pool = Pool::new();
        let program = compile(pool.files(), "leak.c", "leak", &["-O1", "-g", "-fno-inline"]);
        Check { pool, program }
    }

    fn run(&self, options: &[&str], args: &[&str]) -> Output {
        let check = self.pool.poolscope().arg("check").args(options).arg("--");
        check.arg(&self.program).args(args).run()
    }
}

#[test]
fn a_leak_is_named_with_its_size_and_stack_and_exits_with_23() {
    let output = Check::new().run(&[], &["40"]);
    assert_eq!(output.code(), 23, "{}", output.report());
    let report = format!("{}{}", output.stdout, output.stderr);
    assert!(report.contains("lose_blocks") && report.contains("leak.c"), "{}", output.report());
    // 40 blocks of 1 KiB, however they are written.
    assert!(["40960", "40,960", "40.0 KiB", "40 KiB"].iter().any(|size| report.contains(size)), "{}", output.report());
    assert!(!report.contains("use_and_free"), "what was freed is no leak: {}", output.report());
}

#[test]
fn a_clean_program_keeps_its_own_exit_code() {
    let check = Check::new();
    for code in [0, 7] {
        let output = check.run(&[], &["0", &code.to_string()]);
        assert_eq!(output.code(), code, "{}", output.report());
    }
}

#[test]
fn a_leak_outweighs_the_programs_own_exit_code() {
    let output = Check::new().run(&[], &["1", "7"]);
    assert_eq!(output.code(), 23, "{}", output.report());
}

#[test]
fn one_lost_block_among_thousands_is_found() {
    // Exact: no sampling, so a single KiB shows.
    let output = Check::new().run(&[], &["1"]);
    assert_eq!(output.code(), 23, "{}", output.report());
    assert!(format!("{}{}", output.stdout, output.stderr).contains("lose_blocks"), "{}", output.report());
}

/// Looks for a number of this value anywhere below.
fn holds_number(value: &Value, number: u64) -> bool {
    match value {
        Value::Number(found) => found.as_u64() == Some(number),
        Value::Array(values) => values.iter().any(|value| holds_number(value, number)),
        Value::Object(fields) => fields.values().any(|value| holds_number(value, number)),
        _ => false,
    }
}

#[test]
fn json_says_the_same() {
    let check = Check::new();
    let output = check.run(&["--json"], &["40"]);
    assert_eq!(output.code(), 23, "{}", output.report());
    let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
    assert!(holds_number(&report, 40 * 1024) && holds_number(&report, 40), "{report:#}");
    assert!(report.to_string().contains("lose_blocks"), "{report:#}");

    let clean = check.run(&["--json"], &["0"]);
    assert_eq!(clean.code(), 0, "{}", clean.report());
    let report: Value = serde_json::from_str(&clean.stdout).unwrap_or_else(|e| panic!("{e}: {}", clean.report()));
    assert!(!report.to_string().contains("lose_blocks"), "{report:#}");
}

#[test]
fn a_program_that_cannot_start_is_an_error_of_its_own() {
    let pool = Pool::new();
    let output = pool.poolscope().args(["check", "--", "/nowhere/to/be/found"]).run();
    assert!(![0, 23].contains(&output.code()), "{}", output.report());
    assert!(output.stderr.contains("/nowhere/to/be/found"), "{}", output.report());
}

/// Code 23 by itself, beside the same program off the pool: `check` adds nothing to its output on stdout but the report.
#[test]
fn the_programs_own_output_is_kept() {
    let pool = Pool::new();
    let plain = Program::new("/bin/echo").arg("hello").run().success();
    let checked = pool.poolscope().args(["check", "--", "/bin/echo", "hello"]).run();
    assert!(checked.stdout.contains(plain.stdout.trim()), "{}", checked.report());
}
