//! Finding segments: by process id, by path, or all of them.
//!
//! A segment normally lies in its user's folder ([`folders`]). A process that still runs says itself where its
//! segment is, by the mappings that it has, which also finds those of another `POOLSCOPE_DIR` and of containers.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use poolscope_wire::{HeaderError, flags};

use crate::model::snapshot::ProcessState;
use crate::process::{self, ProcStat};
use crate::segment::folders::{self, is_segment_name, mapped_by, segment_dir, user_dir};
use crate::segment::reader::{ReadError, SegmentReader};

/// How long [`find`] waits for a program that is only just starting.
const PATIENCE: Duration = Duration::from_millis(500);

/// A segment and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEntry {
    /// The file.
    pub path: PathBuf,
    /// Process id as this process sees it.
    pub pid: u32,
    /// The user whose file it is: who started the process, where that has become another user's since.
    pub uid: u32,
    /// The version of the segment's layout.
    pub version: u32,
    /// Tells the segments of one process apart: each `exec` begins a new one.
    pub generation: u64,
    /// Start of the process, in ticks since the system's: tells it from others that have its number later.
    pub start_ticks: u64,
    /// Whether it still runs.
    pub state: ProcessState,
    /// Path of the executable.
    pub exe: String,
    /// Arguments, the program's name first.
    pub args: Vec<String>,
    /// Start of the segment, nanoseconds of `CLOCK_REALTIME`.
    pub start_realtime_ns: u64,
    /// Every allocation is recorded.
    pub exact: bool,
    /// A forked child that did not `exec`.
    pub forked: bool,
    /// Process id of the recorder that it waits for, or waited for, as the process sees it; 0 if there is none.
    pub recorder: u32,
    /// The pool is part of the executable: the program's own, if the process has another one as well.
    pub in_executable: bool,
    /// Memory that the segment takes, in bytes.
    pub file_bytes: u64,
    /// A time at which the process was alive for certain, nanoseconds of `CLOCK_REALTIME`: see
    /// [`SegmentReader::alive_realtime_ns`].
    pub alive_realtime_ns: u64,
}

impl SegmentEntry {
    /// The user that the process is now; of a dead one the user that it began as.
    pub fn user(&self) -> u32 {
        let is_now = Some(self.pid).filter(|_| self.state == ProcessState::Running);
        is_now.and_then(process::effective_uid).unwrap_or(self.uid)
    }
}

/// What there is of segments.
#[derive(Debug, Default)]
pub struct Listing {
    /// The segments, running processes first, the latest first.
    pub entries: Vec<SegmentEntry>,
    /// Files that look like segments by their name and cannot be read.
    pub unreadable: Vec<ReadError>,
}

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No process has this number.
    #[error("there is no process {pid}, and no segment that it left behind: `poolscope list` shows what there is")]
    NoSuchProcess {
        /// The number.
        pid: u32,
    },
    /// The process is another user's.
    #[error(
        "process {pid} belongs to user {uid} and you are user {own_uid}: run this command as that user, or with sudo"
    )]
    OtherUser {
        /// Its number.
        pid: u32,
        /// Its effective user.
        uid: u32,
        /// The effective user here.
        own_uid: u32,
    },
    /// The process is this user's, and the kernel says nothing of it to anybody but root.
    #[error(
        "process {pid} ({exe}) may run on the pool, and lets only root see it, as one does that has become your user \
         since it started: run this command with sudo"
    )]
    Closed {
        /// Its number.
        pid: u32,
        /// Its executable.
        exe: String,
    },
    /// The process runs, without the pool.
    #[error("process {pid} ({exe}) {why}{}", earlier(left.as_deref()))]
    NotOnPool {
        /// Its number.
        pid: u32,
        /// Its executable.
        exe: String,
        /// What to do about it.
        why: NotOnPool,
        /// The segment that an earlier process of this number left behind.
        left: Option<PathBuf>,
    },
    /// Neither a number nor a file.
    #[error("{target:?} is neither a process id nor a file that is there: `poolscope list` shows processes")]
    NoSuchFile {
        /// What was asked for.
        target: String,
    },
    /// There is a file, but it cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// The folder of segments cannot be read.
    #[error("cannot read the folder of segments {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Why a process has no segment, as what is said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOnPool {
    /// Nothing speaks against it.
    NotStartedWithIt,
    /// The library is there, its segment is not.
    NoSegment,
    /// It was forked, and has its parent's.
    ParentsSegment,
    /// It has no dynamic linker that would load the library.
    StaticallyLinked,
    /// The dynamic linker ignores `LD_PRELOAD` for it.
    SetUserId,
}

