//! What a command starts: each process that waits for this recorder has a recording of its own.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::recording::recorder::{Order, Progress};
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::segment::folders;
use poolscope_profiler::words::figures;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Access, access};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::output::Output;
use super::recorded::{Origin, Process, Recorded, is_replaced, replaced_or};
use super::{Record, Signals};
use crate::failure::Failure;
use crate::launch::child;
use crate::launch::out_of_memory::Kills;
use crate::sink;
use crate::words::{file_name, printable};

/// Stands for the process id in the name of a file.
const PID: &[u8] = b"%p";
/// Processes that are named when all has ended.
const NAMED: usize = 10;
/// Reasons that are given for what was not recorded.
const REASONS: usize = 3;
/// The longest time from the end of the last process until it is noticed.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Files that are named after processes.
pub(super) struct Files<'a>(&'a Path);

impl<'a> Files<'a> {
    /// None if only one process is recorded. An error if its file is for many, or the file of many for one, or if they
    /// can't be made: who can't write them has not disturbed the program.
    pub(super) fn of(output: &'a Path, children: bool) -> Result<Option<Self>> {
        let name = output.file_name().unwrap_or_default();
        let is_for_many = name.as_bytes().windows(PID.len()).any(|part| part == PID);
        match (children, is_for_many) {
            (false, false) => return Ok(None),
            (false, true) => {
                let message = "%p in the name of a recording stands for the process id, and needs --children";
                return Err(Failure::usage(message).into());
            }
            (true, false) => {
                let message = "--children writes a file for each process: put %p, which stands for its id, into the \
                               file's name, as in app.%p.rec";
                return Err(Failure::usage(message).into());
            }
            (true, true) => {}
        }
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .wrap_err_with(|| format!("cannot write recordings to {}", folder.display()))?;
        Ok(Some(Files(output)))
    }

    /// That of a process, which is the `nth` of its number.
    fn of_process(&self, pid: u32, nth: u32) -> PathBuf {
        let number = if nth == 1 { pid.to_string() } else { format!("{pid}-{nth}") };
        let name = self.0.file_name().unwrap_or_default().as_bytes();
        let mut expanded = Vec::new();
        let mut rest = name;
        while let Some(at) = rest.windows(PID.len()).position(|part| part == PID) {
            expanded.extend_from_slice(&rest[..at]);
            expanded.extend_from_slice(number.as_bytes());
            rest = &rest[at + PID.len()..];
        }
        expanded.extend_from_slice(rest);
        self.0.with_file_name(OsString::from_vec(expanded))
    }
}

/// Records the command and what it starts, each process to a file of its own: the exit code.
pub(super) fn record(record: &Record, files: &Files<'_>, signals: &Signals) -> Result<u8> {
    let mut command = record.command()?;
    let bell = Bell::of(folders::segment_dir())?;
    let kills = Kills::so_far();
    let mut child = child::spawn(&mut command)?;
    // The command has the limit that it was given: it may count on that.
    take_all_files();
    let pid = child.id();
    let family = Family {
        record,
        files,
        signals,
        bell: &bell,
        command: pid,
        begun: Instant::now(),
        command_ended: AtomicBool::new(false),
        interrupts: AtomicUsize::new(0),
        going_on: AtomicUsize::new(0),
        numbers: Mutex::default(),
        done: Mutex::default(),
    };
    let code = thread::scope(|scope| {
        let watcher = thread::Builder::new().name("children".into());
        let watcher = watcher.spawn_scoped(scope, || family.watch()).wrap_err("cannot start a thread")?;
        let own = Output::open(&files.of_process(pid, 1), false, record.limit)
            .inspect_err(|error| sink::say(&format!("{error:#}")))
            .and_then(|output| {
                let recorded = record.record_command(&mut child, &output, signals)?;
                Ok((output, recorded))
            });
        if let Ok((output, recorded)) = &own {
            family.note(pid, output, recorded);
        }
        let code = record.wait_for_command(&mut child, &kills, signals);
        family.interrupts.store(signals.interrupts.load(Ordering::Relaxed), Ordering::Relaxed);
        family.command_ended.store(true, Ordering::Release);
        let _ = watcher.join();
        code
    })?;
    let any = family.tell();
    Ok(if !any && code == 0 { 2 } else { code })
}

