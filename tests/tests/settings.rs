//! Bad values in the environment are named, and the default holds.

use poolscope_e2e::Pool;

#[test]
fn a_bad_period_is_named_and_the_default_is_used() {
    for bad in ["abc", "-5", "12Q", "99999999999999999999999", ""] {
        let pool = Pool::new();
        let output = pool.program("/bin/true").env("POOLSCOPE_PERIOD", bad).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        let lines: Vec<&str> = output.stderr.lines().collect();
        let named = |line: &str| line.contains(&format!("POOLSCOPE_PERIOD={bad}")) && line.contains("512K");
        assert!(matches!(lines[..], [line] if named(line)), "POOLSCOPE_PERIOD={bad}: {}", output.report());
        let periods: Vec<u64> = pool.segments().iter().map(|segment| segment.header.period_bytes).collect();
        assert_eq!(periods, [512 << 10]);
    }
}

#[test]
fn a_good_period_is_silent_and_holds() {
    for (text, bytes) in [("4096", 4096), ("64K", 64 << 10), ("2MiB", 2 << 20), ("1", 1)] {
        let pool = Pool::new();
        pool.program("/bin/true").env("POOLSCOPE_PERIOD", text).run().silent_success();
        let periods: Vec<u64> = pool.segments().iter().map(|segment| segment.header.period_bytes).collect();
        assert_eq!(periods, [bytes], "POOLSCOPE_PERIOD={text}");
    }
}

#[test]
fn a_relative_folder_is_named() {
    let pool = Pool::new();
    let output = pool.program("/bin/true").env("POOLSCOPE_DIR", "here").env_remove("POOLSCOPE_KEEP").run();
    assert_eq!(output.code(), 0);
    assert!(output.stderr.contains("POOLSCOPE_DIR=here"), "{}", output.report());
}