impl std::fmt::Display for NotOnPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self {
            NotOnPool::ParentsSegment => {
                return f.write_str(
                    "is forked and keeps no segment yet: it has one from its first sample on, once it has allocated \
                     some hundred KiB. If it has: perhaps /dev/shm is full or read-only; POOLSCOPE_VERBOSE=1 at the \
                     start says why",
                );
            }
            NotOnPool::NotStartedWithIt => "start it with `poolscope run -- COMMAND`",
            NotOnPool::NoSegment => {
                "it has loaded libpoolscope.so but keeps no segment; perhaps /dev/shm is full or read-only: start it \
                 with POOLSCOPE_VERBOSE=1 to see why"
            }
            NotOnPool::StaticallyLinked => {
                "it is statically linked, so libpoolscope.so cannot be loaded into it; link it dynamically, or link \
                 the pool itself if it is a Rust program"
            }
            NotOnPool::SetUserId => {
                "its executable is setuid or setgid, for which the system ignores LD_PRELOAD; run a copy without that \
                 bit with `poolscope run -- COPY`"
            }
        };
        write!(f, "does not run on the pool: {why}")
    }
}

/// What is said of a segment that an earlier process of the same number left.
fn earlier(left: Option<&Path>) -> String {
    left.map_or_else(String::new, |path| {
        format!(". An earlier process of this number left {}: name that file to read it", path.display())
    })
}

/// All segments: of this user, and for root of all users; and those of processes that run and have theirs elsewhere.
/// Where `POOLSCOPE_DIR` is set, those of that folder alone. A folder that is not there is an empty one.
pub fn list() -> Result<Listing, FindError> {
    let (dirs, elsewhere) = folders::all();
    let mut listing = Listing::default();
    for dir in dirs {
        listing.add(&dir)?;
    }
    if elsewhere {
        listing.add_mapped();
    }
    Ok(listing.in_order())
}

/// All segments in a folder.
pub fn list_in(dir: &Path) -> Result<Listing, FindError> {
    let mut listing = Listing::default();
    listing.add(dir)?;
    Ok(listing.in_order())
}

