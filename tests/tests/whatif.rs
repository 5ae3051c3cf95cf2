//! `poolscope whatif --host`: what ways to place blocks would hold, beside what the pool really held.

use poolscope_e2e::Pool;
use poolscope_e2e::compiler::compile_with_headers;

/// How far the figure for the pool may lie from what the kernel counts, as a part of that. The kernel counts the pool's
/// own memory, too.
const NEAR: f64 = 0.05;

#[test]
fn the_pools_own_policy_holds_what_the_kernel_counts() {
    let pool = Pool::new();
    let program = compile_with_headers(pool.files(), "tests/csrc/other_sizes.c", "other_sizes", &["-O2"]);
    // No clock gives anything back meanwhile.
    let recorded = pool.poolscope().args(["record", "--lossless", "-o", "app.rec", "--"]).arg(&program);
    let output = recorded.env("POOLSCOPE_SCAVENGE_MS", "600000").env("POOLSCOPE_PERIOD", "1T").run();
    assert!(output.status.success(), "{}", output.report());
    let numbers = |line: &str| line.split(' ').map(|n| n.parse::<f64>().ok()).collect::<Option<Vec<f64>>>();
    let phases: Vec<Vec<f64>> = output.stdout.lines().filter_map(numbers).collect();
    assert_eq!(phases.len(), 5, "{}", output.report());
    let (grown, live) = (phases[4][0], phases[4][1]);
    let most = phases.iter().map(|phase| phase[0]).fold(0.0, f64::max);

    let found = pool.json(&["whatif", "app.rec", "--host", "--json"]);
    let bytes = |name: &str| found[name].as_f64().expect("a number");
    // The C library's own blocks are few.
    assert!((bytes("end_live") / live - 1.0).abs() < 0.01, "{found}");
    let policies = found["policies"].as_array().expect("policies");
    let of = |policy: &serde_json::Value, name: &str| policy[name].as_f64().expect("a number");
    let end = of(&policies[0], "end_held");
    assert!((end / grown - 1.0).abs() < NEAR, "{end} is said, {grown} is counted\n{found}");
    let peak = of(&policies[0], "peak_held");
    assert!(peak > most * (1.0 - NEAR), "{peak} is said, {most} is counted at the end of a phase\n{found}");
    // What gives every page back at once holds less than what gives nothing back.
    let held = |label: &str| {
        let policy = policies.iter().find(|policy| policy["policy"].as_str().is_some_and(|it| it.starts_with(label)));
        of(policy.expect("a policy"), "mean_held_to_live")
    };
    assert!(held("pages without a block") < held("the pool, as it comes"), "{found}");
    assert!(held("the pool, as it comes") < held("POOLSCOPE_GOAL=speed"), "{found}");
}

#[test]
fn what_is_no_recording_is_refused_with_how_to_make_one() {
    let pool = Pool::new();
    pool.files().write("trace", "+ 1 100 0\n");
    let refused = pool.poolscope().args(["whatif", "trace", "--host"]).run();
    assert_eq!(refused.code(), 2);
    assert!(refused.stderr.contains("poolscope record"), "{}", refused.report());
}
