//! Flamegraphs of a real program: what it holds now, what it held at its peak, and what it never freed.

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Running, compiler, pprof};

const MIB: f64 = 1_048_576.0;

fn program(pool: &Pool, period: &str) -> Running {
    let path = compiler::compile_with_headers(pool.files(), "tests/csrc/peak.c", "peak", &["-g", "-O1"]);
    let mut program = pool.program(path).env("POOLSCOPE_PERIOD", period).start();
    program.wait_for_line("past the peak");
    program
}

fn flamegraph(pool: &Pool, target: &str, args: &[&str]) -> String {
    pool.poolscope().args(["flamegraph", target, "-o", "-"]).args(args).run().success().stdout
}

/// The bytes that a function's box stands for; 0 without a box.
fn bytes(svg: &str, function: &str) -> f64 {
    let Some(at) = svg.find(&format!("<title>{function} (")) else { return 0.0 };
    let figure = svg[at..].split_once('(').expect("has a figure").1.split(' ').next().expect("goes on");
    figure.replace(',', "").parse().expect("is a number")
}

#[test]
fn a_peak_that_is_past_is_drawn_as_it_was() {
    let pool = Pool::new();
    let mut program = program(&pool, "1");
    let pid = program.pid().to_string();
    let now = flamegraph(&pool, &pid, &[]);
    assert_eq!(bytes(&now, "hold_for_a_moment"), 0.0);
    assert_eq!(bytes(&now, "hold_later"), 2.0 * MIB);
    let peak = flamegraph(&pool, &pid, &["--peak"]);
    assert_eq!(bytes(&peak, "hold_for_a_moment"), 8.0 * MIB);
    assert_eq!(bytes(&peak, "hold_for_good"), MIB);
    assert_eq!(bytes(&peak, "hold_later"), 0.0);
    assert!(peak.contains("at its peak, ") && peak.contains(" s after the start"), "{peak}");

    let profile = pool.files().join("peak.pb.gz");
    pool.poolscope().args(["dump", &pid, "--peak", "-o"]).arg(&profile).run().success();
    pprof_rules::check(&profile, &Expected { main: "peak", shown: "inuse_space", delta: false });
    let top = pprof::pprof(pool.files(), &["-top", "-unit=MB"], &profile).stdout;
    assert!(top.contains("hold_for_a_moment") && !top.contains("hold_later"), "{top}");

    let refused = pool.poolscope().args(["flamegraph", &pid, "--leaked"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("still runs"), "{}", refused.report());
    program.send("\n");
    assert_eq!(program.finish().code(), 0);
    let leaked = flamegraph(&pool, &pid, &["--leaked"]);
    assert_eq!(bytes(&leaked, "hold_for_good"), MIB);
    assert_eq!(bytes(&leaked, "hold_later"), 0.0);
    assert!(leaked.contains(", never freed: bytes in use"), "{leaked}");
    assert_eq!(bytes(&flamegraph(&pool, &pid, &["--peak"]), "hold_for_a_moment"), 8.0 * MIB, "the peak outlives it");
}

#[test]
fn what_a_killed_process_had_is_not_called_leaked() {
    let pool = Pool::new();
    let program = program(&pool, "1");
    let pid = program.pid().to_string();
    program.signal(9);
    program.finish();
    let picture = flamegraph(&pool, &pid, &["--leaked"]);
    assert_eq!(bytes(&picture, "hold_later"), 2.0 * MIB);
    assert!(picture.contains("in use at its end, leaked or not: bytes in use"), "{picture}");
    assert!(!picture.contains("never freed"), "{picture}");
}

#[test]
fn a_peak_is_estimated_from_samples() {
    let pool = Pool::new();
    let program = program(&pool, "16K");
    let peak = flamegraph(&pool, &program.pid().to_string(), &["--peak"]);
    // 512 samples: a standard error of 4.4%, and 3% that the process may not have written down.
    let moment = bytes(&peak, "hold_for_a_moment") / MIB;
    assert!((6.0..10.0).contains(&moment), "{moment} MiB");
    assert!(peak.contains("estimated from samples"), "{peak}");
}

#[test]
fn what_has_no_peak_and_what_is_not_in_use_is_refused() {
    let pool = Pool::new();
    let program = program(&pool, "1");
    let pid = program.pid().to_string();
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &pid, "-o"]).arg(&profile).run().success();
    let profile = profile.to_str().expect("is text");
    for (args, says) in [
        (&["flamegraph", profile, "--peak"][..], "heap.pb.gz does not say when most was in use"),
        (&["flamegraph", &pid, "--peak", "--metric", "alloc_space"], "about memory in use"),
        (&["flamegraph", &pid, "--peak", "--leaked"], "cannot be used with"),
        (&["flamegraph", profile, "--leaked"], "heap.pb.gz does not say whether the process has ended"),
    ] {
        let output = pool.poolscope().args(args).run();
        assert!(output.code() == 2 && output.stderr.contains(says), "{args:?}: {}", output.report());
    }
}
