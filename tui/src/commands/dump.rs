//! `poolscope dump`: a pprof heap profile.

use std::path::PathBuf;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::pprof;

use crate::{sink, target};

/// Write a heap profile that `go tool pprof` reads
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope dump 1234 -o heap.pb.gz && go tool pprof -top heap.pb.gz")]
pub(crate) struct Dump {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID|SEGMENT")]
    target: String,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "heap.pb.gz")]
    output: PathBuf,
}

impl Dump {
    pub(crate) fn run(self) -> Result<u8> {
        let (_, profile) = target::read(&target::find(&self.target)?)?;
        sink::write(&self.output, |out| pprof::write_pprof(&profile, out))?;
        Ok(0)
    }
}
