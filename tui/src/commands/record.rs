//! `poolscope record`: every allocation and free of a program, to a file.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::figures;
use poolscope_profiler::recording::append::Continuation;
use poolscope_profiler::recording::recorder::{Options, Order, Progress, Recorder};
use poolscope_profiler::recording::session::Summary;
use poolscope_profiler::recording::tap::{Answer, Tap, now_ns};
use poolscope_wire::trace::{RING_BYTES_LOG2, Request};
use rustix::fs::FlockOperation;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::parse_seconds;
use crate::dashboard::app::exit_code;
use crate::failure::Failure;
use crate::launch::preload::parse_bytes;
use crate::launch::{child, library, preload};
use crate::{sink, target};

/// Record every allocation and free of a program
///
/// Each event has the thread, the time and, for allocations, the stack. A process that runs already is recorded from now
/// on, a command from its first allocation to its end; its forked children are not. Read the file with
/// `poolscope report`; `flamegraph`, `dump` and `diff` take it, too.
///
/// What the recorder can't keep up with is lost, counted, and said by everything that is made of the file; with
/// --lossless the program waits instead. If the recorder dies, the program goes on by itself.
///
/// With a command, poolscope's exit code is the command's (128 and the signal's number if one killed it).
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope record -o app.rec -- ./app --fast\n  \
    poolscope record 1234 --duration 30 -o app.rec && poolscope report app.rec\n  \
    poolscope record --append -o app.rec -- ./app --slow")]
pub(crate) struct Record {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID", required_unless_present = "command", conflicts_with = "command")]
    target: Option<String>,
    /// Where to
    #[arg(short, long, value_name = "FILE", default_value = "poolscope.rec")]
    output: PathBuf,
    /// Go on with the recording that the file has, in a part of its own: another run, or more of the same process
    #[arg(long)]
    append: bool,
    /// The program waits for the recorder instead of losing events
    #[arg(long)]
    lossless: bool,
    /// Record the stacks of frees, too: the report then says who frees. Each free costs the program some 25 ns more where its
    /// stack is as short as in our benchmark, and as much as an allocation where it is deep
    #[arg(long)]
    free_stacks: bool,
    /// Stop when the file has about so many bytes: 100M, 2GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    limit: Option<u64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Room for the events of each thread, in /dev/shm: a power of two
    #[arg(long, value_name = "BYTES", default_value = "2MiB", value_parser = parse_ring)]
    ring: u64,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How long a command may take to its first allocation.
const STARTING: Duration = Duration::from_secs(10);
/// Time after which a program that does not answer is spoken of.
const SILENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(2);
/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// No file has room for the blocks that every recording has below this.
const LEAST_LIMIT: u64 = 64 << 10;

/// The reason that is given when the program became another one by `exec`.
const REPLACED: &str = "the program became another one by exec";

fn parse_ring(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    let (least, most) = (1u64 << RING_BYTES_LOG2.start(), 1u64 << RING_BYTES_LOG2.end());
    if !bytes.is_power_of_two() || !(least..=most).contains(&bytes) {
        return Err(format!(
            "a power of two between {} and {}",
            figures::bytes(least as f64),
            figures::bytes(most as f64)
        ));
    }
    Ok(bytes)
}

/// The latest signal that asks this process to end, and how many came.
#[derive(Default)]
struct Signals {
    latest: Arc<AtomicUsize>,
    interrupts: Arc<AtomicUsize>,
}

impl Signals {
    fn listen() -> Result<Self> {
        let signals = Self::default();
        for signal in [SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, Arc::clone(&signals.latest), signal as usize)?;
        }
        let interrupts = Arc::clone(&signals.interrupts);
        // SAFETY: an atomic addition is all that the handler does.
        unsafe {
            signal_hook::low_level::register(SIGINT, move || {
                interrupts.fetch_add(1, Ordering::Relaxed);
            })?
        };
        Ok(signals)
    }
}

impl Record {
    pub(crate) fn run(self) -> Result<u8> {
        if self.limit.is_some_and(|limit| limit < LEAST_LIMIT) {
            return Err(Failure::usage("--limit is too small for any recording: 64KiB is the least").into());
        }
        let signals = Signals::listen()?;
        // The file first: who can't write it has not disturbed the program.
        let output = Output::open(&self.output, self.append, self.limit)?;
        let Some(target) = &self.target else { return self.run_command(&output, &signals) };
        let entry = target::find(target)?;
        let mut seen = None;
        let order = |_: &Progress| {
            let stopped = signals.latest.load(Ordering::Relaxed) != 0 || signals.interrupts.load(Ordering::Relaxed) > 0;
            let begun = *seen.get_or_insert_with(Instant::now);
            match self.duration {
                _ if stopped => Order::Stop("it was stopped by a signal"),
                Some(duration) if begun.elapsed() >= duration => Order::Stop("the time of --duration is over"),
                _ => Order::GoOn,
            }
        };
        self.record(&entry.path, &output, false, order)?;
        Ok(0)
    }

