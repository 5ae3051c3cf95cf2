//! What a command is told to look at: a process by its id or its name, or a segment's file.

pub(crate) mod named;
pub(crate) mod profiles;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use color_eyre::eyre::Result;
use poolscope_profiler::build::language;
use poolscope_profiler::model::snapshot::{ProcessInfo, ProcessState};
use poolscope_profiler::process::family::{self, Child};
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::segment::folders;
use poolscope_profiler::{Profile, ProfileBuilder, SegmentReader, process};
use poolscope_wire::{MAGIC, older};

use crate::args::Origin;
use crate::failure::Failure;
use crate::sink;
use crate::words::{called, printable};
pub(crate) use named::is_name;
pub(crate) use profiles::{Loaded, is_recording, load, read_profile};

/// The segment that an argument means.
pub(crate) fn find(argument: &str) -> Result<SegmentEntry, Failure> {
    let entry = if is_name(argument) {
        named::one(argument)?
    } else {
        discovery::find(argument).map_err(|e| Failure::usage(e.to_string()))?
    };
    say_older(&entry);
    say_successor(argument, &entry);
    Ok(entry)
}

/// Says that a process of the number that was asked for runs, and is not the one that is answered for.
fn say_successor(argument: &str, entry: &SegmentEntry) {
    let is_number = argument.parse::<u32>().is_ok();
    if let Some(now) = process::successor(entry.pid, entry.state).filter(|_| is_number) {
        sink::say(&format!(
            "process {} is {now} now, which does not run on the pool: this is of {}, which had that number before",
            entry.pid,
            printable(&entry.exe)
        ));
    }
}

/// Says what a segment of an older version can't show.
fn say_older(entry: &SegmentEntry) {
    let lacks: Vec<&str> = older::lacks(entry.version).collect();
    if !lacks.is_empty() {
        sink::say(&format!(
            "the segment is of version {}, which does not have {}",
            entry.version,
            lacks.join(", nor ")
        ));
    }
}

/// The segment of the running process that an argument means.
pub(crate) fn find_running(argument: &str) -> Result<SegmentEntry, Failure> {
    let entry = if is_name(argument) {
        named::running(argument)?.ok_or_else(|| named::none(argument))?
    } else {
        discovery::find_running(argument).map_err(|e| Failure::usage(e.to_string()))?
    };
    say_older(&entry);
    Ok(entry)
}

/// The newest segment of a process that was not waited for, if it has one yet.
pub(crate) fn newest_segment(pid: u32) -> Option<PathBuf> {
    discovery::newest_of(pid).map(|entry| entry.path)
}

/// Why another segment is in the place of one that a process had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The process became another program by `exec`.
    Exec,
    /// The program has a pool of its own, beside the library that was loaded into it.
    OwnPool,
}

/// Whether another segment is in the place of `path` by now.
pub(crate) fn replacement(pid: u32, path: &Path) -> Option<Replacement> {
    replacement_and_path(pid, path).map(|(replacement, _)| replacement)
}

/// The segment that is in the place of `path` by now, if another one is.
pub(crate) fn replaced_by(pid: u32, path: &Path) -> Option<PathBuf> {
    replacement_and_path(pid, path).map(|(_, newer)| newer)
}

fn replacement_and_path(pid: u32, path: &Path) -> Option<(Replacement, PathBuf)> {
    let newest = discovery::newest_of(pid).filter(|newest| newest.path != path)?;
    match (discovery::writes_to(pid, path), newest.in_executable) {
        (false, _) => Some((Replacement::Exec, newest.path)),
        (true, true) => Some((Replacement::OwnPool, newest.path)),
        // A library that was loaded has a pool, too.
        (true, false) => None,
    }
}

/// Reads a segment, with the names of functions and threads. What keeps symbols from being found is said on standard
/// error.
pub(crate) fn read(reader: &mut SegmentReader, builder: &mut ProfileBuilder) -> Result<Profile, Failure> {
    let snapshot = reader.snapshot().map_err(|e| Failure::usage(e.to_string()))?;
    let mut profile = builder.build(&snapshot);
    profile.thread_names = thread_names(&snapshot.process);
    say_warnings(builder);
    Ok(profile)
}

/// Names of a process's threads, as far as it runs.
pub(crate) fn thread_names(process: &ProcessInfo) -> BTreeMap<u32, String> {
    if process.state == ProcessState::Running { process::thread_names(process.pid) } else { BTreeMap::new() }
}

/// The processes that one started, as far as it runs.
pub(crate) fn children(process: &ProcessInfo) -> Vec<Child> {
    if process.state == ProcessState::Running { family::children(process.pid) } else { Vec::new() }
}

/// Says what kept symbols from being found.
pub(crate) fn say_warnings(builder: &mut ProfileBuilder) {
    for warning in builder.take_warnings() {
        sink::say(&format!("{warning}"));
    }
}

/// Takes the interpreter out of stacks with functions of Python or Ruby; says so if there are none.
pub(crate) fn hide_interpreter(profile: &mut Profile) {
    if language::hide_interpreter(profile) == 0 {
        sink::say(
            "no stack has a function of Python or Ruby: where the library does not know the interpreter, CPython 3.12 or \
             later names them if it is started with -X perf, or with PYTHONPERFSUPPORT=1",
        );
    }
}

/// Whose a profile is that was just read.
pub(crate) fn origin(entry: &SegmentEntry, profile: &Profile) -> Origin {
    let running = entry.state == ProcessState::Running;
    let until_ns = if running { profile.time_realtime_ns } else { entry.alive_realtime_ns };
    let ran_ns = until_ns.saturating_sub(entry.start_realtime_ns);
    Origin { pid: entry.pid, command: command_of(&entry.args, &entry.exe), ran_ns }
}

/// How a program was called.
pub(crate) fn command_of(args: &[String], exe: &str) -> String {
    if args.is_empty() { printable(exe) } else { called(args.iter().map(String::as_str)) }
}

/// Whether a file is a segment, or has the name of one.
pub(crate) fn is_segment(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let reads = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    folders::is_segment_name(path, None) || reads.is_ok() && begin == MAGIC
}
