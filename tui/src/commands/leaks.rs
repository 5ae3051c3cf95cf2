//! `poolscope leaks`: what a running process can't reach any more, or has in use, and what a dead one never freed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::SegmentReader;
use poolscope_profiler::leaks::retainers::{self, Asked};
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::leaks::unreachable::{self, Checked};
use poolscope_profiler::leaks::{LeakReport, Shown};
use poolscope_profiler::model::snapshot::{LiveBlock, ProcessState};
use poolscope_profiler::segment::ask::{self, AskError, Wish};
use poolscope_profiler::segment::discovery::SegmentEntry;

use crate::args::{MemoryArgs, at_most, parse_mask};
use crate::commands::check::{LEAKED, NOT_CHECKED, USUAL};
use crate::commands::tensors::held_by;
use crate::failure::Failure;
use crate::{sink, target};

/// Report what a running process can't reach any more, or what one that has ended never freed, by stack
///
/// A running process looks for blocks that no pointer leads to, and goes on: its threads wait meanwhile, or, with
/// --snapshot, until a copy of the process is made that looks. Calls in which a thread waits (poll, nanosleep) may end
/// early, as by any signal (EINTR). This takes a program with every allocation recorded (POOLSCOPE_PERIOD=1). The exit
/// code is 23 if anything leaked, and 24 if nothing is known to have leaked but not everything could be checked.
///
/// With --growth, or of some memory by --kind and --device, the report has all that is in use, with its age, the oldest
/// first. From samples these figures are estimates.
///
/// A process that has ended leaves its segment if it was killed, or with POOLSCOPE_KEEP=1. What a killed one had in use
/// it did not leak: it had no end at which it could free it. The exit code is 0 then.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  poolscope leaks 1234\n  poolscope leaks --snapshot --suppressions leaks.supp 1234\n  \
    poolscope leaks --why cache::insert 1234\n  \
    POOLSCOPE_KEEP=1 poolscope run --headless -- ./server; poolscope leaks 1234"
)]
pub(crate) struct Leaks {
    /// Process id, name of a program, or the file of a segment
    #[arg(value_name = "PID|NAME|SEGMENT")]
    target: String,
    /// Report all that is in use, whether or not the program can still reach it
    #[arg(long)]
    growth: bool,
    /// Report what the last search of the process found, without another one
    #[arg(long)]
    last: bool,
    /// Say what holds the blocks of a call site: a chain of pointers from a variable, a stack or a register
    ///
    /// SITE is a part of a function's or source file's name, or the address of a block, as 0x7f0123456780.
    #[arg(long, value_name = "SITE")]
    why: Option<String>,
    /// Write the addresses of the leaked blocks
    #[arg(long)]
    objects: bool,
    /// Report this many stacks at most, those of most bytes; 0 for all
    #[arg(long, value_name = "N")]
    max_leaks: Option<usize>,
    /// Report this many frames of a stack at most, most of them innermost ones: 40 if nothing is said; 0 for all, as JSON
    /// has them
    #[arg(long, value_name = "N", conflicts_with = "json")]
    max_frames: Option<usize>,
    /// Have a copy of the process look, so that its threads wait for the copy only
    #[arg(long)]
    snapshot: bool,
    /// Bits that are no part of an address where the program keeps one, such as 0xff00000000000000
    #[arg(long, value_name = "MASK", value_parser = parse_mask)]
    tag_mask: Option<u64>,
    /// Seconds to wait for the process
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// File of suppressions: lines leak:PATTERN
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// The named tensors that a process holds, or had not given back at its end.
fn tensors_of(entry: &SegmentEntry) -> String {
    held_by(entry.pid, entry.state != ProcessState::Running).map_or_else(String::new, |held| format!("\n{held}"))
}

/// Where a block lies, and its bytes.
fn place(block: &LiveBlock) -> (u64, u64) {
    (block.address, block.size)
}

impl Leaks {
    pub(crate) fn run(self) -> Result<u8> {
        let mut suppressions = Suppressions::defaults();
        for file in &self.suppressions {
            suppressions.add_file(file).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let entry = target::find(&self.target)?;
        let asks = self.why.is_some() || (!self.growth && !self.memory.is_given());
        if entry.state == ProcessState::Running && asks {
            return self.ask(&entry, &suppressions);
        }
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let snapshot = SegmentReader::open(&entry.path).map_err(fail)?.snapshot().map_err(fail)?;
        match snapshot.process.state {
            ProcessState::Running => sink::say(&format!(
                "process {} runs, and may free what it has: what follows is in use now, leaked or not, the oldest first",
                entry.pid
            )),
            ProcessState::Killed => sink::say(&format!(
                "process {} did not end by exit: what follows was in use when it ended, leaked or not",
                entry.pid
            )),
            ProcessState::Exited => {}
        }
        let mut builder = crate::symbols::profile_builder();
        let profile = builder.build(&snapshot);
        for warning in builder.take_warnings() {
            sink::say(&format!("{warning}"));
        }
        self.memory.memory(&profile)?;
        let profile = self.memory.part(profile)?;
        let report = LeakReport::new(&snapshot, &profile, &suppressions);
        let text = || self.text_of(&report) + &tensors_of(&entry);
        sink::print(&if self.json { report.to_json()? + "\n" } else { text() })?;
        Ok(0)
    }

    /// As much of a report as is asked for.
    fn text_of(&self, report: &LeakReport) -> String {
        let frames = at_most(self.max_frames, USUAL.frames);
        let shown = Shown { leaks: at_most(self.max_leaks, usize::MAX), frames };
        let mut text = report.to_text_of(shown);
        if report.has_more_frames_than(shown) {
            text += &format!("With --max-frames {frames}: 0 prints whole stacks.\n");
        }
        text
    }

    /// Has a running process look.
    fn ask(&self, entry: &SegmentEntry, suppressions: &Suppressions) -> Result<u8> {
        let wish = Wish {
            snapshot: self.snapshot,
            tag_mask: self.tag_mask.unwrap_or(0),
            limit: Duration::from_secs(self.timeout),
        };
        let not_checked = |why: String| Failure::new(NOT_CHECKED, why);
        if !self.last {
            ask::search(&entry.path, wish).map_err(|error| match error {
                AskError::Refused { .. } => not_checked(format!("{error}. --growth lists what is in use.")),
                error => Failure::usage(error.to_string()),
            })?;
        }
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let snapshot = SegmentReader::open(&entry.path).map_err(fail)?.snapshot().map_err(fail)?;
        let mut builder = crate::symbols::profile_builder();
        if let Some(site) = &self.why {
            if let Some(why) = snapshot.search.and_then(|search| search.failed) {
                return Err(not_checked(format!("process {}: {why}", entry.pid)).into());
            }
            let text = retainers::explain(&snapshot, &mut builder, &Asked::of(site)).ok_or_else(|| {
                Failure::usage(format!("process {} has no block from a call site like {site:?}", entry.pid))
            })?;
            sink::print(&text)?;
            return Ok(0);
        }
        let objects: Vec<(u64, u64)> =
            snapshot.live.iter().filter(|block| block.verdict.is_leaked()).map(place).collect();
        let mut report = unreachable::report(snapshot, &mut builder, suppressions)
            .map_err(|why| not_checked(format!("process {}: {why}", entry.pid)))?;
        if let Some(most) = self.max_leaks.filter(|&most| self.json && most > 0) {
            report.keep_largest(most);
        }
        for warning in builder.take_warnings() {
            sink::say(&format!("{warning}"));
        }
        let text = || self.text_of(&report) + &tensors_of(entry);
        sink::print(&if self.json { report.to_json()? + "\n" } else { text() })?;
        if self.objects && !self.json {
            let lines = objects.into_iter().map(|(address, size)| format!("leaked: {size} bytes at {address:#x}\n"));
            sink::print(&lines.collect::<String>())?;
        }
        let doubt = report.checked.as_ref().and_then(Checked::doubt);
        if let Some(why) = &doubt {
            sink::say(&format!("Could not be checked: {why}."));
        }
        Ok(match (report.has_leaks(), doubt) {
            (true, _) => LEAKED,
            (false, Some(_)) => NOT_CHECKED,
            (false, None) => 0,
        })
    }
}
