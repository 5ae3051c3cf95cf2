//! `poolscope flamegraph`: an SVG.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::difference::Difference;
use poolscope_profiler::{differential, flamegraph};

use crate::metric::MetricName;
use crate::{sink, target};

/// Write a flamegraph as SVG
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope flamegraph 1234 -o heap.svg --metric alloc_space\n  \
    poolscope flamegraph 1234 --base before.pb.gz -o change.svg")]
pub(crate) struct Flamegraph {
    /// Process id, the file of a segment, or a pprof file
    #[arg(value_name = "PID|FILE")]
    target: String,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "heap.svg")]
    output: PathBuf,
    /// Which figure the widths show, by the names of pprof
    #[arg(long, value_enum, default_value_t)]
    metric: MetricName,
    /// Colour by the change since this profile, process or segment: red grew, blue shrank
    #[arg(long, value_name = "PID|FILE")]
    base: Option<String>,
}

impl Flamegraph {
    pub(crate) fn run(self) -> Result<u8> {
        let loaded = target::load(&self.target)?;
        let metric = self.metric.metric();
        if let Some(base) = &self.base {
            let base = target::load(base)?;
            let difference = Difference::new(&base.profile, &loaded.profile);
            let title = format!("{}, compared with {}", loaded.label, base.label);
            sink::write(&self.output, |out| differential::write_differential(&difference, metric, &title, out))?;
        } else {
            let title = format!("{}: {}", loaded.label, metric.describe());
            sink::write(&self.output, |out| flamegraph::write_flamegraph(&loaded.profile, metric, &title, out))?;
        }
        Ok(0)
    }
}
