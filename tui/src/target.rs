//! What a command is told to look at: a process id or a segment's file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use color_eyre::eyre::Result;
use poolscope_profiler::build::python;
use poolscope_profiler::imports;
use poolscope_profiler::leaks::Claim;
use poolscope_profiler::model::snapshot::{ProcessInfo, ProcessState};
use poolscope_profiler::process::family::{self, Child};
use poolscope_profiler::recording::file::reader::{RecordingError, RecordingReader};
use poolscope_profiler::recording::replay::analysis::{Analysis, Question};
use poolscope_profiler::recording::tap::now_ns;
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::{Profile, ProfileBuilder, SegmentReader, process};
use poolscope_wire::{MAGIC, older};

use crate::args::Origin;
use crate::failure::Failure;
use crate::words::{called, file_name, printable};
use crate::{sink, symbols};

/// The segment that an argument means.
pub(crate) fn find(argument: &str) -> Result<SegmentEntry, Failure> {
    let entry = discovery::find(argument).map_err(|e| Failure::usage(e.to_string()))?;
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
    let entry = discovery::find_running(argument).map_err(|e| Failure::usage(e.to_string()))?;
    say_older(&entry);
    Ok(entry)
}

/// The newest segment of a process that was not waited for, if it has one yet.
pub(crate) fn newest_segment(pid: u32) -> Option<PathBuf> {
    discovery::newest_of(pid).map(|entry| entry.path)
}

/// Whether a process is called so: by its first argument, or by its executable.
pub(crate) fn is_called(entry: &SegmentEntry, name: &str) -> bool {
    let first = entry.args.first().map(String::as_str).unwrap_or_default();
    [first, &entry.exe].into_iter().any(|path| file_name(path) == name)
}

/// The segments of the running processes of a name.
pub(crate) fn running_called(name: &str) -> Result<Vec<SegmentEntry>, Failure> {
    let listing = discovery::list().map_err(|e| Failure::usage(e.to_string()))?;
    let running = |entry: &SegmentEntry| entry.state == ProcessState::Running && is_called(entry, name);
    Ok(listing.entries.into_iter().filter(running).collect())
}

/// The segment of the running process of this name that was started last.
pub(crate) fn newest_called(name: &str) -> Option<SegmentEntry> {
    let running = |entry: &SegmentEntry| entry.state == ProcessState::Running && is_called(entry, name);
    discovery::list().ok()?.entries.into_iter().filter(running).max_by_key(|entry| entry.start_realtime_ns)
}

