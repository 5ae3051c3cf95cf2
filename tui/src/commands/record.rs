//! `poolscope record`: every allocation and free of a program, to a file.

mod output;
mod started;

use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::process::clock::monotonic_ns;
use poolscope_profiler::process::control_group::ControlGroup;
use poolscope_profiler::process::{self, Scheduling};
use poolscope_profiler::recording::events::session::Summary;
use poolscope_profiler::recording::recorder::alarm::Alarm;
use poolscope_profiler::recording::recorder::{Options, Order, Progress, RecordError, Recorder};
use poolscope_profiler::recording::tap::{Answer, Tap};
use poolscope_profiler::segment::discovery;
use poolscope_profiler::segment::folders;
use poolscope_profiler::words::figures;
use poolscope_wire::trace::{RING_BYTES_LOG2, Request};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::gpu_trace;
use crate::args::{parse_bytes, parse_seconds};
use crate::failure::Failure;
use crate::launch::out_of_memory::Kills;
use crate::launch::{child, library, preload, sanitizer};
use crate::target::Replacement;
use crate::words::Ended;
use crate::{sink, target, version};

use output::{LEAST_LIMIT, Output};
use started::Started;

/// Record every allocation and free of a program
///
/// Each event has the thread, the time and, for allocations, the stack. A process that runs already is recorded from
/// now on, a command from its first allocation to its end; its forked children are not. Read the file with
/// `poolscope report`; `flamegraph`, `dump` and `diff` take it, too.
///
/// A command waits for the recorder where that can't keep up. A process that runs already does not: what the recorder
/// can't keep up with is lost, counted, and said by everything that is made of the file. --lossless and --lossy say
/// otherwise. If the recorder dies, the program goes on by itself.
///
/// A recording that is in the file stays until there is a new one. Where no allocation and no free came, there is none:
/// poolscope says so, leaves the file as it was, and exits with 2. With a command, its exit code is the command's (128
/// and the signal's number if one killed it), or 2 if that is 0 and nothing was recorded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope record -o app.rec -- ./app --fast\n  \
    poolscope record 1234 --duration 30 -o app.rec && poolscope report app.rec\n  \
    poolscope record --append -o app.rec -- ./app --slow")]
