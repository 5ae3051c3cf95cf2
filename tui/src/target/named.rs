//! Processes by the name of their program.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::segment::folders;

use super::is_segment;
use crate::failure::Failure;
use crate::sink;
use crate::words::file_name;

/// How an executable begins.
const ELF: &[u8; 4] = b"\x7fELF";

/// Whether an argument is a program's name: it is no number, no path, no segment's file, and not `-`, which is standard
/// input. A person who looks at a program often stands in its folder.
pub(crate) fn is_name(argument: &str) -> bool {
    let is_path = argument == "-" || argument.contains('/') || is_segment(Path::new(argument));
    argument.parse::<u32>().is_err() && !is_path
}

/// Whether an argument that may also be any other file is a program's name: no file is called so, or an executable.
pub(crate) fn is_meant(argument: &str) -> bool {
    let mut begin = [0; ELF.len()];
    let reads = File::open(argument).map(|mut file| file.read_exact(&mut begin));
    is_name(argument) && (reads.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) || begin == *ELF)
}

/// Whether a process is called so: by its first argument, or by its executable.
pub(crate) fn is_called(entry: &SegmentEntry, name: &str) -> bool {
    let first = entry.args.first().map(String::as_str).unwrap_or_default();
    [first, &entry.exe].into_iter().any(|path| file_name(path) == name)
}

/// The segment of the one process that a name means: of the one that runs, or else of the last one that has ended.
pub(crate) fn one(name: &str) -> Result<SegmentEntry, Failure> {
    if let Some(entry) = running(name)? {
        return Ok(entry);
    }
    let last = all_called(name)?.into_iter().max_by_key(|entry| entry.alive_realtime_ns).ok_or_else(|| none(name))?;
    sink::say(&format!("no process called {name} runs on the pool: this is of process {}, which has ended", last.pid));
    Ok(last)
}

/// The segment of the one running process that a name means.
pub(crate) fn running(name: &str) -> Result<Option<SegmentEntry>, Failure> {
    let pids: Vec<String> = all_running(name)?.iter().map(|entry| entry.pid.to_string()).collect();
    match &pids[..] {
        [] => Ok(None),
        // Of two pools of its own, it says which one serves the program.
        [only] => discovery::find_running(only).map(Some).map_err(|e| Failure::usage(e.to_string())),
        several => {
            let why = format!("{} processes are called {name}: say which, {}", several.len(), several.join(", "));
            Err(Failure::usage(why))
        }
    }
}

/// The running processes of a name by a segment of each, the newest first.
pub(crate) fn all_running(name: &str) -> Result<Vec<SegmentEntry>, Failure> {
    let mut called = all_called(name)?;
    let mut seen = HashSet::new();
    called.retain(|entry| entry.state == ProcessState::Running && seen.insert(entry.pid));
    Ok(called)
}

/// The segment of the running process of this name that was started last.
pub(crate) fn newest(name: &str) -> Option<SegmentEntry> {
    all_running(name).ok()?.into_iter().next()
}

/// Nobody is called so.
pub(crate) fn none(name: &str) -> Failure {
    if is_meant(name) && Path::new(name).exists() {
        return Failure::usage(format!(
            "no process called {name} runs on the pool: `poolscope run -- ./{name}` starts the program that lies here"
        ));
    }
    if Path::new(name).exists() {
        return Failure::usage(format!(
            "no process called {name} runs on the pool, and the file {name} is no segment: `poolscope replay` shows \
             recordings and profiles"
        ));
    }
    let hint = folders::of_others().map_or_else(String::new, |hint| format!(". {hint}"));
    Failure::usage(format!(
        "{name:?} is neither a process id, nor the name of a program on the pool, nor a file that is there: `poolscope \
         list` shows processes, and `poolscope top {name} --follow-name` waits for one{hint}"
    ))
}

fn all_called(name: &str) -> Result<Vec<SegmentEntry>, Failure> {
    let listing = discovery::list().map_err(|e| Failure::usage(e.to_string()))?;
    Ok(listing.entries.into_iter().filter(|entry| is_called(entry, name)).collect())
}