impl Listing {
    fn add(&mut self, dir: &Path) -> Result<(), FindError> {
        for path in files_in(dir, None)? {
            match entry(&path, Duration::ZERO) {
                Ok(entry) => self.entries.push(entry),
                // It ended between the two looks.
                Err(ReadError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.unreadable.push(error),
            }
        }
        Ok(())
    }

    /// Adds those of running processes that lie in none of the folders.
    fn add_mapped(&mut self) {
        let running = self.entries.iter().filter(|entry| entry.state == ProcessState::Running);
        let pids: HashSet<u32> = running.clone().map(|entry| entry.pid).collect();
        let mut known: HashSet<(u32, u64)> = running.map(|entry| (entry.pid, entry.generation)).collect();
        let others = process::all().into_iter().filter(|pid| !pids.contains(pid));
        for path in others.flat_map(folders::seldom_mapped_by) {
            // A child without a segment of its own has its parent's mapped.
            if let Ok(entry) = entry(&path, Duration::ZERO)
                && entry.state == ProcessState::Running
                && known.insert((entry.pid, entry.generation))
            {
                self.entries.push(entry);
            }
        }
    }

    /// Running processes first, the latest first.
    fn in_order(mut self) -> Listing {
        let rank = |entry: &SegmentEntry| (entry.state != ProcessState::Running, Reverse(entry.start_realtime_ns));
        self.entries.sort_by_key(rank);
        self
    }
}

/// Finds the segment of a process by its number, or opens a path. Numbers are given again: where the process that has
/// this one now is not on the pool, it is the segment that an earlier one left.
pub fn find(target: &str) -> Result<SegmentEntry, FindError> {
    find_with(target, false)
}

/// The same for what only a running process can do: what an earlier one left is not taken for it.
pub fn find_running(target: &str) -> Result<SegmentEntry, FindError> {
    find_with(target, true)
}

fn find_with(target: &str, only_running: bool) -> Result<SegmentEntry, FindError> {
    match target.parse() {
        Ok(pid) => find_process(pid, only_running),
        Err(_) => match entry(Path::new(target), PATIENCE) {
            Err(ReadError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(FindError::NoSuchFile { target: target.to_owned() })
            }
            other => Ok(other?),
        },
    }
}

/// The newest segment of the process that has this number now, if it has one yet: it may have ended, if nobody has
/// waited for it. [`find`] would also name one that an earlier process of the same number left behind.
pub fn newest_of(pid: u32) -> Option<SegmentEntry> {
    let start_ticks = ProcStat::of(pid)?.start_ticks;
    let uid = process::effective_uid(pid);
    best_of(candidates(pid, uid).0.into_iter().filter(|entry| entry.start_ticks == start_ticks).collect())
}

/// What to say of the segment that a running process writes to, if it is of a version that can't be read.
pub fn other_version_of(pid: u32) -> Option<FindError> {
    let is_its_own = |error: &FindError| match error {
        // An earlier process of this number may have left one, too.
        FindError::Unreadable(ReadError::Header { path, source: HeaderError::Version { .. } }) => writes_to(pid, path),
        _ => false,
    };
    candidates(pid, process::effective_uid(pid)).1.filter(is_its_own)
}

/// Of two pools of one process the program's own goes first: it serves what the program allocates.
fn rank(entry: &SegmentEntry) -> (bool, bool, u64) {
    (entry.state == ProcessState::Running, entry.in_executable, entry.start_realtime_ns)
}

/// The first of the best: the same file may be there by two paths, of which the plain one comes first.
fn best_of(found: Vec<SegmentEntry>) -> Option<SegmentEntry> {
    found.into_iter().rev().max_by_key(rank)
}

/// The segments of a number, of which `uid` is the user if a process has it; and why there may be others.
fn candidates(pid: u32, uid: Option<u32>) -> (Vec<SegmentEntry>, Option<FindError>) {
    let mut paths = Vec::new();
    let mut problem = None;
    let mut folders = vec![segment_dir()];
    let mut mapped = 0;
    if let Some(uid) = uid {
        paths.extend(mapped_by(pid));
        mapped = paths.len();
        folders.push(user_dir(uid));
    }
    folders.dedup();
    for folder in folders {
        match files_in(&folder, Some(pid)) {
            Ok(found) => paths.extend(found),
            Err(error) => problem = Some(error),
        }
    }

    let mut found = Vec::new();
    for (at, path) in paths.into_iter().enumerate() {
        match entry(&path, PATIENCE) {
            Ok(entry) if entry.pid != pid => {}
            // A forked child without a segment has its parent's mapped, which began in an earlier tick.
            Ok(entry) if at < mapped && entry.state != ProcessState::Running => {}
            Ok(entry) => found.push(entry),
            Err(error) => problem = Some(error.into()),
        }
    }
    (found, problem)
}

fn find_process(pid: u32, only_running: bool) -> Result<SegmentEntry, FindError> {
    let uid = process::effective_uid(pid);
    let runs = ProcStat::of(pid).is_some_and(|stat| !stat.is_zombie());
    let own_uid = process::own_uid();
    let (found, problem) = candidates(pid, uid.filter(|_| runs));
    // What an earlier process of this number left is no answer where its own can't be read.
    let is_its_own = |error: &FindError| matches!(error, FindError::Unreadable(error) if writes_to(pid, error.path()));
    let is_there =
        |best: &SegmentEntry| best.state == ProcessState::Running || !problem.as_ref().is_some_and(is_its_own);
    let left = match best_of(found).filter(|best| !runs || is_there(best)) {
        Some(best) if only_running && runs && best.state != ProcessState::Running => Some(best.path),
        Some(best) => return Ok(best),
        None => None,
    };
    match uid {
        Some(uid) if uid != own_uid && own_uid != 0 => Err(FindError::OtherUser { pid, uid, own_uid }),
        // A file that cannot be read explains more than its absence would.
        _ if problem.is_some() => Err(problem.unwrap_or(FindError::NoSuchProcess { pid })),
        Some(_) if runs => Err(not_on_pool(pid, left)),
        _ => Err(FindError::NoSuchProcess { pid }),
    }
}

/// Whether a process still writes to a segment, whose file may be gone: after `exec` it does not. True if that can't be
/// known.
pub fn writes_to(pid: u32, path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| process::maps_file(pid, name)).unwrap_or(true)
}