pub(crate) struct Record {
    /// Process id, name of a program, or the file of a segment
    #[arg(value_name = "PID|NAME", required_unless_present = "command", conflicts_with = "command")]
    target: Option<String>,
    /// Where to; - is standard output, and what the command writes there then goes to standard error
    #[arg(short, long, value_name = "FILE", default_value = "poolscope.rec")]
    output: PathBuf,
    /// Go on with the recording that the file has, in a part of its own: another run, or more of the same process
    #[arg(long)]
    append: bool,
    /// The program waits for the recorder instead of losing events. This is the default for a command
    #[arg(long)]
    lossless: bool,
    /// The program never waits for the recorder. This is the default for a process that runs already
    #[arg(long, conflicts_with = "lossless")]
    lossy: bool,
    /// Record the stacks of frees, too: the report then says who frees. A free costs the program some 25 ns more where
    /// its stack is short, and as much as an allocation where it is deep
    #[arg(long)]
    free_stacks: bool,
    /// Write what happened to the memory of devices as a trace for `poolscope bench gpu` and `whatif`, too, when the
    /// recording ends: `+ ID SIZE STREAM` or `- ID`, one a line, packed by gzip if the name ends in .gz. Of several
    /// devices, the later ones have files of their own
    #[arg(long, value_name = "FILE")]
    gpu_trace: Option<PathBuf>,
    /// Stop when the file has about so many bytes: 100M, 2GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    limit: Option<u64>,
    /// Stop after so many seconds. Of a process that runs already, they begin with its answer
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    duration: Option<Duration>,
    /// Room for the events of each thread, in /dev/shm: a power of two. If it is not given, 2MiB; less for a process
    /// that runs already and has more than 128 threads, which share 256MiB, and in a container with little memory left
    #[arg(long, value_name = "BYTES", value_parser = parse_ring)]
    ring: Option<u64>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Says that what is no process may have been meant as a command.
fn also_as_command(failure: Failure, target: &str) -> Failure {
    if target.parse::<u32>().is_ok() || target::is_segment(Path::new(target)) {
        return failure;
    }
    let message = format!("{}. A command comes behind --: `poolscope record -- {target}`", failure.message);
    Failure { message, ..failure }
}

/// How long a command may take to its first allocation.
const STARTING: Duration = Duration::from_secs(10);
/// Time after which a program that does not answer is spoken of.
const SILENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(2);
/// Time between two looks for an answer that did not come at once, and of which the program tells, if it is not of an
/// earlier version.
const LONG_NAP: Duration = Duration::from_millis(50);
/// The longest time until a signal is passed on to a program that is only waited for.
const FORWARDING: Duration = Duration::from_millis(250);
/// When a program answers.
const WHEN: &str = "It answers when it allocates: at the latest when a thread has allocated half a mebibyte in blocks \
                    of about one size";
/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The reason that is given when the program became another one by `exec`.
const REPLACED: &str = "the program became another one by exec";
/// The reason that is given when the program turns out to bring the pool along.
const OWN_POOL: &str = "the program has a pool of its own, which serves what it allocates";

/// Whether a recording ended because there is another segment to record.
fn is_replaced(ended: &str) -> bool {
    [REPLACED, OWN_POOL].contains(&ended)
}

/// Room for the events of a thread, and for those of all that a process has when its recording begins.
const RING: u64 = 2 << 20;
const ALL_RINGS: u64 = 256 << 20;

/// Of the memory that the process's control group may still have, all rings have one part in so many ...
const PARTS_OF_A_GROUP: u64 = 4;
/// ... if there are no more threads than these. A command may have more than it has at its start.
const THREADS_OF_A_GROUP: u64 = 32;

/// Room for the events of each of so many threads, of a process whose control group may have `free` more bytes.
fn ring_for(threads: usize, free: Option<u64>) -> u64 {
    let threads = threads.next_power_of_two() as u64;
    let share = ALL_RINGS / threads;
    let part = free.map_or(share, |free| free / PARTS_OF_A_GROUP / threads.max(THREADS_OF_A_GROUP));
    let least = 1 << RING_BYTES_LOG2.start();
    1 << share.min(part).clamp(least, RING).ilog2()
}

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
        if self.gpu_trace.is_some() && !output.can_begin_anew() {
            let message = "--gpu-trace is made of the recording, which has to be in a file: name one by --output";
            return Err(Failure::usage(message).into());
        }
        let code = self.record_target(&output, &signals)?;
        let Some(path) = self.gpu_trace.as_ref().filter(|_| output.has_begun()) else { return Ok(code) };
        match gpu_trace::write(&self.output, path, self.quiet) {
            Err(error) if code != 0 => sink::say(&format!("{error:#}")),
            written => written?,
        }
        Ok(code)
    }

    /// Records a command, or a process that runs: the exit code.
    fn record_target(&self, output: &Output, signals: &Signals) -> Result<u8> {
        let Some(target) = &self.target else { return self.run_command(output, signals) };
        let entry = target::find_running(target).map_err(|failure| also_as_command(failure, target))?;
        let pid = entry.pid;
        if entry.state != ProcessState::Running {
            let why = format!("nothing can be recorded: {target} is the segment of process {pid}, which has ended");
            return Err(Failure::usage(why).into());
        }
        let (asked, scheduling) = (Instant::now(), Scheduling::of(pid));
        let mut answered = None;
        let mut is_another = becomes_another(pid, &entry.path);
        let order = |progress: &Progress| {
            let stopped = signals.latest.load(Ordering::Relaxed) != 0 || signals.interrupts.load(Ordering::Relaxed) > 0;
            // The time begins with the recording. A program that gets no processor can't answer, and is given as long
            // as it waits for one.
            let mut is_over = |duration: Duration| {
                if progress.recording {
                    answered.get_or_insert_with(Instant::now).elapsed() >= duration
                } else {
                    asked.elapsed() >= duration && asked.elapsed() >= duration + scheduling.waited(pid)
                }
            };
            match self.duration {
                _ if stopped => Order::Stop("it was stopped by a signal"),
                _ if is_another() => Order::Gone(REPLACED),
                Some(duration) if is_over(duration) => Order::Stop("the time of --duration is over"),
                _ => Order::GoOn,
            }
        };
        self.record((pid, &entry.path), output, false, order)?;
        Ok(0)
    }

    /// Starts the command, and records it from its first allocation on.
    fn run_command(&self, output: &Output, signals: &Signals) -> Result<u8> {
        sanitizer::refuse(&self.command[0])?;
        let library = library::find()?;
        version::check_library(&library)?;
        let mut command = preload::command(&self.command, &library, None);
        command.env("POOLSCOPE_RECORDER", std::process::id().to_string());
        if output.is_standard_output() {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        let kills = Kills::so_far();
        let mut child = child::spawn(&mut command)?;
        let pid = child.id();
        let mut forwarded = 0;
        let mut forward = || {
            let signal = signals.latest.load(Ordering::Relaxed);
            if signal != forwarded {
                forwarded = signal;
                // The child is reaped by `Child` alone, which this function owns: until its end was seen the number is
                // still its own.
                child::signal(pid, signal as i32);
            }
        };
        let recorded = self.record_child(&mut child, output, signals, &mut forward);
        // Whatever came of it, the program runs to its end.
        if let Err(error) = &recorded {
            sink::say(&format!("{error:#}"));
        }
        let mut alarm = Alarm::of(pid);
        let status = loop {
            if let Some(status) = child.try_wait().wrap_err("cannot wait for the program")? {
                break status;
            }
            forward();
            alarm.sleep(FORWARDING);
        };
        let ended = kills.how_ended(status);
        if !matches!(ended, Ended::Code(_)) {
            sink::say(&format!("the program {ended}"));
        }
        let code = ended.exit_code();
        Ok(if recorded.is_err() && code == 0 { 2 } else { code })
    }

    /// Records a program that was just started, also when it becomes another one.
    fn record_child(
        &self,
        child: &mut Child,
        output: &Output,
        signals: &Signals,
        forward: &mut impl FnMut(),
    ) -> Result<()> {
        let pid = child.id();
        let mut previous: Option<PathBuf> = None;
        let mut started = Started::by(pid);
        let begun = Instant::now();
        loop {
            let path = match (self.wait_for_segment(child, previous.as_deref())?, previous) {
                (Some(path), _) => path,
                // The program that it became is not on the pool.
                (None, Some(_)) if output.has_begun() => return Ok(()),
                (None, Some(_)) => {
                    let why =
                        format!("nothing was recorded: {REPLACED}, which is not on the pool, before it allocated");
                    return Err(Failure::usage(why).into());
                }
                (None, None) => {
                    return Err(Failure::usage(format!(
                        "nothing was recorded: the program ended, and was not on the pool. It is statically linked, setuid \
                         or setgid, it cleared LD_PRELOAD, or {} has no room or is open to others; POOLSCOPE_VERBOSE=1 says \
                         more if the library was loaded",
                        folders::segment_dir().display()
                    ))
                    .into());
                }
            };
            let order = |_: &Progress| {
                forward();
                started.look();
                // The terminal sends the first one to the program as well, which ends by it or knows better.
                if signals.interrupts.load(Ordering::Relaxed) > 1 {
                    return Order::Stop("it was stopped by a signal");
                }
                if self.duration.is_some_and(|duration| begun.elapsed() >= duration) {
                    return Order::Stop("the time of --duration is over");
                }
                Order::GoOn
            };
            let why = self.record((pid, &path), output, true, replaced_or(order, pid, &path))?;
            if !is_replaced(&why) {
                if let Some(remark) = started.remark().filter(|_| !self.quiet) {
                    sink::say(&remark);
                }
                return Ok(());
            }
            if output.has_begun() && !output.can_begin_anew() {
                sink::say(&format!("{why}: the recording ends there, because what is written can't be taken back"));
                return Ok(());
            }
            sink::say(&format!("{why}: the recording begins anew"));
            previous = Some(path);
        }
    }

    /// The segment of a command that was just started; none if it has ended.
    fn wait_for_segment(&self, child: &mut Child, previous: Option<&Path>) -> Result<Option<PathBuf>> {
        let begun = Instant::now();
        loop {
            if let Some(path) = target::newest_segment(child.id()).filter(|path| Some(path.as_path()) != previous) {
                return Ok(Some(path));
            }
            // The library may be another build than this command, or the program may bring the pool along.
            if let Some(other) = discovery::other_version_of(child.id()) {
                return Err(Failure::usage(format!("nothing is recorded: {other}")).into());
            }
            if child.try_wait()?.is_some() {
                return Ok(None);
            }
            if begun.elapsed() > STARTING {
                // Says why it is not on the pool, if that can be known.
                let problem = target::find_running(&child.id().to_string()).err();
                let why = problem.map_or_else(|| "it has no segment".to_owned(), |failure| failure.to_string());
                return Err(Failure::usage(format!("nothing is recorded: {why}")).into());
            }
            std::thread::sleep(NAP);
        }
    }

    /// Records the program of a segment until it ends, or `order` says stop: why it ended. An error if nothing was
    /// recorded: then the output is as it was.
    fn record(
        &self,
        (pid, path): (u32, &Path),
        output: &Output,
        from_start: bool,
        mut order: impl FnMut(&Progress) -> Order,
    ) -> Result<String> {
        let lossless = if from_start { !self.lossy } else { self.lossless };
        let request = Request {
            number: (std::process::id().rotate_left(16) ^ monotonic_ns() as u32).max(1),
            ring_bytes: self.ring.unwrap_or_else(|| {
                let free = ControlGroup::of(pid).and_then(|group| group.free_memory());
                ring_for(process::threads(pid).len(), free)
            }),
            lossless,
            free_stacks: self.free_stacks,
        };
        let fail = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
        let mut tap = Tap::attach(path, request).map_err(|e| fail(&e))?;
        wait_for_answer(&mut tap, &mut order)?;
        tap.open().map_err(|e| fail(&e))?;
        let options = Options { from_start, lossless, free_stacks: self.free_stacks, limit: self.limit };
        let out = BufWriter::with_capacity(1 << 16, output.writer());
        let recorder = Recorder::append(tap, out, &options, output.before.as_ref()).map_err(|e| fail(&e))?;
        let mut last = Instant::now();
        let is_terminal = !self.quiet && io::stderr().is_terminal() && !from_start;
        let recorded = recorder.run(|progress| {
            if is_terminal && last.elapsed() >= TELL_EVERY {
                last = Instant::now();
                eprint!("\r\x1b[K{}", line(progress));
            }
            order(progress)
        });
        if is_terminal {
            eprint!("\r\x1b[K");
        }
        let (summary, progress) = match recorded {
            Ok((_, summary, progress)) => (summary, progress),
            // What it became may allocate.
            Err(RecordError::Nothing { ended, .. }) if from_start && is_replaced(&ended) => return Ok(ended),
            Err(RecordError::Write(error)) => {
                let message = format!("cannot write the recording to {}: {error}", output.name());
                return Err(Failure::usage(message).into());
            }
            Err(error) => return Err(fail(&error).into()),
        };
        let begins_anew = from_start && is_replaced(&summary.ended) && output.can_begin_anew();
        if !self.quiet && !begins_anew {
            self.tell(output, &summary, &progress);
        }
        Ok(summary.ended)
    }

    fn tell(&self, output: &Output, summary: &Summary, progress: &Progress) {
        let bytes = output.len().unwrap_or(progress.bytes);
        let added = bytes.saturating_sub(output.before.as_ref().map_or(0, |before| before.offset));
        let pairs = progress.allocs.max(1) as f64;
        sink::say(&format!(
            "{}; {} and {} of {} in {} ({}, {:.2} bytes an allocation)",
            summary.ended,
            figures::count(progress.allocs, "allocation"),
            figures::count(progress.frees, "free"),
            figures::count(progress.threads as u64, "thread"),
            output.name(),
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
            sink::say(&format!(
                "lost of threads that found no room for a ring: {events}; a folder with more room (POOLSCOPE_DIR), or a \
                 smaller --ring, loses less"
            ));
        }
        if summary.lost() == 0 {
            sink::say("nothing was lost");
        }
        sink::say(&format!("memory of the recorder: {} at most", figures::bytes(summary.recorder_bytes as f64)));
    }
}

/// Asks `order`, and now and then whether the process has another segment than `path`, as after `exec`.
fn replaced_or(mut order: impl FnMut(&Progress) -> Order, pid: u32, path: &Path) -> impl FnMut(&Progress) -> Order {
    let mut looked = Instant::now();
    move |progress| {
        // What the program has become waits for its recorder, and has removed this segment. So may somebody else have.
        let waited = looked.elapsed();
        if waited > TELL_EVERY / 4 || waited > LONG_NAP && !path.exists() {
            looked = Instant::now();
            match target::replacement(pid, path) {
                Some(Replacement::Exec) => return Order::Gone(REPLACED),
                Some(Replacement::OwnPool) => return Order::Gone(OWN_POOL),
                None => {}
            }
        }
        order(progress)
    }
}

/// Tells whether a process has become another program by `exec`, and does not write to the segment any more. Its
/// mappings, which say so, are only read where something speaks for it.
fn becomes_another(pid: u32, path: &Path) -> impl FnMut() -> bool {
    let executable = move || std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let (before, mut looked) = (executable(), Instant::now());
    move || {
        if looked.elapsed() <= TELL_EVERY / 4 {
            return false;
        }
        looked = Instant::now();
        // One that ends has no mappings either, and no executable.
        let may_be = !path.exists() || executable() != before;
        may_be && !discovery::writes_to(pid, path) && executable().is_some()
    }
}

/// Waits until the program has answered. An error if it ends before, or `order` says stop.
fn wait_for_answer(tap: &mut Tap, order: &mut impl FnMut(&Progress) -> Order) -> Result<()> {
    let mut alarm = Alarm::of(tap.pid()).hearing(tap.bell());
    let begun = Instant::now();
    let mut told = false;
    loop {
        // Looked at before the answer: it answered before it ended, or not at all.
        let gone = tap.segment.process().state != ProcessState::Running;
        match tap.answer().map_err(|e| Failure::usage(e.to_string()))? {
            // One that has ended since it began has left its events.
            Answer::On | Answer::Ended => return Ok(()),
            Answer::NotYet | Answer::Abandoned => {}
        }
        if gone {
            let why = format!("nothing was recorded: the program ended, and until then it did not answer. {WHEN}");
            return Err(Failure::usage(why).into());
        }
        if let Order::Stop(why) | Order::Gone(why) = order(&Progress::default()) {
            let why = format!("nothing was recorded: {why}, and until then the program did not answer. {WHEN}");
            return Err(Failure::usage(why).into());
        }
        if !told && begun.elapsed() > SILENCE {
            told = true;
            sink::say(&format!("waiting for the program. {WHEN}"));
        }
        let _ = tap.beat();
        alarm.sleep(if begun.elapsed() < 2 * LONG_NAP { NAP } else { LONG_NAP });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_share_the_room_of_128() {
        let rings = [0, 1, 128, 129, 1000, 8000, 100_000].map(|threads| ring_for(threads, None) >> 10);
        assert_eq!(rings, [2048, 2048, 2048, 1024, 256, 64, 64]);
    }

    #[test]
    fn rings_leave_most_of_a_control_groups_memory_to_the_program() {
        let rings = |threads, free: u64| ring_for(threads, Some(free)) >> 10;
        assert_eq!(
            [u64::MAX, 1 << 30, 256 << 20, 100 << 20, 20 << 20, 0].map(|free| rings(1, free)),
            [2048, 2048, 2048, 512, 128, 64]
        );
        for threads in [1, 16, 100, 500] {
            let all = rings(threads, 200 << 20) * threads as u64;
            assert!(all <= 50 << 10, "{threads} threads take {all} KiB");
        }
    }
}