/// Lets this process have as many files open as it may: each process that is recorded takes some.
fn take_all_files() {
    let limit = getrlimit(Resource::Nofile);
    // Refused, it has those that it had.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Rings when something comes into a folder.
struct Bell {
    folder: PathBuf,
    /// What was there before, in order.
    before: Vec<PathBuf>,
    inotify: OwnedFd,
}

impl Bell {
    fn of(folder: PathBuf) -> Result<Self> {
        let failed = || format!("cannot watch {} for the segments of processes", folder.display());
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error).wrap_err_with(failed),
            _ => {}
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).wrap_err_with(failed)?;
        let what = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, &folder, what).wrap_err_with(failed)?;
        let before = discovery::files_in(&folder, None).unwrap_or_default();
        Ok(Bell { folder, before, inotify })
    }

    /// Waits until it rings, but not for long.
    fn wait(&self) {
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&LOOK));
        // What came in is looked for in the folder: a full queue loses nothing.
        let mut events = [0; 4096];
        while rustix::io::read(&self.inotify, &mut events).is_ok_and(|len| len > 0) {}
    }
}

/// All processes that a command starts.
struct Family<'a> {
    record: &'a Record,
    files: &'a Files<'a>,
    signals: &'a Signals,
    bell: &'a Bell,
    command: u32,
    begun: Instant,
    command_ended: AtomicBool,
    /// Interrupts until then, which others of the command's group were sent as well: they may take a while to end.
    interrupts: AtomicUsize,
    /// Recordings that go on, without the command's own.
    going_on: AtomicUsize,
    numbers: Mutex<HashMap<u32, Number>>,
    done: Mutex<Done>,
}

/// A process id.
#[derive(Clone, Default)]
struct Number {
    /// When the latest process of that number began.
    start_ticks: u64,
    /// Processes that had it.
    count: u32,
    /// Segments of that number.
    segments: Arc<AtomicUsize>,
    /// Taken while one is recorded: what it becomes by `exec` has the same file.
    turn: Arc<Mutex<()>>,
}

/// What has been recorded.
#[derive(Default)]
struct Done {
    lines: Vec<Line>,
    failures: Vec<String>,
}

/// A process that was recorded.
struct Line {
    process: String,
    allocs: u64,
    lost: u64,
    file: String,
    bytes: u64,
}