/// The files in a folder that are segments by their name, of one process or of all.
pub fn files_in(dir: &Path, pid: Option<u32>) -> Result<Vec<PathBuf>, FindError> {
    let failed = |source| FindError::Folder { path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if is_segment_name(&path, pid) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn entry(path: &Path, patience: Duration) -> Result<SegmentEntry, ReadError> {
    let mut reader = SegmentReader::open_within(path, patience)?;
    let process = reader.process();
    let header = reader.header();
    Ok(SegmentEntry {
        path: path.to_owned(),
        pid: process.pid,
        uid: reader.uid()?,
        version: header.version,
        generation: header.generation,
        start_ticks: header.start_ticks,
        state: process.state,
        exe: process.exe,
        args: process.args,
        start_realtime_ns: header.start_realtime_ns,
        exact: header.flags & flags::EXACT != 0,
        forked: process.forked,
        recorder: header.recorder,
        in_executable: header.flags & flags::IN_EXECUTABLE != 0,
        file_bytes: reader.file_bytes()?,
        alive_realtime_ns: reader.alive_realtime_ns(),
    })
}

/// Looks for what kept the library out of a process that runs.
fn not_on_pool(pid: u32, left: Option<PathBuf>) -> FindError {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let mapped = process::mapped_paths(pid);
    if mapped.is_none() && process::own_uid() != 0 {
        return FindError::Closed { pid, exe: process::executable(pid) };
    }
    let is_library = |path: &String| path.rsplit('/').next().is_some_and(is_pool);
    let why = if mapped.is_some_and(|paths| paths.iter().any(is_library)) {
        if folders::mapped_by(pid).is_empty() { NotOnPool::NoSegment } else { NotOnPool::ParentsSegment }
    } else if is_set_id(&link) {
        NotOnPool::SetUserId
    } else if is_static(&link) == Some(true) {
        NotOnPool::StaticallyLinked
    } else {
        NotOnPool::NotStartedWithIt
    };
    FindError::NotOnPool { pid, exe: process::executable(pid), why, left }
}

/// Whether a library of this name keeps a segment. That of named tensors lies in programs without the pool, too.
fn is_pool(library: &str) -> bool {
    library.starts_with("libpoolscope") && !library.starts_with("libpoolscope_tensors.so")
}

fn is_set_id(exe: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(exe).is_ok_and(|metadata| metadata.mode() & 0o6000 != 0)
}

/// An executable is static if none of its program headers names a dynamic linker (`PT_INTERP`, elf(5)).
fn is_static(exe: &Path) -> Option<bool> {
    use std::os::unix::fs::FileExt;
    const PT_INTERP: u32 = 3;
    const PROGRAM_HEADER_LEN: usize = 56;
    let file = fs::File::open(exe).ok()?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    if header[..5] != *b"\x7fELF\x02" {
        return None;
    }
    let table = u64::from_le_bytes(header[32..40].try_into().ok()?);
    let entry_len = u16::from_le_bytes(header[54..56].try_into().ok()?);
    let entries = u16::from_le_bytes(header[56..58].try_into().ok()?);
    if usize::from(entry_len) != PROGRAM_HEADER_LEN {
        return None;
    }
    let mut headers = vec![0; usize::from(entries) * PROGRAM_HEADER_LEN];
    file.read_exact_at(&mut headers, table).ok()?;
    let kinds = headers.chunks_exact(PROGRAM_HEADER_LEN);
    Some(!kinds.map(|entry| u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]])).any(|kind| kind == PT_INTERP))
}
