//! Leak checks in C++'s test frameworks: the samples, with Debian's packages.

use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::{compile_into, headers};
use poolscope_e2e::{Pool, Program, library};

/// Builds a sample.
fn build(pool: &Pool, source: &str, libraries: &[&str]) -> PathBuf {
    let folder = library().parent().expect("it lies in a folder").display().to_string();
    let (find, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let libraries: Vec<&str> = libraries.iter().copied().chain([&*find, &*run, "-lpoolscope"]).collect();
    let program = pool.files().join("tests");
    let include = format!("-I{}", headers().display());
    compile_into(&program, &Path::new("samples/csrc").join(source), &["-O0", &include], &libraries);
    program
}

/// Runs its tests: what they print, and the exit code.
fn run(pool: &Pool, program: &Path, options: &[&str]) -> (String, i32) {
    let output = Program::new(program).args(options).env("POOLSCOPE_DIR", pool.segment_dir()).run();
    (output.stdout.clone(), output.code())
}

#[test]
fn googletest_fails_the_test_that_leaks() {
    let pool = Pool::new();
    let program = build(&pool, "leaks_in_googletest.cpp", &["-lgtest"]);
    let (said, code) = run(&pool, &program, &["--check_for_leaks"]);
    assert!(code != 0 && said.contains("Leaked 400 bytes in 1 blocks."), "{said}");
    for test in ["AreNotInATestThatFrees", "AreNotBlamedOnTheNextTest"] {
        assert!(said.contains(&format!("[       OK ] Leaks.{test}")), "{said}");
    }
    assert_eq!(said.matches("Leaked ").count(), 1, "{said}");
    let failed = said.split("2 FAILED TESTS").next().expect("a summary");
    assert!(failed.contains("[  FAILED  ] Leaks.FailTheTestThatHasThem\n"), "{said}");
    // Nothing is checked unless it is asked for.
    let (plain, _) = run(&pool, &program, &[]);
    assert!(!plain.contains("Leaked") && plain.contains("[       OK ] Leaks.FailTheTestThatHasThem"), "{plain}");
}

#[test]
fn catch2_fails_the_test_that_leaks() {
    let pool = Pool::new();
    let (said, code) = run(&pool, &build(&pool, "leaks_in_catch2.cpp", &[]), &[]);
    assert!(code != 0 && said.contains("test cases: 3 | 2 passed | 1 failed"), "{said}");
    let failed = said.split_once("a test that leaks").expect("the test that fails").1;
    assert!(failed.contains("Leaked 400 bytes in 1 blocks."), "{said}");
}

#[test]
fn doctest_fails_the_test_that_leaks() {
    let pool = Pool::new();
    let (said, code) = run(&pool, &build(&pool, "leaks_in_doctest.cpp", &[]), &[]);
    assert!(code != 0 && said.contains("[doctest] test cases: 3 | 2 passed | 1 failed"), "{said}");
    let failed = said.split_once("TEST CASE:  a test that leaks").expect("the test that fails").1;
    assert!(failed.contains("Leaked 400 bytes in 1 blocks."), "{said}");
}
