//! `poolscope gc`: removes what dead processes left behind.
//!
//! A segment that nobody uses stays so: its file is made under a new name by the process that uses it, and no process
//! ever takes up a file that is there. So it does no harm that time passes between the look and the removal. Whether
//! somebody uses it is asked of the kernel, which grants a lease on a file only while nobody has it open for writing or
//! mapped through such a descriptor (fcntl(2), `F_SETLEASE`). That holds for processes of other containers, too, whose
//! process ids mean something else here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::SegmentReader;
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::process;
use poolscope_profiler::process::ending::{Ending, KernelLog};
use poolscope_profiler::segment::discovery;
use poolscope_profiler::segment::folders;
use poolscope_wire::MAGIC;
use poolscope_wire::trace::{TRACE_MAGIC, TRACE_SUFFIX};

use crate::commands::check::folder;
use crate::failure::Failure;
use crate::sink;
use crate::words::{numbers, printable};

/// Remove the segments of dead processes
///
/// Segments of processes that run, also in other containers, stay, and so does every file that is no segment of yours.
/// What a check has recorded that was killed goes, too.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope gc --older-than 7d --dry-run")]
pub(crate) struct Gc {
    /// Only those whose process was last alive so long ago: 90s, 30m, 12h, 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age, default_value = "0s")]
    older_than: Duration,
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
}

fn parse_age(text: &str) -> Result<Duration, String> {
    let wrong = || "not an age: write 90s, 30m, 12h or 7d".to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|n| n.checked_mul(seconds)).map(Duration::from_secs).ok_or_else(wrong)
}

/// What is to be done with a file.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Remove {
        what: String,
        bytes: u64,
        inode: u64,
    },
    /// It is somebody's; nothing needs to be said.
    InUse,
    /// It is younger than was asked for.
    Young,
    Keep(String),
}

impl Gc {
    pub(crate) fn run(self) -> Result<u8> {
        // The kernel sends SIGIO, which would end poolscope, to the holder of a lease that somebody's `open` breaks.
        // SAFETY: ignoring a signal involves no memory and no handler.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let folder = folders::segment_dir();
        let files = discovery::files_in(&folder, None).map_err(|e| Failure::usage(e.to_string()))?;
        let (mut removed, mut bytes) = (0, 0);
        for path in files {
            match judge(&path, self.older_than) {
                // It was removed by its process, or by another gc.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => sink::say(&format!("kept {}: {error}", path.display())),
                Ok(Verdict::InUse | Verdict::Young) => {}
                Ok(Verdict::Keep(why)) => sink::say(&format!("kept {}: {why}", path.display())),
                Ok(Verdict::Remove { what, bytes: size, inode }) => {
                    if !self.dry_run && !remove(&path, inode)? {
                        continue;
                    }
                    sink::print(&format!("{}  {what}, {}\n", path.display(), numbers::bytes(size as f64)))?;
                    removed += 1;
                    bytes += size;
                }
            }
        }
        for path in abandoned_traces(&folder)? {
            if !self.dry_run {
                std::fs::remove_file(&path).wrap_err_with(|| format!("cannot remove {}", path.display()))?;
            }
            sink::print(&format!("{}  events that nobody records any more\n", path.display()))?;
        }
        for path in folder::abandoned() {
            let Some(size) = unless_in_use(&path, self.older_than)? else { continue };
            if !self.dry_run {
                std::fs::remove_dir_all(&path).wrap_err_with(|| format!("cannot remove {}", path.display()))?;
            }
            sink::print(&format!("{}  of a check that was killed, {}\n", path.display(), numbers::bytes(size as f64)))?;
            bytes += size;
        }
        let done = if self.dry_run { "would be removed" } else { "removed" };
        let segments = if removed == 1 { "segment" } else { "segments" };
        sink::print(&format!("{removed} {segments} {done}, {}\n", numbers::bytes(bytes as f64)))?;
        Ok(0)
    }
}

/// Files of rings whose program and recorder both died: the segment is gone, and nobody has them open for writing.
fn abandoned_traces(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.wrap_err_with(|| format!("cannot read {}", folder.display()))?,
    };
    let is_abandoned = |path: &PathBuf| {
        let segment = path.to_str().and_then(|path| path.strip_suffix(TRACE_SUFFIX)).map(Path::new);
        let Some(segment) = segment.filter(|segment| folders::is_segment_name(segment, None)) else { return false };
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else { return false };
        let mut magic = [0; TRACE_MAGIC.len()];
        let is_trace = match file.metadata() {
            // For this one there was no room, or it was cut off.
            Ok(metadata) if metadata.len() == 0 => metadata.is_file(),
            _ => file.read_exact_at(&mut magic, 0).is_ok() && (magic == TRACE_MAGIC || magic == [0; TRACE_MAGIC.len()]),
        };
        !segment.exists() && is_trace && is_open_for_writing(&file).is_ok_and(|open| !open)
    };
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_abandoned).collect())
}

