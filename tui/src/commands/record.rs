//! `poolscope record`: every allocation and free of a program, to a file.

mod children;
mod output;
mod recorded;
mod ring;
mod started;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::ArgPredicate;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::process::Scheduling;
use poolscope_profiler::recording::recorder::alarm::Alarm;
use poolscope_profiler::recording::recorder::{Order, Progress};
use poolscope_profiler::segment::discovery;
use poolscope_profiler::segment::folders;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::gpu_trace;
use crate::args::{parse_bytes, parse_seconds};
use crate::failure::Failure;
use crate::launch::out_of_memory::Kills;
use crate::launch::{child, library, preload, sanitizer};
use crate::words::Ended;
use crate::{sink, target, version};

use children::Files;
use output::{LEAST_LIMIT, Output};
use recorded::{NAP, Origin, Process, REPLACED, Recorded, becomes_another, is_replaced, replaced_or};
use started::Started;

/// Record every allocation and free of a program
///
/// Each event has the thread, the time and, for allocations, the stack. A process that runs already is recorded from
/// now on, a command from its first allocation to its end. Read the file with `poolscope report`; `flamegraph`, `dump`
/// and `diff` take it, too. What a command starts is recorded with --children.
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
    poolscope record --append -o app.rec -- ./app --slow\n  \
    poolscope record --children -o app.%p.rec -- make")]
pub(crate) struct Record {
    /// Process id, name of a program, or the file of a segment
    #[arg(value_name = "PID|NAME", required_unless_present = "command", conflicts_with = "command")]
    target: Option<String>,
    /// Where to; - is standard output, and what the command writes there then goes to standard error
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "poolscope.rec",
        default_value_if("children", ArgPredicate::IsPresent, "poolscope.%p.rec")
    )]
    output: PathBuf,
    /// Record the processes that the command starts, too, and those that they start, each to a file of its own: %p in
    /// FILE becomes the process id. A forked process is recorded from its first allocation on
    #[arg(long, requires = "command", conflicts_with_all = ["append", "gpu_trace"])]
    children: bool,
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
    #[arg(long, value_name = "BYTES", value_parser = ring::parse_ring)]
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
/// The longest time until a signal is passed on to a program that is only waited for.
const FORWARDING: Duration = Duration::from_millis(250);

/// The latest signal that asks this process to end, and how many came.
#[derive(Default)]
struct Signals {
    latest: Arc<AtomicUsize>,
    interrupts: Arc<AtomicUsize>,
    /// The latest that the command has been sent.
    forwarded: AtomicUsize,
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

    /// Passes the latest one on to the command, whose number is its own until it is waited for.
    fn forward(&self, pid: u32) {
        let latest = self.latest.load(Ordering::Relaxed);
        if self.forwarded.swap(latest, Ordering::Relaxed) != latest {
            child::signal(pid, latest as i32);
        }
    }

    /// The terminal sends the first interrupt to the command as well, which ends by it or knows better.
    fn insist(&self) -> bool {
        self.interrupts.load(Ordering::Relaxed) > 1
    }
}

impl Record {
    pub(crate) fn run(self) -> Result<u8> {
        if self.limit.is_some_and(|limit| limit < LEAST_LIMIT) {
            return Err(Failure::usage("--limit is too small for any recording: 64KiB is the least").into());
        }
        let signals = Signals::listen()?;
        // The file first: who can't write it has not disturbed the program.
        if let Some(files) = Files::of(&self.output, self.children)? {
            return children::record(&self, &files, &signals);
        }
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
        let process = Process { pid, path: &entry.path, origin: Origin::Running };
        let recorded = self.record(&process, output, order)?;
        self.tell(output, &recorded);
        Ok(0)
    }

    /// Starts the command, and records it from its first allocation on.
    fn run_command(&self, output: &Output, signals: &Signals) -> Result<u8> {
        let mut command = self.command()?;
        if output.is_standard_output() {
            command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
        }
        let kills = Kills::so_far();
        let mut child = child::spawn(&mut command)?;
        let recorded = self.record_command(&mut child, output, signals);
        if let Ok(recorded) = &recorded {
            self.tell(output, recorded);
        }
        let code = self.wait_for_command(&mut child, &kills, signals)?;
        Ok(if recorded.is_err() && code == 0 { 2 } else { code })
    }

