//! The benchmark of device memory on the simulated device: its figures are the same on every machine, and those of the
//! pool's goals are held to them that it has reached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn bench(arguments: &[&str], output: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-gpu"));
    command.args(["--device", "sim"]).args(arguments).arg("--output").arg(output);
    command.output().unwrap()
}

fn json(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("bench-gpu-sim.json")).unwrap()).unwrap()
}

#[test]
fn the_pool_holds_little_and_calls_the_driver_seldom_on_every_trace() {
    let folder = folder("goals");
    let output = bench(&["--contestants", "tiered", "--check"], &folder);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let results = json(&folder);
    let goals: Vec<_> = results["goals"].as_array().unwrap().iter().filter(|goal| goal["anywhere"] == true).collect();
    let figures: Vec<_> = goals.iter().map(|goal| goal["reached"].as_str().unwrap().split(", ").count()).collect();
    assert_eq!(figures, [3, 2, 3, 3], "a figure for each trace: {text}");
    assert!(goals.iter().all(|goal| goal["met"] == true), "{text}");
}

#[test]
fn every_policy_is_measured_twice_with_the_same_figures() {
    let first = folder("policies-1");
    let second = folder("policies-2");
    let trace = first.join("small.trace");
    let lines: String = (0..2000)
        .map(|block| {
            let free = if block >= 40 { format!("- {}\n", block - 40) } else { String::new() };
            format!("+ {block} {} 0\n{free}", (block * 7919 % 97 + 1) * 20_000)
        })
        .collect();
    std::fs::write(&trace, lines).unwrap();
    for folder in [&first, &second] {
        let output = bench(&["--trace", trace.to_str().unwrap()], folder);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let svg = std::fs::read_to_string(folder.join("bench-gpu-sim.svg")).unwrap();
        assert!(svg.contains("tiered") && svg.contains("Traces"), "the picture has the policies");
    }
    let (first, second) = (json(&first), json(&second));
    for (row, again) in first["rows"].as_array().unwrap().iter().zip(second["rows"].as_array().unwrap()) {
        let cells = row["cells"].as_object().unwrap();
        assert_eq!(cells.len(), 6, "{row}");
        for (policy, cell) in cells {
            assert_eq!(cell.get("failure"), None, "{policy}");
            for figure in [
                "peak_reserved",
                "fragmentation",
                "warm_calls",
                "warm_driver_ns",
                "after_150_driver_ns",
                "p99",
                "longest",
            ] {
                assert_eq!(cell[figure]["median"], again["cells"][policy][figure]["median"], "{policy}: {figure}");
            }
        }
    }
}

#[test]
fn a_goal_that_is_missed_ends_the_check_with_1() {
    let folder = folder("missed");
    let trace = folder.join("one-byte.trace");
    // 255 of 256 bytes of each block are nobody's.
    std::fs::write(&trace, (0..20_000).map(|block| format!("+ {block} 1 0\n")).collect::<String>()).unwrap();
    let output =
        bench(&["--contestants", "tiered", "--only", "trace/", "--check", "--trace", trace.to_str().unwrap()], &folder);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("MISSED"));
}

#[test]
fn what_is_asked_wrongly_is_an_error() {
    let folder = folder("wrong");
    for (arguments, says) in [
        (&["--contestants", "best"][..], "no contestant best; there are tiered, "),
        (&["--only", "nothing"], "--list shows them"),
        (&["--trace", "/nonexistent/model.trace", "--only", "trace/"], ""),
    ] {
        let output = bench(arguments, &folder);
        let text = String::from_utf8_lossy(&output.stderr);
        if says.is_empty() {
            // The row fails by name, and the others are measured.
            assert!(String::from_utf8_lossy(&output.stdout).contains("/nonexistent/model.trace can't be read"));
        } else {
            assert!(output.status.code() == Some(2) && text.contains(says), "{text}");
        }
    }
}

/// CuPy's process is a program of Python's: what it says first is an answer that the benchmark reads,
/// whether CuPy is there or not.
#[test]
fn the_worker_in_python_says_whether_it_can_take_part() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/gpu/cupy_worker.py");
    let output = Command::new("python3").args([program, "0"]).stdin(Stdio::null()).output().unwrap();
    let line = String::from_utf8_lossy(&output.stdout);
    let answer: Value = serde_json::from_str(line.trim()).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    assert!(answer["ready"].is_string() || answer["absent"].is_string(), "{answer}");
}
