//! `poolscope_heapcheck.h`: scopes and checks inside a program in C.

use poolscope_e2e::{Pool, Program, compiler};

#[test]
fn a_c_program_learns_what_its_scopes_left_and_what_it_can_not_reach() {
    let pool = Pool::new();
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    let program = compiler::compile_linked(pool.files(), "tests/csrc/heapcheck.c", "heapcheck", &flags);
    let program = Program::new(program).env("POOLSCOPE_DIR", pool.segment_dir()).env("POOLSCOPE_PERIOD", "1");
    let output = program.run();
    assert_eq!(output.code(), 0, "{}", output.report());
    let expected = [
        // What was called, what it returned, blocks and bytes.
        "clean 0 0 0",
        "inner 1 2 50",
        "outer 1 2 50",
        "within 0 2 100",
        "over 1 1 101",
        "lazy 0 0 0",
        "grown 1 1 5000",
        "moved 1 1 7777",
        "none -1",
        "reachable 0 0 0",
        "threads 1 of 1",
        "ignored 0 0 0",
        "ignore 0 1",
        "lost 1 1 77",
        "root 1 1 77",
        "no_root 1 2 97",
        "roots 0 0 1",
    ];
    assert_eq!(output.stdout.lines().collect::<Vec<_>>(), expected, "{}", output.report());
    assert!(output.stderr.contains("77 B in 1 block"), "{}", output.report());
}

#[test]
fn a_sampled_program_has_scopes_and_is_told_that_it_can_not_be_checked() {
    let pool = Pool::new();
    let program = compiler::compile_linked(pool.files(), "tests/csrc/heapcheck.c", "heapcheck", &["-O1", "-pthread"]);
    let output = Program::new(program).env("POOLSCOPE_DIR", pool.segment_dir()).run();
    assert!(output.stdout.starts_with("clean 0 0 0\ninner 1 2 50\nouter 1 2 50\n"), "{}", output.report());
    assert!(output.stdout.contains("\nreachable -1 "), "{}", output.report());
    assert!(output.stderr.contains("no leak check: not every allocation is recorded"), "{}", output.report());
}
