//! Programs with known calls, their recorder, and what a report of a recording says.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::{Output, Pool, Running, Segment};
use poolscope_wire::trace::{RingHeader, TRACE_PAGE};
use poolscope_wire::{HEADER_LEN, Header};
use serde_json::Value;

/// Compiles a program that is to be recorded.
pub fn program(pool: &Pool, source: &str, flags: &[&str]) -> PathBuf {
    let output = pool.files().join("traced");
    compile_into(&output, Path::new(source), &[&["-O2", "-fno-builtin"], flags].concat(), &[]);
    output
}

pub fn traced(pool: &Pool) -> PathBuf {
    program(pool, "tests/csrc/traced.c", &[])
}

pub const FILE: &str = "test.rec";

/// Records a command to its end.
pub fn record(pool: &Pool, options: &[&str], command: &[&str]) -> Output {
    pool.poolscope().args(["record", "-o", FILE]).args(options).arg("--").args(command).run()
}

/// The report of the recording.
pub fn report(pool: &Pool, options: &[&str]) -> Value {
    let output = pool.poolscope().args(["report", FILE, "--json"]).args(options).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    serde_json::from_str(&output.stdout).expect("the report is JSON")
}

/// What the functions of a program did, with all that they called: allocations, bytes, frees.
pub fn by_function(report: &Value) -> BTreeMap<String, [u64; 3]> {
    let mut functions: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for site in report["sites"].as_array().expect("sites") {
        let names =
            site["frames"].as_array().expect("frames").iter().map(|frame| frame["function"].as_str().unwrap_or(""));
        let names: std::collections::BTreeSet<&str> = names.collect();
        let figure = |of: &str, what: &str| site[of][what].as_u64().expect("a figure");
        let figures = [figure("allocated", "objects"), figure("allocated", "bytes"), figure("freed", "objects")];
        for name in names {
            let function = functions.entry(name.to_owned()).or_default();
            function.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
    }
    functions
}

/// What a program says of itself, a line for each function: its name, allocations, bytes (0 for any) and frees.
#[track_caller]
pub fn assert_as_said(report: &Value, said: &str) {
    let functions = by_function(report);
    let mut lines = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, numbers @ ..] = words.as_slice() else { continue };
        let expected: Vec<u64> = numbers.iter().map(|number| number.parse().expect("a number")).collect();
        let mut found = functions.get(*name).copied().unwrap_or_default();
        if expected[1] == 0 {
            found[1] = 0;
        }
        assert_eq!(found.as_slice(), expected, "{name}");
        lines += 1;
    }
    assert!(lines > 0, "the program said nothing");
}

pub fn number(report: &Value, path: &[&str]) -> u64 {
    let value = path.iter().fold(report, |value, key| &value[*key]);
    value.as_u64().unwrap_or_else(|| panic!("{path:?} is no number but {value}"))
}

#[track_caller]
pub fn assert_nothing_lost(report: &Value) {
    assert_eq!(
        (number(report, &["lost", "events"]), report["finished"].as_bool()),
        (0, Some(true)),
        "{}",
        report["lost"]
    );
}

/// Starts a program that answers each line with a thousand blocks.
pub fn steps(pool: &Pool) -> Running {
    let traced = traced(pool);
    let mut running = pool.program(traced).arg("steps").start();
    running.wait_for_line("ready");
    running
}

/// Starts a recorder of a process, and waits until it records.
pub fn attach(pool: &Pool, target: &mut Running, options: &[&str], step: &mut u32) -> Running {
    // That of a recorder before it.
    let _ = std::fs::remove_file(pool.files().join(FILE));
    attach_to_file(pool, target, options, step)
}

/// The same, whatever the file has.
pub fn attach_to_file(pool: &Pool, target: &mut Running, options: &[&str], step: &mut u32) -> Running {
    let len = || std::fs::metadata(pool.files().join(FILE)).map_or(0, |file| file.len());
    let before = len();
    let mut recorder = pool.poolscope().args(["record", &target.pid().to_string(), "-o", FILE]).args(options).start();
    // The program answers when it allocates.
    recorder.wait_until("the program answered", |_| {
        take_step(target, step);
        (len() > before).then_some(())
    });
    recorder
}

pub fn take_step(target: &mut Running, step: &mut u32) {
    *step += 1;
    target.send("go\n");
    target.wait_for_line(&format!("step {step}"));
}

/// A statically linked program, which no library can be loaded into.
pub fn static_program(pool: &Pool) -> PathBuf {
    let output = pool.files().join("static");
    compile_into(&output, Path::new("tests/csrc/traced.c"), &["-O2", "-fno-builtin", "-static"], &[]);
    output
}

/// Waits until the recorder has taken everything out of the first ring: the allocations that found no room there.
pub fn wait_until_read(pool: &Pool, recorder: &mut Running) -> u64 {
    recorder.wait_until("the recorder read the ring", |_| {
        let mut files = std::fs::read_dir(pool.segment_dir()).unwrap().flatten().map(|entry| entry.path());
        let trace = File::open(files.find(|path| path.extension().is_some_and(|end| end == "trace"))?).ok()?;
        let mut header = [0; RingHeader::LEN];
        trace.read_exact_at(&mut header, TRACE_PAGE as u64).ok()?;
        let ring = RingHeader::from_bytes(&header)?;
        (ring.head > 0 && ring.tail == ring.head).then_some(ring.lost_allocs)
    })
}

/// Puts the beginning of a segment there as if a process of this number had left it: the path.
pub fn leave_to(pool: &Pool, left: &Segment, number: u32) -> PathBuf {
    let path = pool.segment_dir().join(format!("{number}.{:016x}", left.header.generation));
    let mut header = [0; HEADER_LEN];
    let whole = File::open(&left.path).unwrap();
    whole.read_exact_at(&mut header, 0).unwrap();
    let at = std::mem::offset_of!(Header, pid);
    header[at..at + 4].copy_from_slice(&number.to_le_bytes());
    let file = File::create(&path).unwrap();
    file.write_all_at(&header, 0).unwrap();
    file.set_len(whole.metadata().unwrap().len()).unwrap();
    path
}
