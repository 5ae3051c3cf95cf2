//! `poolscope diff`: what changed between two profiles.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::build::language;
use poolscope_profiler::faces::difference::difference_text;
use poolscope_profiler::faces::flamegraph::differential;
use poolscope_profiler::faces::json::difference::difference_json;
use poolscope_profiler::faces::pprof;
use poolscope_profiler::model::difference::Difference;

use crate::args::{MemoryArgs, MetricName};
use crate::{sink, target};

/// Compare two profiles: files, recordings, segments or processes
///
/// Call paths are matched by the names of their functions, so two runs or two builds of a program can be compared. Where
/// they have functions of Python's, the interpreter's own are left out.
/// Prints the largest changes; --pprof and --svg write files instead. In the picture, red is what grew and blue what
/// shrank.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope dump 1234 -o before.pb.gz\n  poolscope diff before.pb.gz 1234\n  \
    poolscope diff before.pb.gz after.pb.gz --svg change.svg --pprof change.pb.gz")]
pub(crate) struct Diff {
    /// The base: a pprof file, a process id, or the file of a segment or of a recording
    #[arg(value_name = "BEFORE")]
    before: String,
    /// What is compared with it
    #[arg(value_name = "AFTER")]
    after: String,
    /// The figure to compare, by the names of pprof
    #[arg(long, value_enum, default_value_t)]
    metric: MetricName,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Print both profiles' figures of each path that changed as JSON
    #[arg(long)]
    json: bool,
    /// Write the difference as a pprof profile
    #[arg(long, value_name = "FILE")]
    pprof: Option<PathBuf>,
    /// Write a differential flamegraph
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Changes in the table
    #[arg(long, value_name = "N", default_value = "20")]
    rows: usize,
}

impl Diff {
    pub(crate) fn run(self) -> Result<u8> {
        let (mut before, mut after) = (target::load(&self.before)?, target::load(&self.after)?);
        // A recording has none of the interpreter's frames where it has those of Python.
        for profile in [&mut before.profile, &mut after.profile] {
            language::hide_interpreter(profile);
        }
        let memory = self.memory.named(&after.profile)?;
        let metric = self.metric.metric();
        if let Some(path) = &self.pprof {
            let (before, after) = (self.memory.part(before.profile.clone())?, self.memory.part(after.profile.clone())?);
            let profile = Difference::new(&before, &after).to_profile();
            sink::write(path, |out| pprof::write_pprof(&profile, metric, out))?;
        }
        let (of_before, of_after) = (before.profile.only(memory), after.profile.only(memory));
        let difference = Difference::new(&of_before, &of_after);
        if let Some(path) = &self.svg {
            let title = format!("{}, compared with {}", after.label, before.label);
            sink::write(path, |out| differential::write_differential(&difference, metric, &title, out))?;
        }
        if self.json {
            sink::print(&(difference_json(&difference)? + "\n"))?;
        } else if self.pprof.is_none() && self.svg.is_none() {
            sink::print(&difference_text(&difference, metric, self.rows))?;
        }
        Ok(0)
    }
}
