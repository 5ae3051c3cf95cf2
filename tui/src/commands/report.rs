//! `poolscope report`: what a recording comes to, or the call sites of a process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::faces::json;
use poolscope_profiler::faces::text::{growth_text, sites_text};
use poolscope_profiler::findings::{self, Facts};
use poolscope_profiler::model::growth::{Tracker, USUAL_WINDOW_NS};
use poolscope_profiler::model::snapshot::{ProcessState, Snapshot};
use poolscope_profiler::recording::faces::{json as recording_json, page, text};
use poolscope_profiler::recording::file::reader::RecordingReader;
use poolscope_profiler::recording::replay::analysis::{Analysis, Question};
use poolscope_profiler::{Memory, SegmentReader};

use super::gpu_trace;
use crate::failure::Failure;
use crate::{sink, target};

/// Report on a recording, or on the call sites of a process
///
/// For a process, or its segment: who has most in use, and who allocated most, of the host's memory and of each
/// device's; what a person should know, in words; and with --watch what grows. For a recording: who had what at the
/// peak, what was allocated and freed at once, how long blocks lived, their sizes, what grew between two times, what
/// each thread did, and who holds pages that are nearly empty. What was lost is said first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  poolscope report 1234\n  poolscope report 1234 --watch 30\n  poolscope report app.rec\n  \
    poolscope report app.rec --html app.html --rows 50\n  \
    poolscope report app.rec --from 10 --to 60 --json"
)]
pub(crate) struct Report {
    /// A file that `poolscope record` wrote, a process id, the name of a program, or the file of a segment
    #[arg(value_name = "FILE|PID|NAME")]
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
    /// Watch a process for so many seconds, to see which of its call sites grow
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// Sites in each table [default: 10]; with --json, those that are among so many by one of the tables' figures
    /// [default: all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
}

/// Sites in each table of a text.
const ROWS: usize = 10;

fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds: write 30 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a time after the start of the recording".to_owned())
}

impl Report {
    pub(crate) fn run(self) -> Result<u8> {
        if let Some(target) = self.file.to_str().filter(|target| is_process(target)) {
            return self.of_process(target);
        }
        if self.watch.is_some() {
            return Err(Failure::usage("--watch is for a process that runs: a recording has its whole time").into());
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
            sink::write(Path::new("-"), |out| recording_json::write_json(&analysis, self.rows, out))?;
        } else if self.html.is_none() {
            sink::print(&text::to_text(&analysis, self.rows.unwrap_or(ROWS)))?;
        }
        Ok(0)
    }
}

/// Whether an argument is a process's number, name or segment, and not a recording.
fn is_process(argument: &str) -> bool {
    argument.parse::<u32>().is_ok() || target::is_segment(Path::new(argument)) || target::named::is_meant(argument)
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
        let mut reader = SegmentReader::open(&entry.path).map_err(|e| Failure::usage(e.to_string()))?;
        let window_ns = self.watch.unwrap_or(0).saturating_mul(1_000_000_000).max(USUAL_WINDOW_NS);
        let mut tracker = Tracker::new(window_ns);
        let snapshot = self.watch_process(&mut reader, &mut tracker)?;
        let mut builder = crate::symbols::profile_builder();
        let (profile, sites) = builder.build_with_sites(&snapshot, |_| false);
        target::say_warnings(&mut builder);
        let children = target::children(&snapshot.process);
        let mut facts = Facts { children: &children, ..Facts::of(&snapshot, Some(&profile)) };
        let (growths, devices) = (tracker.of_sites(&snapshot, &sites, profile.sites.len()), tracker.of_devices());
        // One reading tells of what frees nothing.
        if self.watch.is_some() || growths.iter().any(|growth| growth.slope.grows()) {
            facts.growths = &growths;
        }
        if self.watch.is_some() {
            facts.devices = &devices;
            (facts.total, facts.total_ns) = (tracker.total(Memory::Host), tracker.watched_ns());
            facts.watched_ns = tracker.watched_ns();
        }
        if self.json {
            sink::write(Path::new("-"), |out| json::write_json(&facts, &profile, self.rows, out))?;
            return Ok(0);
        }
        let rows = self.rows.unwrap_or(ROWS);
        let mut out = sites_text(&profile, rows);
        if self.watch.is_some() {
            out += &growth_text(&facts, &profile, rows);
        }
        let findings = facts.findings();
        if !findings.is_empty() {
            out += &format!("\nWhat to know\n{}", findings::text(&findings));
        }
        sink::print(&out)?;
        Ok(0)
    }

    /// Reads a process once, or again and again for as long as it is to be watched and runs.
    fn watch_process(&self, reader: &mut SegmentReader, tracker: &mut Tracker) -> Result<Snapshot, Failure> {
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let watch = Duration::from_secs(self.watch.unwrap_or(0));
        let begun = Instant::now();
        let step = (watch / 30).clamp(Duration::from_millis(500), Duration::from_secs(10));
        loop {
            let snapshot = reader.snapshot().map_err(fail)?;
            tracker.update(&snapshot);
            let left = watch.saturating_sub(begun.elapsed());
            if left.is_zero() || snapshot.process.state != ProcessState::Running {
                return Ok(snapshot);
            }
            std::thread::sleep(step.min(left));
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
