//! `poolscope flamegraph`: an SVG.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::faces::flamegraph;
use poolscope_profiler::faces::flamegraph::differential;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::leaks::{Claim, LeakReport};
use poolscope_profiler::model::difference::Difference;
use poolscope_profiler::{Memory, Profile};

use crate::args::{MemoryArgs, MetricName};
use crate::failure::Failure;
use crate::sink;
use crate::target::{self, Loaded};

/// Write a flamegraph as SVG
///
/// The widths show what is in use now, or with --metric what was allocated since the start; with --peak what was in use
/// when the process had most in use (of host memory, or of the device that is asked for), and with --leaked what a
/// process that has ended never freed. A process writes its peak down when its memory falls by then: it is lower than
/// the true one by 3% at most, beside the error of the samples.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope flamegraph 1234 -o heap.svg --metric alloc_space\n  \
    poolscope flamegraph 1234 -o peak.svg --peak\n  \
    poolscope flamegraph 1234 -o gpu.svg --device 0 --peak\n  \
    poolscope flamegraph 1234 --base before.pb.gz -o change.svg")]
pub(crate) struct Flamegraph {
    /// Process id, name of a program, the file of a segment or of a recording, or a pprof file
    #[arg(value_name = "PID|NAME|FILE")]
    target: String,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "heap.svg")]
    output: PathBuf,
    /// Which figure the widths show, by the names of pprof
    #[arg(long, value_enum, default_value_t)]
    metric: MetricName,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Show what was in use at the peak
    #[arg(long, conflicts_with_all = ["leaked", "base"])]
    peak: bool,
    /// Show what was never freed, of a process that has ended and left its segment or a recording; of one that was
    /// killed, what it had in use
    #[arg(long, conflicts_with = "base")]
    leaked: bool,
    /// Leave out the interpreter's frames where functions of Python's or Ruby's are
    #[arg(long)]
    python: bool,
    /// Colour by the change since this profile, recording, process or segment: red grew, blue shrank
    #[arg(long, value_name = "PID|NAME|FILE")]
    base: Option<String>,
}

impl Flamegraph {
    pub(crate) fn run(self) -> Result<u8> {
        let mut loaded = target::load(&self.target)?;
        if self.python {
            target::hide_interpreter(&mut loaded.profile);
        }
        let metric = self.metric.metric();
        if (self.peak || self.leaked) && !metric.is_in_use() {
            return Err(Failure::usage("--peak and --leaked are about memory in use: leave --metric out, or ask for inuse_space or inuse_objects").into());
        }
        if let Some(base) = &self.base {
            let base = target::load(base)?;
            let memory = self.memory.memory(&loaded.profile)?;
            let (before, after) = (base.profile.only(memory), loaded.profile.only(memory));
            let difference = Difference::new(&before, &after);
            let title = format!("{}, compared with {}", loaded.label, base.label);
            sink::write(&self.output, |out| differential::write_differential(&difference, metric, &title, out))?;
            return Ok(0);
        }
        let memory = self.memory.memory(&loaded.profile)?;
        let (profile, of) = self.shown(loaded, memory)?;
        let title = format!("{of}: {} {}", metric.describe(), memory.describe());
        let profile = profile.only(memory);
        sink::write(&self.output, |out| flamegraph::write_flamegraph(&profile, metric, title.trim_end(), out))?;
        Ok(0)
    }

    /// The profile to draw, and of what it is.
    fn shown(&self, loaded: Loaded, memory: Memory) -> Result<(Profile, String), Failure> {
        let Loaded { profile, label, claim, .. } = loaded;
        if self.peak {
            let unknown =
                || Failure::usage(format!("{label} does not say when most was in use: name a process or a segment"));
            let (at_peak, when) = profile.at_peak().zip(profile.when_at_peak(memory)).ok_or_else(unknown)?;
            return Ok((at_peak, format!("{label} {when}")));
        }
        if self.leaked {
            let what = match claim {
                Some(Claim::Leaked) => "never freed",
                Some(Claim::WasInUse) => "in use at its end, leaked or not",
                Some(Claim::InUse) => {
                    let message = format!("{label} still runs, and may free what it has: leave --leaked out");
                    return Err(Failure::usage(message));
                }
                None => {
                    let message = format!("{label} does not say whether the process has ended: leave --leaked out");
                    return Err(Failure::usage(message));
                }
            };
            return Ok((LeakReport::leaked(&profile, &Suppressions::defaults()), format!("{label}, {what}")));
        }
        Ok((profile, label))
    }
}
