//! `poolscope replay`: how a recorded program was at any moment, against what it was told to do then.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use poolscope_e2e::terminal::Terminal;
use poolscope_e2e::{Pool, Program, compiler};
use serde_json::Value;

/// The recording of a program that holds 100 blocks of 1,337 bytes and, 1.4 seconds later, 3,000 more.
fn recorded(pool: &Pool) -> PathBuf {
    let flags = ["-O1", "-g", "-fno-builtin", "-pthread"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/asked.c", "asked", &flags);
    let file = pool.files().join("asked.rec");
    let mut recorder = pool.poolscope().args(["record", "-o"]).arg(&file).arg("--").arg(&program).start();
    recorder.wait_for_line("ready");
    recorder.send("hold 100\n");
    recorder.wait_for_line("done");
    sleep(Duration::from_millis(1400));
    recorder.send("drop\nhold 3000\n");
    recorder.wait_until("all", |running| (running.stdout().lines().count() > 3).then_some(()));
    recorder.end_input();
    assert_eq!(recorder.finish().code(), 0);
    file
}

fn screen(pool: &Pool, file: &Path, at: Option<f64>) -> String {
    let at = at.map(|at| vec!["--at".to_owned(), at.to_string()]).unwrap_or_default();
    let command = pool.poolscope().arg("replay").arg(file).args(["--once", "--view", "sites"]).args(at);
    command.run().silent_success().stdout
}

/// Bytes in use, as the row of a function says it.
fn has(screen: &str, function: &str, bytes: &str) -> bool {
    screen.lines().any(|line| line.contains(function) && line.contains(bytes))
}

#[test]
fn a_recording_shows_what_was_in_use_at_each_moment() {
    let pool = Pool::new();
    let file = recorded(&pool);
    let report = pool.poolscope().arg("report").arg(&file).arg("--json").run().success().stdout;
    let report: Value = serde_json::from_str(&report).expect("report --json is JSON");
    let end = report["end_us"].as_f64().unwrap_or_else(|| panic!("{report}")) / 1e6;
    // 100 blocks, then 3,100.
    let (then, last) = (screen(&pool, &file, Some(end - 0.7)), screen(&pool, &file, None));
    assert!(has(&then, " main ", "131 KiB") && !has(&then, " main ", "3.95 MiB"), "{then}");
    assert!(has(&last, " main ", "3.95 MiB") || has(&last, " main ", "3.83 MiB"), "{last}");

    let terminal = Terminal::start(&pool, "replay", &format!("replay '{}'", file.display()));
    terminal.wait_for("its end", |screen| screen.contains("‖ recorded") && screen.contains(" s of "));
    terminal.press(&["{"]);
    terminal.wait_for("its start", |screen| screen.contains(" 0.00 s of ") && screen.contains("LIVE"));
    terminal.press(&["3", "Space"]);
    terminal.wait_for("the first blocks", |screen| has(screen, " main ", "131 KiB"));
    terminal.wait_for("its end", |screen| screen.contains("‖ recorded") && has(screen, " main ", "MiB"));
}

/// A snapshot of PyTorch's memory, written by Python as PyTorch does.
#[test]
fn a_snapshot_of_torchs_memory_is_shown_by_call_sites() {
    let pool = Pool::new();
    let file = pool.files().join("snapshot.pickle");
    let script = "import pickle, sys\n\
        frame = {'name': 'train_step', 'filename': 'train.py', 'line': 12}\n\
        block = {'size': 3 << 20, 'requested_size': 3 << 20, 'state': 'active_allocated', 'frames': [frame]}\n\
        segments = [{'device': 0, 'blocks': [block]}]\n\
        pickle.dump({'segments': segments, 'device_traces': []}, open(sys.argv[1], 'wb'))";
    Program::new("python3").args(["-c", script]).arg(&file).run().success();
    let shown = screen(&pool, &file, None);
    assert!(has(&shown, "train_step", "3.00 MiB"), "{shown}");

    let none = pool.poolscope().args(["replay", "/nonexistent.rec", "--once"]).run();
    assert!(none.code() == 2 && none.stderr.contains("cannot read /nonexistent.rec"), "{}", none.report());
    let text = pool.files().write("notes.txt", "no profile\n");
    let none = pool.poolscope().arg("replay").arg(text).arg("--once").run();
    assert!(none.code() == 2 && none.stderr.contains("notes.txt"), "{}", none.report());
}