/// A process as people know it.
fn named(exe: &str, pid: u32) -> String {
    format!("{} ({pid})", printable(file_name(exe)))
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Family<'_> {
    /// Records each process that comes, until the command and all that is recorded have ended.
    fn watch(&self) {
        let mut known = self.bell.before.clone();
        let mut told = false;
        thread::scope(|scope| {
            loop {
                // In this order: a process that becomes another one has the new segment before the old one is over.
                let command_ended = self.command_ended.load(Ordering::Acquire);
                let going_on = self.going_on.load(Ordering::Acquire);
                let found = discovery::files_in(&self.bell.folder, None).unwrap_or_default();
                let new: Vec<PathBuf> =
                    found.iter().filter(|&path| known.binary_search(path).is_err()).cloned().collect();
                if command_ended && going_on == 0 && new.is_empty() {
                    return;
                }
                if command_ended && going_on > 0 && !told && !self.record.quiet {
                    told = true;
                    let going_on = processes(going_on);
                    sink::say(&format!(
                        "the command has ended, what it started is recorded on ({going_on}): an interrupt (Ctrl-C) \
                         ends that"
                    ));
                }
                for path in new {
                    let nth = self.expect(&path);
                    self.going_on.fetch_add(1, Ordering::AcqRel);
                    let recorder = thread::Builder::new().name("child".into()).spawn_scoped(scope, move || {
                        if let Err(error) = self.record_process(&path, nth) {
                            locked(&self.done).failures.push(format!("{error:#}"));
                        }
                        self.going_on.fetch_sub(1, Ordering::AcqRel);
                    });
                    if let Err(error) = recorder {
                        self.going_on.fetch_sub(1, Ordering::AcqRel);
                        locked(&self.done).failures.push(format!("cannot start a thread: {error}"));
                    }
                }
                known = found;
                self.bell.wait();
            }
        });
    }

    /// Records the process of a segment, the `nth` of its number, if it waits for this recorder.
    fn record_process(&self, path: &Path, nth: usize) -> Result<()> {
        let Ok(entry) = discovery::find(&path.to_string_lossy()) else { return Ok(()) };
        if entry.recorder != std::process::id() || entry.pid == self.command {
            return Ok(());
        }
        let number = self.begin(&entry);
        let _turn = locked(&number.turn);
        let output = Output::open(&self.files.of_process(entry.pid, number.count), false, self.record.limit)?;
        let origin = if entry.forked { Origin::Forked } else { Origin::Started };
        let process = Process { pid: entry.pid, path, origin };
        // With many processes it takes long to look through the folder: only for one that has another segment.
        let mut replaced = replaced_or(|_| self.order(), entry.pid, path);
        let order = |progress: &Progress| match number.segments.load(Ordering::Relaxed) == nth {
            true => self.order(),
            false => replaced(progress),
        };
        let recorded = self.record.record(&process, &output, order).wrap_err_with(|| named(&entry.exe, entry.pid))?;
        if !is_replaced(&recorded.ended) {
            self.note(entry.pid, &output, &recorded);
        }
        Ok(())
    }

    /// Notes that a process has a new segment, by the file's name, `PID.GENERATION`: how many its number has had.
    fn expect(&self, path: &Path) -> usize {
        let name = path.file_name().and_then(|name| name.to_str());
        let pid = name.and_then(|name| name.split('.').next()?.parse().ok());
        pid.map_or(0, |pid| locked(&self.numbers).entry(pid).or_default().segments.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The process that begins to be recorded.
    fn begin(&self, entry: &SegmentEntry) -> Number {
        let mut numbers = locked(&self.numbers);
        let number = numbers.entry(entry.pid).or_default();
        if number.start_ticks != entry.start_ticks {
            number.start_ticks = entry.start_ticks;
            number.count += 1;
        }
        number.clone()
    }

    fn order(&self) -> Order {
        let signals = self.signals;
        let is_asked = || {
            let before = self.interrupts.load(Ordering::Relaxed);
            signals.latest.load(Ordering::Relaxed) != 0 || signals.interrupts.load(Ordering::Relaxed) > before
        };
        if signals.insist() || self.command_ended.load(Ordering::Acquire) && is_asked() {
            return Order::Stop("it was stopped by a signal");
        }
        match self.record.duration {
            Some(duration) if self.begun.elapsed() >= duration => Order::Stop("the time of --duration is over"),
            _ => Order::GoOn,
        }
    }

    fn note(&self, pid: u32, output: &Output, recorded: &Recorded) {
        let Some((summary, progress)) = &recorded.written else { return };
        locked(&self.done).lines.push(Line {
            process: named(&recorded.exe, pid),
            allocs: progress.allocs,
            lost: summary.lost(),
            file: output.name(),
            bytes: output.len().unwrap_or(progress.bytes),
        });
    }

    /// Says what was recorded: whether anything was.
    fn tell(&self) -> bool {
        let mut done = locked(&self.done);
        done.lines.sort_by_key(|line| Reverse(line.allocs));
        let lines = &done.lines;
        if !self.record.quiet {
            let allocs = lines.iter().map(|line| line.allocs).sum();
            let bytes = lines.iter().map(|line| line.bytes).sum::<u64>();
            sink::say(&format!(
                "{} recorded, with {} ({})",
                processes(lines.len()),
                figures::count(allocs, "allocation"),
                figures::bytes(bytes as f64)
            ));
            for line in lines.iter().take(NAMED) {
                let allocs = figures::count(line.allocs, "allocation");
                sink::say(&format!("{allocs} of {} in {}", line.process, line.file));
            }
            if lines.len() > NAMED {
                sink::say(&format!("and {} more, with fewer each", lines.len() - NAMED));
            }
            for line in lines.iter().filter(|line| line.lost > 0) {
                let lost = figures::count(line.lost, "event");
                sink::say(&format!("lost of {}: {lost}; --lossless or a larger --ring loses less", line.process));
            }
        }
        for failure in done.failures.iter().take(REASONS) {
            sink::say(failure);
        }
        if done.failures.len() > REASONS {
            sink::say(&format!("and {} more that were not recorded", done.failures.len() - REASONS));
        }
        !lines.is_empty()
    }
}
