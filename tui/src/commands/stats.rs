//! `poolscope stats`: where the bytes of the pool are, tier by tier.

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::SegmentReader;
use poolscope_wire::stats::{json, text};

use crate::failure::Failure;
use crate::{sink, target};

/// Print the pool's statistics, in the layout of tcmalloc or as JSON
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope stats 1234 | grep MALLOC:\n  \
    poolscope stats 1234 --json | jq .usage.in_use")]
pub(crate) struct Stats {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID|SEGMENT")]
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<u8> {
        let entry = target::find(&self.target)?;
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let stats = SegmentReader::open(&entry.path).map_err(fail)?.snapshot().map_err(fail)?.stats();
        let mut out = String::new();
        if self.json { json::write(&stats, &mut out) } else { text::write(&stats, &mut out) }?;
        sink::print(&out)?;
        Ok(0)
    }
}
