//! `poolscope dump`: a pprof heap profile.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::difference::Difference;
use poolscope_profiler::{Metric, Profile, SegmentReader, pprof};

use crate::failure::Failure;
use crate::metric::MemoryArgs;
use crate::{sink, target};

/// Write a heap profile that `go tool pprof` reads
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope dump 1234 -o heap.pb.gz && go tool pprof -top heap.pb.gz\n  \
    poolscope dump 1234 --seconds 30 --allocs -o allocs.pb.gz")]
pub(crate) struct Dump {
    /// Process id, or the file of a segment or of a recording
    #[arg(value_name = "PID|FILE")]
    target: String,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "heap.pb.gz")]
    output: PathBuf,
    /// Write what changed in so many seconds: figures may be negative
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Show what was allocated, where the reader does not ask for another figure, and not what is in use
    #[arg(long)]
    allocs: bool,
    /// In use is what was in use when the process had most in use, of the host and of each device
    #[arg(long, conflicts_with = "seconds")]
    peak: bool,
    /// Leave out the interpreter's frames where Python's functions are (CPython since 3.12, started with -X perf)
    #[arg(long)]
    python: bool,
    #[command(flatten)]
    memory: MemoryArgs,
}

impl Dump {
    pub(crate) fn run(self) -> Result<u8> {
        let mut profile = self.profile()?;
        if self.peak {
            // A profile that was just read knows its peak.
            profile = profile.at_peak().unwrap_or(profile);
        }
        if self.python {
            target::hide_interpreter(&mut profile);
        }
        let profile = self.memory.part(profile)?;
        let shown = if self.allocs { Metric::AllocatedBytes } else { Metric::InUseBytes };
        sink::write(&self.output, |out| pprof::write_pprof(&profile, shown, out))?;
        Ok(0)
    }
    fn profile(&self) -> Result<Profile> {
        if target::is_recording(&self.target) {
            if self.seconds.is_some() {
                return Err(Failure::usage(
                    "--seconds is for a process that runs: compare recordings by `poolscope diff`",
                )
                .into());
            }
            return Ok(target::load(&self.target)?.profile);
        }
        let entry = target::find(&self.target)?;
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let mut reader = SegmentReader::open(&entry.path).map_err(fail)?;
        let mut builder = crate::symbols::profile_builder();
        let profile = target::read(&mut reader, &mut builder)?;
        let Some(seconds) = self.seconds else { return Ok(profile) };
        std::thread::sleep(Duration::from_secs(seconds));
        let after = target::read(&mut reader, &mut builder)?;
        Ok(Difference::new(&profile, &after).to_profile())
    }
}
