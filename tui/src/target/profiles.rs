//! Profiles of any origin: of a process, a recording, or a file that this or another tool wrote.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use poolscope_profiler::imports;
use poolscope_profiler::leaks::Claim;
use poolscope_profiler::process::clock::monotonic_ns;
use poolscope_profiler::recording::file::reader::{RecordingError, RecordingReader};
use poolscope_profiler::recording::replay::analysis::{Analysis, Question};
use poolscope_profiler::segment::folders;
use poolscope_profiler::{Profile, SegmentReader};
use poolscope_wire::MAGIC;

use super::{command_of, find, is_segment, named, origin, read};
use crate::args::Origin;
use crate::failure::Failure;
use crate::words::{file_name, printable};
use crate::{sink, symbols};

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
    let path = std::env::temp_dir().join(format!("poolscope-{}-{}", std::process::id(), monotonic_ns()));
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
    if begin[..have] == MAGIC || folders::is_segment_name(Path::new(path), None) {
        return Ok(None);
    }
    if named::is_meant(argument) {
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