    /// Starts the command, and records it from its first allocation on.
    fn run_command(&self, output: &Output, signals: &Signals) -> Result<u8> {
        let library = library::find()?;
        let mut command = preload::command(&self.command, &library, None);
        command.env("POOLSCOPE_RECORDER", std::process::id().to_string());
        let mut child = child::spawn(&mut command)?;
        let pid = child.id();
        let mut previous = None;
        let begun = Instant::now();
        loop {
            let Some(path) = self.wait_for_segment(&mut child, previous.as_deref())? else {
                if previous.is_none() {
                    sink::say("the program ended before it allocated anything on the pool: there is no recording");
                }
                break;
            };
            let mut forwarded = 0;
            let order = |_: &Progress| {
                let signal = signals.latest.load(Ordering::Relaxed);
                if signal != forwarded {
                    forwarded = signal;
                    // SAFETY: kill takes plain numbers; the child is reaped below only, so the number is still its own.
                    unsafe { libc::kill(pid as i32, signal as i32) };
                }
                // The terminal sends the first one to the program as well, which ends by it or knows better.
                if signals.interrupts.load(Ordering::Relaxed) > 1 {
                    return Order::Stop("it was stopped by a signal");
                }
                if self.duration.is_some_and(|duration| begun.elapsed() >= duration) {
                    return Order::Stop("the time of --duration is over");
                }
                Order::GoOn
            };
            let summary = self.record(&path, output, true, replaced_or(order, pid, &path))?;
            if summary.ended != REPLACED {
                break;
            }
            sink::say(&format!("{REPLACED}: the recording begins anew"));
            previous = Some(path);
        }
        let status = child.wait().wrap_err("cannot wait for the program")?;
        Ok(exit_code(child::ended(status)))
    }

    /// The segment of a command that was just started; none if it has ended.
    fn wait_for_segment(&self, child: &mut Child, previous: Option<&Path>) -> Result<Option<PathBuf>> {
        let begun = Instant::now();
        loop {
            if let Some(path) = target::newest_segment(child.id()).filter(|path| Some(path.as_path()) != previous) {
                return Ok(Some(path));
            }
            if child.try_wait()?.is_some() {
                return Ok(None);
            }
            if begun.elapsed() > STARTING {
                // Says why it is not on the pool, if that can be known.
                let problem = target::find(&child.id().to_string()).err();
                let why = problem.map_or_else(|| "it has no segment".to_owned(), |failure| failure.to_string());
                sink::say(&format!("nothing is recorded: {why}"));
                return Ok(None);
            }
            std::thread::sleep(NAP);
        }
    }

    fn record(
        &self,
        path: &Path,
        output: &Output,
        from_start: bool,
        mut order: impl FnMut(&Progress) -> Order,
    ) -> Result<Summary> {
        let request = Request {
            number: (std::process::id().rotate_left(16) ^ now_ns() as u32).max(1),
            ring_bytes: self.ring,
            lossless: self.lossless,
            free_stacks: self.free_stacks,
        };
        let fail = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
        let mut tap = Tap::attach(path, request).map_err(|e| fail(&e))?;
        let begun = Instant::now();
        let mut told = false;
        loop {
            match tap.answer().map_err(|e| fail(&e))? {
                // One that has ended since it began has left its events.
                Answer::On | Answer::Ended => break,
                Answer::NotYet | Answer::Abandoned => {}
            }
            let gone = tap.segment.process().state != poolscope_profiler::snapshot::ProcessState::Running;
            if gone || order(&Progress::default()) != Order::GoOn {
                sink::say("nothing was recorded: the program has not allocated since it was asked");
                return Ok(Summary::default());
            }
            if !told && begun.elapsed() > SILENCE {
                told = true;
                sink::say("waiting for the program: it answers when it allocates");
            }
            let _ = tap.beat();
            std::thread::sleep(NAP);
        }
        tap.open().map_err(|e| fail(&e))?;
        let options = Options { from_start, lossless: self.lossless, free_stacks: self.free_stacks, limit: self.limit };
        let out = BufWriter::with_capacity(1 << 16, output.begin()?);
        let recorder = Recorder::append(tap, out, &options, output.before.as_ref()).map_err(|e| fail(&e))?;
        let mut last = Instant::now();
        let is_terminal = !self.quiet && std::io::stderr().is_terminal() && !from_start;
        let (_, summary, progress) = recorder
            .run(&options, |progress| {
                if is_terminal && last.elapsed() >= TELL_EVERY {
                    last = Instant::now();
                    eprint!("\r\x1b[K{}", line(progress));
                }
                order(progress)
            })
            .map_err(|e| fail(&e))?;
        if is_terminal {
            eprint!("\r\x1b[K");
        }
        if !self.quiet {
            self.tell(output, &summary, &progress);
        }
        Ok(summary)
    }

