//! `poolscope flamegraph`: an SVG.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;
use poolscope_profiler::{Metric, flamegraph};

use crate::{sink, target};

/// Write a flamegraph as SVG
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope flamegraph 1234 -o heap.svg --metric alloc_space")]
pub(crate) struct Flamegraph {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID|SEGMENT")]
    target: String,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "heap.svg")]
    output: PathBuf,
    /// Which figure the widths show, by the names of pprof
    #[arg(long, value_enum, default_value_t)]
    metric: MetricName,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
enum MetricName {
    #[default]
    InuseSpace,
    InuseObjects,
    AllocSpace,
    AllocObjects,
}

impl Flamegraph {
    pub(crate) fn run(self) -> Result<u8> {
        let entry = target::find(&self.target)?;
        let (_, profile) = target::read(&entry)?;
        let metric = match self.metric {
            MetricName::InuseSpace => Metric::InUseBytes,
            MetricName::InuseObjects => Metric::InUseObjects,
            MetricName::AllocSpace => Metric::AllocatedBytes,
            MetricName::AllocObjects => Metric::AllocatedObjects,
        };
        let program = entry.exe.rsplit('/').next().unwrap_or_default();
        let title = format!("{program} (pid {}): {}", entry.pid, metric.describe());
        sink::write(&self.output, |out| flamegraph::write_flamegraph(&profile, metric, &title, out))?;
        Ok(0)
    }
}