    /// The command, which will wait for this process.
    fn command(&self) -> Result<Command> {
        sanitizer::refuse(&self.command[0])?;
        let library = library::find()?;
        version::check_library(&library)?;
        let mut command = preload::command(&self.command, &library, None);
        command.env("POOLSCOPE_RECORDER", std::process::id().to_string());
        // Said either way: this command may itself have been started by a recorder that records all.
        command.env("POOLSCOPE_RECORD_CHILDREN", if self.children { "1" } else { "0" });
        Ok(command)
    }

    /// Records the command, which goes on whatever comes of it.
    fn record_command(&self, child: &mut Child, output: &Output, signals: &Signals) -> Result<Recorded> {
        let recorded = self.record_child(child, output, signals);
        if let Err(error) = &recorded {
            sink::say(&format!("{error:#}"));
        }
        recorded
    }

    /// Waits until the command has ended, and passes signals on: its exit code.
    fn wait_for_command(&self, child: &mut Child, kills: &Kills, signals: &Signals) -> Result<u8> {
        let mut alarm = Alarm::of(child.id());
        let status = loop {
            if let Some(status) = child.try_wait().wrap_err("cannot wait for the program")? {
                break status;
            }
            signals.forward(child.id());
            alarm.sleep(FORWARDING);
        };
        let ended = kills.how_ended(status);
        if !matches!(ended, Ended::Code(_)) {
            sink::say(&format!("the program {ended}"));
        }
        Ok(ended.exit_code())
    }

    /// Records a program that was just started, also when it becomes another one.
    fn record_child(&self, child: &mut Child, output: &Output, signals: &Signals) -> Result<Recorded> {
        let pid = child.id();
        let mut previous: Option<(PathBuf, Recorded)> = None;
        let mut started = Started::by(pid);
        let begun = Instant::now();
        loop {
            let before = previous.as_ref().map(|(path, _)| path.as_path());
            let path = match (self.wait_for_segment(child, before)?, previous) {
                (Some(path), _) => path,
                // The program that it became is not on the pool.
                (None, Some((_, recorded))) if output.has_begun() => return Ok(recorded),
                (None, Some(_)) => {
                    let why =
                        format!("nothing was recorded: {REPLACED}, which is not on the pool, before it allocated");
                    return Err(Failure::usage(why).into());
                }
                (None, None) => {
                    return Err(Failure::usage(format!(
                        "nothing was recorded: the program ended, and was not on the pool. It is statically linked, \
                         setuid or setgid, it cleared LD_PRELOAD, or {} has no room or is open to others; \
                         POOLSCOPE_VERBOSE=1 says more if the library was loaded",
                        folders::segment_dir().display()
                    ))
                    .into());
                }
            };
            let order = |_: &Progress| {
                signals.forward(pid);
                if !self.children {
                    started.look();
                }
                if signals.insist() {
                    return Order::Stop("it was stopped by a signal");
                }
                if self.duration.is_some_and(|duration| begun.elapsed() >= duration) {
                    return Order::Stop("the time of --duration is over");
                }
                Order::GoOn
            };
            let process = Process { pid, path: &path, origin: Origin::Started };
            let recorded = self.record(&process, output, replaced_or(order, pid, &path))?;
            let why = &recorded.ended;
            if !is_replaced(why) {
                if let Some(remark) = started.remark().filter(|_| !self.quiet) {
                    sink::say(&remark);
                }
                return Ok(recorded);
            }
            if output.has_begun() && !output.can_begin_anew() {
                sink::say(&format!("{why}: the recording ends there, because what is written can't be taken back"));
                return Ok(recorded);
            }
            if !self.children {
                sink::say(&format!("{why}: the recording begins anew"));
            }
            previous = Some((path, recorded));
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
}