    fn tell(&self, output: &Output, summary: &Summary, progress: &Progress) {
        let bytes = std::fs::metadata(&self.output).map_or(progress.bytes, |file| file.len());
        let added = bytes.saturating_sub(output.before.as_ref().map_or(0, |before| before.offset));
        let pairs = progress.allocs.max(1) as f64;
        sink::say(&format!(
            "{}; {} and {} of {} in {} ({}, {:.2} bytes an allocation)",
            summary.ended,
            figures::count(progress.allocs, "allocation"),
            figures::count(progress.frees, "free"),
            figures::count(progress.threads as u64, "thread"),
            self.output.display(),
            figures::bytes(bytes as f64),
            added as f64 / pairs
        ));
        for ring in summary.losses.iter().filter(|ring| ring.allocs + ring.frees > 0) {
            sink::say(&format!(
                "lost of thread {}: {} and {}; --lossless or a larger --ring loses less",
                ring.tid,
                figures::count(ring.allocs, "allocation"),
                figures::count(ring.frees, "free")
            ));
        }
        if summary.lost_without_ring > 0 {
            let events = figures::count(summary.lost_without_ring, "event");
            sink::say(&format!("lost of threads that found no room for a ring: {events}"));
        }
        if summary.lost() == 0 {
            sink::say("nothing was lost");
        }
        sink::say(&format!("memory of the recorder: {} at most", figures::bytes(summary.recorder_bytes as f64)));
    }
}

/// The file of the recording, locked: two recorders would write over each other.
struct Output {
    file: File,
    path: PathBuf,
    /// Where to go on, if it is gone on with.
    before: Option<Continuation>,
}

impl Output {
    fn open(path: &Path, append: bool, limit: Option<u64>) -> Result<Self> {
        let failed = || format!("cannot write the recording to {}", path.display());
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path).wrap_err_with(failed)?;
        let metadata = file.metadata().wrap_err_with(failed)?;
        if metadata.is_file() && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let message =
                format!("another `poolscope record` writes to {}: stop it, or name another file", path.display());
            return Err(Failure::usage(message).into());
        }
        let before = if append && metadata.len() > 0 {
            let before = Continuation::find(path).map_err(|error| Failure::usage(error.to_string()))?;
            if let Some(limit) = limit.filter(|&limit| before.offset + LEAST_LIMIT > limit) {
                let (has, limit) = (figures::bytes(before.offset as f64), figures::bytes(limit as f64));
                let message =
                    format!("{} has {has} already, and --limit is {limit} for the whole file", path.display());
                return Err(Failure::usage(message).into());
            }
            Some(before)
        } else {
            // Nobody is to take an old recording for this one.
            if metadata.is_file() {
                file.set_len(0).wrap_err_with(failed)?;
            }
            None
        };
        Ok(Self { file, path: path.to_owned(), before })
    }

    /// The file, cut to where this recording begins. What it has behind that is a program's that became another by `exec`, an
    /// index, or what a recorder that was killed has left of a block.
    fn begin(&self) -> Result<&File> {
        let failed = || format!("cannot write the recording to {}", self.path.display());
        if !self.file.metadata().wrap_err_with(failed)?.is_file() {
            return Ok(&self.file);
        }
        let offset = self.before.as_ref().map_or(0, |before| before.offset);
        self.file.set_len(offset).wrap_err_with(failed)?;
        (&self.file).seek(SeekFrom::Start(offset)).wrap_err_with(failed)?;
        if let Some(torn) = self.before.as_ref().map(|before| before.torn).filter(|&torn| torn > 0) {
            let torn = figures::bytes(torn as f64);
            sink::say(&format!(
                "the end of the recording was missing: {torn} of a block that is not whole were cut off"
            ));
        }
        Ok(&self.file)
    }
}

/// Asks `order`, and now and then whether the process has another segment than `path`, as after `exec`.
fn replaced_or(mut order: impl FnMut(&Progress) -> Order, pid: u32, path: &Path) -> impl FnMut(&Progress) -> Order {
    let mut looked = Instant::now();
    move |progress| {
        if looked.elapsed() > TELL_EVERY / 4 {
            looked = Instant::now();
            if target::newest_segment(pid).is_some_and(|newest| newest != path) {
                return Order::Stop(REPLACED);
            }
        }
        order(progress)
    }
}

/// One line of progress.
fn line(progress: &Progress) -> String {
    let lost = if progress.lost > 0 { format!(", {} lost", progress.lost) } else { String::new() };
    format!(
        "recording: {} allocations, {} frees, {} in use, {} stacks, {}{lost}",
        progress.allocs,
        progress.frees,
        progress.live,
        progress.stacks,
        figures::bytes(progress.bytes as f64)
    )
}