/// The bytes of what a check has left in a folder; `None` if it is younger than that, or a process of it still runs.
fn unless_in_use(folder: &Path, older_than: Duration) -> Result<Option<u64>> {
    let failed = || format!("cannot read {}", folder.display());
    let (mut bytes, mut folders) = (0u64, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).wrap_err_with(failed)?.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let age = SystemTime::now().duration_since(metadata.modified().wrap_err_with(failed)?).unwrap_or_default();
            let is_open =
                || OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(entry.path());
            match metadata.is_dir() {
                true => folders.push(entry.path()),
                _ if age < older_than => return Ok(None),
                false
                    if metadata.is_file() && is_open().and_then(|file| is_open_for_writing(&file)).unwrap_or(false) =>
                {
                    return Ok(None);
                }
                false => bytes = bytes.saturating_add(metadata.blocks().saturating_mul(512)),
            }
        }
    }
    Ok(Some(bytes))
}

/// Looks at one file whose name is that of a segment.
fn judge(path: &Path, older_than: Duration) -> io::Result<Verdict> {
    // A link would lead out of the folder, and a FIFO would wait.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Ok(Verdict::Keep("it is a link".into())),
        other => other?,
    };
    let metadata = file.metadata()?;
    let is_ours = metadata.uid() == process::own_uid();
    let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
    if metadata.is_file() && metadata.len() == 0 && is_ours {
        // For this one there was no room, or it was cut off.
        return Ok(match is_open_for_writing(&file)? {
            true => Verdict::InUse,
            false if age < older_than => Verdict::Young,
            false => Verdict::Remove { what: "empty".to_owned(), bytes: 0, inode: metadata.ino() },
        });
    }
    let mut magic = [0; MAGIC.len()];
    // Until a segment is finished its first bytes are zero: a program may have died that made one.
    let is_read = metadata.is_file() && file.read_exact_at(&mut magic, 0).is_ok();
    let is_unfinished = magic == [0; MAGIC.len()];
    if !is_read || !(is_unfinished || magic == MAGIC) {
        return Ok(Verdict::Keep("it is no segment".into()));
    }
    if !is_ours {
        return Ok(Verdict::Keep(format!("it belongs to user {}", metadata.uid())));
    }
    // A segment of another version has no state that can be read here; the kernel's word is enough.
    let mut what = if is_unfinished { "never finished" } else { "of another version" }.to_owned();
    let mut rebooted = false;
    if let Ok(mut reader) = SegmentReader::open_within(path, Duration::ZERO) {
        let process = reader.process();
        if process.state == ProcessState::Running {
            return Ok(Verdict::InUse);
        }
        let ending = reader.ending(&KernelLog::default());
        rebooted = ending == Some(Ending::Rebooted);
        what = printable(process.exe.rsplit('/').next().unwrap_or_default());
    }
    match is_open_for_writing(&file) {
        Ok(true) => return Ok(Verdict::InUse),
        Ok(false) => {}
        Err(_) if rebooted => {}
        Err(error) => {
            return Ok(Verdict::Keep(format!(
                "whether a process of another container uses it can't be told ({error})"
            )));
        }
    }
    if age < older_than {
        return Ok(Verdict::Young);
    }
    // stat(2): st_blocks counts units of 512 bytes.
    Ok(Verdict::Remove { what, bytes: metadata.blocks().saturating_mul(512), inode: metadata.ino() })
}

/// Whether any process, in whatever container, has the file open for writing, or mapped so.
fn is_open_for_writing(file: &File) -> io::Result<bool> {
    // SAFETY: fcntl takes plain numbers; the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        // The lease ends here, so that nobody who opens the file is kept waiting.
        // SAFETY: as above.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
        return Ok(false);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        error => Err(error),
    }
}

/// Removes a file if it still is the one that was looked at.
fn remove(path: &Path, inode: u64) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.ino() == inode => {}
        _ => return Ok(false),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        other => other.map(|()| true).wrap_err_with(|| format!("cannot remove {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(parse_age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_age("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in ["", "7", "d", "7w", "-1s", "99999999999999999999d", "9999999999999999999d"] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
    }
}
