//! `poolscope report`: what a recording comes to, or the call sites of a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::SegmentReader;
use poolscope_profiler::recording::faces::{json, page, text};
use poolscope_profiler::recording::file::reader::RecordingReader;
use poolscope_profiler::recording::replay::analysis::{Analysis, Question};
use poolscope_profiler::segment::discovery;

use super::gpu_trace;
use crate::failure::Failure;
use crate::{sink, target};

/// Report on a recording, or on the call sites of a process
///
/// For a process, or its segment: who has most in use, and who allocated most, of the host's memory and of each
/// device's. For a recording: who had what at the peak, what was allocated and freed at once, how long blocks lived,
/// their sizes, what grew between two times, what each thread did, and who holds pages that are nearly empty.
/// What was lost is said first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  poolscope report 1234\n  poolscope report app.rec\n  poolscope report app.rec --html app.html --rows 50\n  \
    poolscope report app.rec --from 10 --to 60 --json"
)]
pub(crate) struct Report {
    /// A file that `poolscope record` wrote, a process id, or the file of a segment
    #[arg(value_name = "FILE|PID")]
    file: PathBuf,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write what happened to the memory of devices as a trace for `poolscope bench gpu`: `+ ID SIZE STREAM` or `- ID`,
    /// packed by gzip if the name ends in .gz
    #[arg(long, value_name = "FILE")]
    gpu_trace: Option<PathBuf>,
    /// Count growth from this time on, in seconds since the recording began
    #[arg(long, value_name = "SECONDS", value_parser = parse_time)]
    from: Option<Duration>,
    /// Look at nothing after this time, in seconds since the recording began
    #[arg(long, value_name = "SECONDS", value_parser = parse_time)]
    to: Option<Duration>,
    /// A block is temporary if its thread freed it after at most so many other allocations of its own
    #[arg(long, value_name = "N", default_value = "0")]
    temporary: u64,
    /// Sites in each table
    #[arg(long, value_name = "N", default_value = "10")]
    rows: usize,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds: write 30 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a time after the start of the recording".to_owned())
}

impl Report {
    pub(crate) fn run(self) -> Result<u8> {
        if let Some(target) = self.file.to_str().filter(|target| is_process(target)) {
            return self.of_process(target);
        }
        let question = Question {
            from_us: self.from.map_or(0, micros),
            to_us: self.to.map_or(u64::MAX, micros),
            temporary: self.temporary,
        };
        if question.from_us > question.to_us {
            return Err(Failure::usage("--from is after --to").into());
        }
        if let Some(path) = &self.gpu_trace {
            gpu_trace::write(&self.file, path, false)?;
            if !self.json && self.html.is_none() {
                return Ok(0);
            }
        }
        let fail = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
        let mut reader = RecordingReader::open(&self.file).map_err(|e| fail(&e))?;
        let mut builder = crate::symbols::profile_builder();
        let analysis = Analysis::of(&mut reader, &mut builder, question).map_err(|e| fail(&e))?;
        for warning in builder.take_warnings() {
            sink::say(&format!("{warning}"));
        }
        if let Some(path) = &self.html {
            sink::write(path, |out| page::write_page(&analysis, out))?;
        }
        if self.json {
            sink::print(&(json::to_json(&analysis)? + "\n"))?;
        } else if self.html.is_none() {
            sink::print(&text::to_text(&analysis, self.rows))?;
        }
        Ok(0)
    }
}

/// Whether an argument is a process's number or segment, and not a recording.
fn is_process(argument: &str) -> bool {
    argument.parse::<u32>().is_ok() || discovery::is_segment_name(Path::new(argument), None)
}

impl Report {
    /// The call sites of a process, as text or as JSON.
    fn of_process(&self, argument: &str) -> Result<u8> {
        if self.html.is_some()
            || self.gpu_trace.is_some()
            || self.from.is_some()
            || self.to.is_some()
            || self.temporary > 0
        {
            let what = "pages, times, temporary allocations and traces are of recordings";
            return Err(Failure::usage(format!("{what}: `poolscope record {argument}` makes one")).into());
        }
        let entry = target::find(argument)?;
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let snapshot = SegmentReader::open(&entry.path).map_err(fail)?.snapshot().map_err(fail)?;
        let mut builder = crate::symbols::profile_builder();
        let profile = builder.build(&snapshot);
        target::say_warnings(&mut builder);
        sink::print(&if self.json {
            poolscope_profiler::faces::json::to_json(&snapshot, &profile)? + "\n"
        } else {
            poolscope_profiler::faces::text::sites_text(&profile, self.rows)
        })?;
        Ok(0)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
