//! Checks in a loop while threads allocate, free, end and start: nothing is called leaked that is not, no thread is
//! lost, and nothing hangs.

use std::collections::BTreeMap;

use poolscope_e2e::{Pool, Program, compiler};

/// Runs the program for so long, and returns its figures.
fn stress(threads: u32, seconds: u32) -> BTreeMap<String, f64> {
    let pool = Pool::new();
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    let program = compiler::compile_linked(pool.files(), "tests/csrc/leaks_stress.c", "leaks_stress", &flags);
    let program = Program::new(program).args([threads.to_string(), seconds.to_string()]);
    let program = program.env("POOLSCOPE_DIR", pool.segment_dir()).env("POOLSCOPE_PERIOD", "1");
    let output = program.limit(u64::from(seconds) + 60).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.is_empty(), "{}", output.report());
    let words: Vec<&str> = output.stdout.split_whitespace().collect();
    println!("{}", output.stdout);
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number"))).collect()
}

fn is_right(figures: &BTreeMap<String, f64>, threads: u32) {
    for none in ["failed", "leaked", "unstopped", "left"] {
        assert_eq!(figures[none], 0.0, "{none}: {figures:?}");
    }
    assert!(figures["checks"] > 3.0 && figures["started"] > f64::from(threads), "{figures:?}");
    assert!(figures["most"] > f64::from(threads) / 2.0, "{figures:?}");
}

#[test]
fn checks_beside_threads_that_come_and_go_find_no_leak_and_lose_no_thread() {
    is_right(&stress(32, 4), 32);
}

#[test]
#[ignore = "takes a minute"]
fn a_minute_of_checks_beside_threads_that_come_and_go() {
    is_right(&stress(32, 60), 32);
}
