//! One process, from its answer to its end.

use std::io::{self, BufWriter, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use color_eyre::eyre::Result;
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::process;
use poolscope_profiler::process::clock::monotonic_ns;
use poolscope_profiler::process::control_group::ControlGroup;
use poolscope_profiler::recording::events::session::Summary;
use poolscope_profiler::recording::recorder::alarm::Alarm;
use poolscope_profiler::recording::recorder::{Options, Order, Progress, RecordError, Recorder};
use poolscope_profiler::recording::tap::{Answer, Tap};
use poolscope_profiler::segment::discovery;
use poolscope_profiler::words::figures;
use poolscope_wire::trace::Request;

use super::Record;
use super::output::Output;
use super::ring::ring_for;
use crate::failure::Failure;
use crate::sink;
use crate::target::{self, Replacement};

/// Time after which a program that does not answer is spoken of.
const SILENCE: Duration = Duration::from_secs(2);
pub(super) const NAP: Duration = Duration::from_millis(2);
/// Time between two looks for an answer that did not come at once, and of which the program tells, if it is not of an
/// earlier version.
const LONG_NAP: Duration = Duration::from_millis(50);
/// When a program answers.
const WHEN: &str = "It answers when it allocates: at the latest when a thread has allocated half a mebibyte in blocks \
                    of about one size";
/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The reason that is given when the program became another one by `exec`.
pub(super) const REPLACED: &str = "the program became another one by exec";
/// The reason that is given when the program turns out to bring the pool along.
const OWN_POOL: &str = "the program has a pool of its own, which serves what it allocates";

/// Whether a recording ended because there is another segment to record.
pub(super) fn is_replaced(ended: &str) -> bool {
    [REPLACED, OWN_POOL].contains(&ended)
}

/// How a process comes to be recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It ran already, and does not wait.
    Running,
    /// It was started, and waits before it allocates.
    Started,
    /// It was forked by one that was started, and waits before it allocates. What it has in use already is not known.
    Forked,
}

/// Who is recorded.
pub(super) struct Process<'a> {
    pub(super) pid: u32,
    /// Its segment.
    pub(super) path: &'a Path,
    pub(super) origin: Origin,
}

/// What came of it.
pub(super) struct Recorded {
    /// Path of the executable.
    pub(super) exe: String,
    /// Why it ended.
    pub(super) ended: String,
    /// None if the process became another one before it did anything.
    pub(super) written: Option<(Summary, Progress)>,
}

impl Record {
    /// Records a process until it ends, or `order` says stop. An error if nothing was recorded: then the output is as
    /// it was.
    pub(super) fn record(
        &self,
        &Process { pid, path, origin }: &Process<'_>,
        output: &Output,
        mut order: impl FnMut(&Progress) -> Order,
    ) -> Result<Recorded> {
        let is_ours = origin != Origin::Running;
        let from_start = origin == Origin::Started;
        let lossless = if is_ours { !self.lossy } else { self.lossless };
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
        let exe = tap.segment.process().exe;
        wait_for_answer(&mut tap, &mut order)?;
        tap.open().map_err(|e| fail(&e))?;
        let options = Options { from_start, lossless, free_stacks: self.free_stacks, limit: self.limit };
        let out = BufWriter::with_capacity(1 << 16, output.writer());
        let recorder = Recorder::append(tap, out, &options, output.before.as_ref()).map_err(|e| fail(&e))?;
        let mut last = Instant::now();
        let is_terminal = !self.quiet && io::stderr().is_terminal() && !is_ours;
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
        match recorded {
            Ok((_, summary, progress)) => {
                Ok(Recorded { exe, ended: summary.ended.clone(), written: Some((summary, progress)) })
            }
            // What it became may allocate.
            Err(RecordError::Nothing { ended, .. }) if is_ours && is_replaced(&ended) => {
                Ok(Recorded { exe, ended, written: None })
            }
            // Many a process that a command starts allocates nothing.
            Err(RecordError::Nothing { ended, lost: 0 }) if self.children => Ok(Recorded { exe, ended, written: None }),
            Err(RecordError::Write(error)) => {
                let message = format!("cannot write the recording to {}: {error}", output.name());
                Err(Failure::usage(message).into())
            }
            Err(error) => Err(fail(&error).into()),
        }
    }

    /// Says what was recorded.
    pub(super) fn tell(&self, output: &Output, recorded: &Recorded) {
        let Some((summary, progress)) = recorded.written.as_ref().filter(|_| !self.quiet) else { return };
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
pub(super) fn replaced_or(
    mut order: impl FnMut(&Progress) -> Order,
    pid: u32,
    path: &Path,
) -> impl FnMut(&Progress) -> Order {
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
pub(super) fn becomes_another(pid: u32, path: &Path) -> impl FnMut() -> bool {
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
