//! `poolscope convert`: a profile of one format in another.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;

use crate::args::{Format, MemoryArgs, MetricName};
use crate::failure::Failure;
use crate::{sink, target};

/// Write a profile in another format: for the Firefox Profiler, Perfetto, dh_view, flamegraph.pl, spreadsheets
///
/// It reads processes, segments and recordings, pprof files, heaptrack's files, DHAT's, and snapshots of PyTorch's
/// allocator. So do flamegraph and diff.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope convert 1234 heap.pftrace\n  \
    poolscope convert heaptrack.app.zst heap.pb.gz\n  \
    poolscope convert snapshot.pickle - --format collapsed --device 0 | flamegraph.pl > gpu.svg")]
pub(crate) struct Convert {
    /// Process id, name of a program, or the file of a segment, a recording or a profile; - is standard input
    #[arg(value_name = "IN")]
    from: String,
    /// Where to; - is standard output. The ending says the format: .pb.gz, .dhat.json, .firefox.json, .pftrace,
    /// .collapsed, .csv
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// The format, whatever the file is called
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The figure of collapsed stacks, and the one that pprof shows first
    #[arg(long, value_enum, default_value_t)]
    metric: MetricName,
    #[command(flatten)]
    memory: MemoryArgs,
}

impl Convert {
    pub(crate) fn run(self) -> Result<u8> {
        let Some(format) = self.format.or_else(|| Format::of(&self.to)) else {
            return Err(Failure::usage(format!(
                "{} does not say which format it is to have: say it by --format, or by an ending: {}",
                self.to.display(),
                Format::endings()
            ))
            .into());
        };
        let loaded = target::load(&self.from)?;
        // A line of collapsed stacks has one number: bytes of different memories don't add up.
        let is_one = format == Format::Collapsed;
        let memory = self.memory.memory(&loaded.profile)?;
        let profile = if is_one { loaded.profile.only(memory) } else { self.memory.part(loaded.profile)? };
        let metric = self.metric.metric();
        sink::write(&self.to, |out| format.write(&profile, &loaded.origin, metric, out))?;
        if let Some(remark) = format.remark(&profile, metric) {
            sink::say(&remark);
        }
        Ok(0)
    }
}
