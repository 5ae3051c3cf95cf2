//! `poolscope leaks`: what a dead process never freed, and what a living one has in use.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::SegmentReader;
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::model::snapshot::ProcessState;

use crate::args::MemoryArgs;
use crate::failure::Failure;
use crate::{sink, target};

/// Report what a process that has ended never freed, or what one that runs has in use, by stack
///
/// A process leaves its segment if it was killed, or with POOLSCOPE_KEEP=1. What a killed one had in use it did not
/// leak: it had no end at which it could free it. Of one that runs nobody knows yet what it will free: what it has in
/// use stands there with its age, the oldest first. From samples the figures are estimates; `poolscope check` runs a
/// program with every allocation recorded.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  POOLSCOPE_KEEP=1 poolscope run --headless -- ./server; poolscope leaks 1234")]
pub(crate) struct Leaks {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID|SEGMENT")]
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// File of suppressions: lines leak:PATTERN
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    #[command(flatten)]
    memory: MemoryArgs,
}

impl Leaks {
    pub(crate) fn run(self) -> Result<u8> {
        let mut suppressions = Suppressions::defaults();
        for file in &self.suppressions {
            suppressions.add_file(file).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let entry = target::find(&self.target)?;
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
        sink::print(&if self.json { report.to_json()? + "\n" } else { report.to_text() })?;
        Ok(0)
    }
}
