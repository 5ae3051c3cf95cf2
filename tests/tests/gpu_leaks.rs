//! Memory of devices in leak reports: in use if a pointer of the host's leads to it, and leaked if none does.

use poolscope_e2e::{Pool, compiler};
use serde_json::Value;

/// Kind, bytes and verdict of each leak.
fn leaks(report: &Value, list: &str) -> Vec<(String, u64, String)> {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let leaks = report[list].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let mut leaks: Vec<_> = leaks
        .map(|leak| (word(&leak["kind"]), leak["bytes"].as_u64().expect("bytes"), word(&leak["verdict"])))
        .collect();
    leaks.sort();
    leaks
}

#[test]
fn device_memory_is_in_use_if_a_pointer_of_the_hosts_leads_to_it() {
    let pool = Pool::new();
    let program = pool.files().join("gpu_leaks");
    compiler::compile_with_gpu(&program, "gpu_leaks.c", &["-O1", "-g", "-fno-builtin"]);
    let check = |arguments: &[&str]| {
        let check = pool.poolscope().env("POOLSCOPE_GPU_DEVICE", "sim:1073741824");
        let output = check.args(["check", "--all", "--json", "--"]).arg(&program).args(arguments).run();
        let report: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.report()));
        (output.code(), report["processes"][0]["report"].clone())
    };
    let leak = |kind: &str, bytes: u64, verdict: &str| (kind.to_owned(), bytes, verdict.to_owned());
    let (code, report) = check(&[]);
    assert_eq!((code, leaks(&report, "leaks")), (0, Vec::new()), "{report:#}");
    let mut held = leaks(&report, "reachable");
    held.retain(|(kind, ..)| kind != "host");
    let expected = [
        leak("device", 6000, "retained"),
        leak("device", 12000, "retained"),
        leak("device", 2 << 20, "retained"),
        leak("device", 4 << 20, "possible"),
        leak("pinned", 8000, "retained"),
    ];
    assert_eq!(held, expected, "{report:#}");

    let (code, report) = check(&["lose"]);
    let expected = [
        leak("device", 5000, "indirect"),
        leak("device", 10000, "indirect"),
        leak("device", 3 << 20, "direct"),
        leak("host", 8, "direct"),
        // What the deleters of the owned buffers get.
        leak("host", 32, "direct"),
        leak("host", 32, "indirect"),
        leak("host", 40, "direct"),
        // What a thread remembers of its stack has the frame pointer's value.
        leak("host", 56, "direct"),
        leak("pinned", 7000, "direct"),
        leak("pinned", 11000, "direct"),
    ];
    assert_eq!((code, leaks(&report, "leaks")), (23, expected.to_vec()), "{report:#}");
    let text = report.to_string();
    assert!(
        ["lose_a_tensor", "lose_pinned_memory", "lose_owned_buffers"].iter().all(|site| text.contains(site)),
        "{report:#}"
    );
}
