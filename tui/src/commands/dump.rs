//! `poolscope dump`: a heap profile, pprof's or of another format.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::faces::pprof::PprofWriter;
use poolscope_profiler::model::difference::Difference;
use poolscope_profiler::{Metric, Profile, SegmentReader, Site};

use crate::args::{Format, MemoryArgs, Origin};
use crate::failure::Failure;
use crate::{sink, target};

/// Write a heap profile: for `go tool pprof`, or for other tools by --format
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope dump 1234 -o heap.pb.gz && go tool pprof -top heap.pb.gz\n  \
    poolscope dump 1234 --seconds 30 --allocs -o allocs.pb.gz\n  \
    poolscope dump 1234 -o heap.pftrace    # for ui.perfetto.dev")]
pub(crate) struct Dump {
    /// Process id, name of a program, or the file of a segment or of a recording
    #[arg(value_name = "PID|NAME|FILE")]
    target: String,
    /// Where to; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "heap.pb.gz")]
    output: PathBuf,
    /// The format; without it what the file's name says, else pprof
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write what changed in so many seconds: figures may be negative
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Make what was allocated the profile's default figure, instead of what is in use
    #[arg(long)]
    allocs: bool,
    /// Show as in use what was in use at the peak, of the host and of each device
    #[arg(long, conflicts_with = "seconds")]
    peak: bool,
    /// Leave out the interpreter's frames where functions of Python's or Ruby's are
    #[arg(long)]
    python: bool,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Stacks whose names are held in memory at a time.
const PART: usize = 8192;

impl Dump {
    pub(crate) fn run(self) -> Result<u8> {
        if let Some(why) = self.format.is_none().then(|| Format::ambiguous(&self.output)).flatten() {
            return Err(Failure::usage(why).into());
        }
        let format = self.format.or_else(|| Format::of(&self.output)).unwrap_or(Format::Pprof);
        if format == Format::Pprof && self.seconds.is_none() && !self.python && !target::is_recording(&self.target) {
            return self.run_in_parts();
        }
        let (profile, origin) = self.profile()?;
        let memory = self.memory.memory(&profile)?;
        let mut profile = self.shown(profile)?;
        if format == Format::Collapsed {
            // Its lines have one number: bytes of different memories don't add up.
            profile = profile.only(memory);
        }
        sink::write(&self.output, |out| format.write(&profile, &origin, self.metric(), out))?;
        if let Some(remark) = format.remark(&profile, self.metric()) {
            sink::say(&remark);
        }
        Ok(0)
    }

    /// Writes the profile of a segment, part by part: it may have a million stacks.
    fn run_in_parts(self) -> Result<u8> {
        let entry = target::find(&self.target)?;
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let mut reader = SegmentReader::open(&entry.path).map_err(fail)?;
        let outline = reader.outline().map_err(fail)?;
        let mut builder = crate::symbols::profile_builder();
        let mut kinds = Vec::new();
        for stack in outline.stacks() {
            let kind = stack.place.kind();
            if !kinds.contains(&kind) && self.memory.has(stack.place)? {
                kinds.push(kind);
            }
        }
        if kinds.is_empty() {
            // Says what there is instead, if other memory was asked for.
            let places = outline.stacks().iter().map(|stack| Site { place: stack.place, ..Site::default() });
            self.memory.memory(&Profile { sites: places.collect(), ..Profile::default() })?;
        }
        let count = outline.stacks().len();
        let mut part = |from: usize| -> Result<Profile> {
            builder.forget_stacks();
            let snapshot = reader.part(&outline, from..count.min(from + PART)).map_err(fail)?;
            let profile = self.shown(builder.build(&snapshot))?;
            target::say_warnings(&mut builder);
            Ok(profile)
        };
        let mut first = part(0)?;
        first.thread_names = target::thread_names(outline.process());
        sink::write(&self.output, |out| {
            let mut writer = PprofWriter::new(&first, kinds.iter().copied(), self.metric(), out)?;
            writer.add(&first)?;
            drop(std::mem::take(&mut first));
            for from in (PART..count).step_by(PART) {
                writer.add(&part(from).map_err(io::Error::other)?)?;
            }
            writer.finish()
        })?;
        Ok(0)
    }

    fn metric(&self) -> Metric {
        if self.allocs { Metric::AllocatedBytes } else { Metric::InUseBytes }
    }

    /// The profile as it is to be shown.
    fn shown(&self, mut profile: Profile) -> Result<Profile> {
        if self.peak {
            // A profile that was just read knows its peak.
            profile = profile.at_peak().unwrap_or(profile);
        }
        if self.python {
            target::hide_interpreter(&mut profile);
        }
        Ok(self.memory.part(profile)?)
    }

    fn profile(&self) -> Result<(Profile, Origin)> {
        if target::is_recording(&self.target) {
            if self.seconds.is_some() {
                return Err(Failure::usage(
                    "--seconds is for a process that runs: compare recordings by `poolscope diff`",
                )
                .into());
            }
            let loaded = target::load(&self.target)?;
            return Ok((loaded.profile, loaded.origin));
        }
        let entry = target::find(&self.target)?;
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let mut reader = SegmentReader::open(&entry.path).map_err(fail)?;
        let mut builder = crate::symbols::profile_builder();
        let profile = target::read(&mut reader, &mut builder)?;
        let origin = target::origin(&entry, &profile);
        let Some(seconds) = self.seconds else { return Ok((profile, origin)) };
        std::thread::sleep(Duration::from_secs(seconds));
        let after = target::read(&mut reader, &mut builder)?;
        Ok((Difference::new(&profile, &after).to_profile(), origin))
    }
}
