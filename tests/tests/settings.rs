//! The environment's settings: bad values and unknown names are said, and the default holds.

use poolscope_e2e::Pool;
use poolscope_e2e::compiler::compile_with_headers;

/// Runs a program on the pool with one variable; what the pool said, which must not be more than a line.
fn said(variable: &str, value: &str) -> String {
    let pool = Pool::new();
    let output = pool.program("/bin/true").env(variable, value).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.lines().count() <= 1, "{variable}={value}: {}", output.report());
    output.stderr
}

fn periods(pool: &Pool) -> Vec<u64> {
    pool.segments().iter().map(|segment| segment.header.period_bytes).collect()
}

#[test]
fn a_bad_period_is_named_and_the_default_is_used() {
    for bad in ["abc", "-5", "12Q", "99999999999999999999999", ""] {
        let pool = Pool::new();
        let output = pool.program("/bin/true").env("POOLSCOPE_PERIOD", bad).run();
        assert_eq!(output.code(), 0, "{}", output.report());
        let lines: Vec<&str> = output.stderr.lines().collect();
        let named = |line: &str| line.contains(&format!("POOLSCOPE_PERIOD={bad}")) && line.contains("512K");
        assert!(matches!(lines[..], [line] if named(line)), "POOLSCOPE_PERIOD={bad}: {}", output.report());
        assert_eq!(periods(&pool), [512 << 10]);
    }
}

#[test]
fn a_good_period_is_silent_and_holds() {
    for (text, bytes) in [("4096", 4096), ("64K", 64 << 10), ("2MiB", 2 << 20), ("1", 1)] {
        let pool = Pool::new();
        pool.program("/bin/true").env("POOLSCOPE_PERIOD", text).run().silent_success();
        assert_eq!(periods(&pool), [bytes], "POOLSCOPE_PERIOD={text}");
    }
}

#[test]
fn a_bad_value_of_any_setting_is_named_with_what_is_used_and_what_it_takes() {
    for (variable, bad, used, takes) in [
        ("POOLSCOPE_DIR", "here", "/dev/shm/poolscope-UID", "an absolute path"),
        ("POOLSCOPE_KEEP", "yes", "0", "0 or 1"),
        ("POOLSCOPE_VERBOSE", "2", "0", "0 or 1"),
        ("POOLSCOPE_THREAD_CACHE", "63K", "128M", "bytes from 64K to 1G"),
        ("POOLSCOPE_GOAL", "small", "balanced", "balanced, memory or speed"),
        ("POOLSCOPE_SCAVENGE_MS", "-2", "10000", "milliseconds from 0 (at once) to 3600000, or -1 (never)"),
        ("POOLSCOPE_GC_MS", "5s", "5000", "milliseconds from 1 to 3600000, or -1 (never)"),
        ("POOLSCOPE_HUGE", "always", "system", "system, off, madvise or explicit"),
        ("POOLSCOPE_NUMA", "bind:0-99", "off", "off, local, interleave, or bind: and nodes from 0 to 61"),
        ("POOLSCOPE_HARDENED", "on", "0", "0 or 1"),
        ("POOLSCOPE_GUARDS", "1M", "1000", "a number from 0 to 1048576"),
        ("POOLSCOPE_DUMP_SIGNAL", "USR3", "0", "a signal that can be handled, as 12, USR2, SIGUSR2 or RTMIN+3, or 0"),
        ("POOLSCOPE_DUMP_SIGNAL", "11", "0", "a signal that can be handled"),
        ("POOLSCOPE_ARENA", "3G", "256G", "a power of two of bytes from 64M to 1T"),
    ] {
        let line = said(variable, bad);
        let expected = format!("poolscope: {variable}={bad} is not valid, {used} is used; it takes {takes}");
        assert!(line.starts_with(&expected), "{line}");
    }
}

#[test]
fn good_values_of_every_setting_are_silent() {
    for (variable, good) in [
        ("POOLSCOPE_THREAD_CACHE", "64K"),
        ("POOLSCOPE_SCAVENGE_MS", "-1"),
        ("POOLSCOPE_GOAL", "speed"),
        ("POOLSCOPE_SCAVENGE_MS", "0"),
        ("POOLSCOPE_GC_MS", "100"),
        ("POOLSCOPE_HUGE", "off"),
        ("POOLSCOPE_NUMA", "bind:0"),
        ("POOLSCOPE_HARDENED", "0"),
        ("POOLSCOPE_GUARDS", "0"),
        ("POOLSCOPE_ARENA", "1G"),
        ("POOLSCOPE_DUMP_SIGNAL", "SIGRTMIN+3"),
        // The command's own, which the programs that it starts inherit.
        ("POOLSCOPE_LIB", "/nowhere/libpoolscope.so"),
        ("POOLSCOPE_TENSORS", "/nowhere/tensors.sock"),
        ("POOLSCOPE_TENSORS_LIB", "/nowhere/libpoolscope_tensors.so"),
    ] {
        assert_eq!(said(variable, good), "", "{variable}={good}");
    }
}

#[test]
fn an_unknown_variable_is_named_with_the_one_that_was_meant() {
    assert_eq!(
        said("POOLSCOPE_PEROID", "64K"),
        "poolscope: POOLSCOPE_PEROID is unknown and without effect; is POOLSCOPE_PERIOD meant?\n"
    );
    assert_eq!(said("POOLSCOPE_LOG_LEVEL", "3"), "poolscope: POOLSCOPE_LOG_LEVEL is unknown and without effect\n");
    assert_eq!(said("MY_POOLSCOPE_PERIOD", "3"), "");
}

#[test]
fn what_is_not_printable_does_not_reach_the_terminal() {
    assert!(said("POOLSCOPE_PERIOD", "\u{1b}[31m\n").contains("POOLSCOPE_PERIOD=?[31m? is not valid"));
    assert!(said("POOLSCOPE_PERIOD", &"9".repeat(10_000)).contains("999... is not valid, 512K is used"));
}

#[test]
fn a_goal_says_what_other_settings_are_and_what_is_set_by_name_holds() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/goal.c", "goal", &["-DPOOLSCOPE_WEAK"]);
    for (goal, scavenge_ms, expected) in [
        ("balanced", None, "balanced 128M 10000 5000\n"),
        ("memory", None, "memory 1M 1000 500\n"),
        ("speed", None, "speed 256M 60000 30000\n"),
        ("memory", Some("7000"), "memory 1M 7000 500\n"),
    ] {
        let mut program = pool.program(&program).env("POOLSCOPE_GOAL", goal);
        if let Some(milliseconds) = scavenge_ms {
            program = program.env("POOLSCOPE_SCAVENGE_MS", milliseconds);
        }
        assert_eq!(program.run().success().stdout, expected, "{goal}");
    }
}
