//! Traces: what is one, what is none, and what a replay says.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use poolscope_gpu::{Config, Simulated};
use poolscope_replay::{Playback, Replay, Trace, TraceError, policies};

fn file(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("poolscope-replay-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_trace_is_read_plain_or_packed() {
    let text = b"# a model\n+ a 1000 0\n\n+ b 2000 7\r\n- a\n+ a 500 0\n";
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text).unwrap();
    for (name, bytes) in [("plain", text.to_vec()), ("packed", packer.finish().unwrap())] {
        let path = file(name, &bytes);
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!((trace.len(), trace.operations(), trace.streams(), trace.peak()), (4, 6, 2, 3000));
    }
}

#[test]
fn a_line_that_is_none_is_named() {
    let cases = [
        ("+ 1 100 0\n- 2\n", 2, "block 2 is not allocated"),
        ("+ 1 100 0\n- 1\n- 1\n", 3, "block 1 is not allocated"),
        ("+ 1 100 0\n+ 1 100 0\n", 2, "block 1 is allocated already"),
        ("+ 1 -5 0\n", 1, "the size is no number of bytes"),
        ("+ 1 5\n", 1, "neither"),
        ("+ 1 5 0 0\n", 1, "neither"),
        ("- 1 0\n", 1, "neither"),
        ("malloc 5\n", 1, "neither"),
        ("+ 1 9223372036854775808 0\n", 1, "the size is no number of bytes"),
        ("+ 1 9223372036854775807 0\n+ 2 9223372036854775807 0\n+ 3 2 0\n", 3, "too large"),
    ];
    for (text, line, says) in cases {
        let error = Trace::parse(text).unwrap_err();
        assert!(matches!(error, TraceError::Line { line: at, .. } if at == line), "{text:?}: {error}");
        assert!(error.to_string().contains(says), "{text:?}: {error}");
    }
}

#[test]
fn a_file_that_is_no_trace_is_named() {
    let missing = Trace::open("/nonexistent/trace").unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/trace") && missing.contains("No such file"), "{missing}");
    for (name, bytes, says) in
        [("cut", &b"\x1f\x8b\x08\x00"[..], "can't be read"), ("binary", b"+ 1 2 0\n\xff\xfe", "line 2")]
    {
        let path = file(name, bytes);
        let error = Trace::open(&path).unwrap_err().to_string();
        std::fs::remove_file(path).unwrap();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn every_policy_replays_a_trace_with_several_streams() {
    let mut text = String::new();
    for block in 0..300 {
        text += &format!("+ {block} {} {}\n", (block % 37 + 1) * 40_000, block % 3);
        if block >= 20 {
            text += &format!("- {}\n", block - 20);
        }
    }
    let trace = Trace::parse(&text).unwrap();
    for name in policies::NAMES {
        let device = Arc::new(Simulated::new(4 << 30));
        let policy = policies::build(name, device.clone(), &Config::default()).unwrap().unwrap();
        let mut replay = Replay::new(&trace, &*policy, (0..3).map(|_| device.stream()).collect());
        let cold = replay.pass().unwrap();
        let warm = replay.pass().unwrap();
        assert_eq!(cold.operations, 600);
        assert!(cold.driver_calls > 0 && warm.driver_calls <= cold.driver_calls, "{name}: {cold:?}, {warm:?}");
        assert!(cold.peak_reserved >= trace.peak() && cold.fragmentation(&trace) < 0.8, "{name}: {cold:?}");
        assert_eq!(policy.stats().in_use, 0, "{name}");
        assert_eq!(device.violations(), []);
    }
}

#[test]
fn a_replay_that_runs_out_of_memory_names_the_line_and_leaves_nothing() {
    let trace = Trace::parse("# small\n+ 1 1000000 0\n+ 2 1000000 0\n- 1\n+ 3 99000000 0\n").unwrap();
    for name in policies::NAMES {
        let device = Arc::new(Simulated::new(64 << 20));
        let policy = policies::build(name, device.clone(), &Config::default()).unwrap().unwrap();
        let error = policy.pass(&mut Playback::new(&trace, vec![device.stream()])).unwrap_err();
        assert_eq!(error.line, 5, "{name}: {error}");
        assert!(error.to_string().contains("990000"), "{error}");
        assert_eq!(policy.stats().in_use, 0, "{name}");
    }
}

#[test]
fn the_loop_itself_is_measured() {
    let trace = Trace::parse("+ 1 1000 0\n- 1\n").unwrap();
    let cost = trace.loop_cost();
    assert_eq!(cost.operations, 2);
    assert!(cost.per_operation() < 1e6);
}