/// Whether an argument is a program's name: it is no number, no path, and no segment's file. A person who looks at a
/// program often stands in its folder.
pub(crate) fn is_name(argument: &str) -> bool {
    let is_path = argument.contains('/') || is_segment(Path::new(argument));
    argument.parse::<u32>().is_err() && !is_path
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

/// Takes the interpreter out of stacks with functions of Python; says so if there are none.
pub(crate) fn hide_interpreter(profile: &mut Profile) {
    if python::hide_interpreter(profile) == 0 {
        sink::say(
            "no stack has a function of Python: CPython 3.12 or later names them if it is started with -X perf, \
             or with PYTHONPERFSUPPORT=1",
        );
    }
}

/// A profile, wherever it comes from.
pub(crate) struct Loaded {
    pub(crate) profile: Profile,
    /// What it is called in titles.
    pub(crate) label: String,
    /// What may be said of blocks that are in use: nothing is known of a process by a pprof file.
    pub(crate) claim: Option<Claim>,
    pub(crate) origin: Origin,
}

/// Reads what an argument means: a process id, the file of a segment or of a recording, or a profile that this or
/// another tool wrote; `-` is standard input.
pub(crate) fn load(argument: &str) -> Result<Loaded, Failure> {
    let is_process = argument.parse::<u32>().is_ok();
    let path = &piped(argument)?.unwrap_or_else(|| argument.to_owned());
    if is_recording(path) {
        return load_recording(path);
    }
    if !is_process && let Some(loaded) = load_profile(path, argument)? {
        return Ok(loaded);
    }
    let entry = find(path)?;
    let mut reader = SegmentReader::open(&entry.path).map_err(|e| Failure::usage(e.to_string()))?;
    let profile = read(&mut reader, &mut symbols::profile_builder())?;
    let program = entry.exe.rsplit('/').next().unwrap_or_default();
    let origin = origin(&entry, &profile);
    Ok(Loaded { profile, label: format!("{program} (pid {})", entry.pid), claim: Some(Claim::of(entry.state)), origin })
}

/// What comes through a pipe, in a file without a name: formats are known by their first bytes, and read from there
/// again. `None` for what is no pipe.
fn piped(argument: &str) -> Result<Option<String>, Failure> {
    let is_input = argument == "-";
    let is_pipe = || std::fs::metadata(argument).is_ok_and(|file| file.file_type().is_fifo());
    if !is_input && !is_pipe() {
        return Ok(None);
    }
    let failed = |error: io::Error| Failure::usage(format!("cannot read {}: {error}", shown(argument)));
    let path = std::env::temp_dir().join(format!("poolscope-{}-{}", std::process::id(), now_ns()));
    let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    std::fs::remove_file(&path).map_err(failed)?;
    if is_input {
        io::copy(&mut io::stdin().lock(), &mut file).map_err(failed)?;
    } else {
        io::copy(&mut File::open(argument).map_err(failed)?, &mut file).map_err(failed)?;
    }
    // It goes with the process.
    Ok(Some(format!("/proc/self/fd/{}", file.into_raw_fd())))
}

/// What a file of the command line is called.
fn shown(argument: &str) -> &str {
    if argument == "-" { "standard input" } else { argument }
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

/// Whether an argument is the file of a recording.
pub(crate) fn is_recording(argument: &str) -> bool {
    argument.parse::<u32>().is_err() && RecordingReader::is_recording(Path::new(argument))
}

/// The profile of a recording, as it is at its end.
fn load_recording(path: &str) -> Result<Loaded, Failure> {
    let failed = |error: RecordingError| Failure::usage(error.to_string());
    let mut reader = RecordingReader::open(Path::new(path)).map_err(failed)?;
    let mut builder = crate::symbols::profile_builder();
    let analysis = Analysis::of(&mut reader, &mut builder, Question::default()).map_err(failed)?;
    for warning in builder.take_warnings() {
        sink::say(&format!("{warning}"));
    }
    for caution in analysis.cautions() {
        sink::say(caution);
    }
    let program = analysis.session.exe.rsplit('/').next().unwrap_or_default();
    let label = format!("{program} (pid {}, recorded)", analysis.session.pid);
    let session = &analysis.session;
    let origin = Origin { pid: session.pid, command: command_of(&session.args, &session.exe), ran_ns: 0 };
    Ok(Loaded { label, profile: analysis.profile, claim: Some(Claim::WasInUse), origin })
}

/// Whether a file is a segment, or has the name of one.
pub(crate) fn is_segment(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let reads = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    discovery::is_segment_name(path, None) || reads.is_ok() && begin == MAGIC
}

/// A profile that this or another tool wrote, where nothing can be said on standard error.
pub(crate) fn read_profile(path: &Path) -> Result<Profile, String> {
    if is_segment(path) || RecordingReader::is_recording(path) {
        return Err(format!("{} is no profile: poolscope dump makes one of it", path.display()));
    }
    let imported = imports::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(Profile { naming: symbols::naming(), ..imported.profile })
}

/// A profile that this or another tool wrote, of the file that `argument` means. `None` for what is a segment, or is
/// not there.
fn load_profile(path: &str, argument: &str) -> Result<Option<Loaded>, Failure> {
    let name = shown(argument);
    let failed = |why: String| Failure::usage(format!("cannot read {name}: {why}"));
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| failed(error.to_string()))?,
    };
    let mut begin = [0; MAGIC.len()];
    let have = file.read(&mut begin).map_err(|error| failed(error.to_string()))?;
    if begin[..have] == MAGIC || discovery::is_segment_name(Path::new(path), None) {
        return Ok(None);
    }
    let imported = imports::read(Path::new(path)).map_err(|error| failed(error.to_string()))?;
    if let Some(lacks) = imported.lacks {
        sink::say(&format!("{name} is a {}, which does not have {lacks}", imported.format));
    }
    let label = printable(file_name(name));
    let origin = Origin { pid: 0, command: label.clone(), ran_ns: 0 };
    let profile = Profile { naming: symbols::naming(), ..imported.profile };
    Ok(Some(Loaded { profile, label, claim: None, origin }))
}
