//! The processes that run on the pool: what there is to choose from.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use poolscope_profiler::SegmentReader;
use poolscope_profiler::model::growth::{Slope, USUAL_WINDOW_NS};
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::segment::discovery::{self, SegmentEntry};

use crate::words::{file_name, printable};

/// A process that runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessRow {
    /// Its process id.
    pub(crate) pid: u32,
    /// Its segment.
    pub(crate) path: PathBuf,
    /// The program's name.
    pub(crate) name: String,
    /// Its arguments.
    pub(crate) arguments: String,
    /// Bytes in use by the pool's counter; none if the segment can't be read.
    pub(crate) in_use: Option<u64>,
    /// Its resident set.
    pub(crate) rss: Option<u64>,
    /// How the bytes in use have developed in the last minutes.
    pub(crate) trend: Slope,
    /// How long it has run.
    pub(crate) age: Duration,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Processes {
    /// Those that run, the largest first.
    pub(crate) running: Vec<ProcessRow>,
    /// How many dead ones left a segment behind.
    pub(crate) dead: usize,
    /// Why nothing could be listed.
    pub(crate) trouble: Option<String>,
}

impl ProcessRow {
    /// Its call sites, with names; none if its segment can't be read.
    pub(crate) fn profile(&self) -> Option<poolscope_profiler::Profile> {
        let snapshot = SegmentReader::open(&self.path).ok()?.snapshot().ok()?;
        Some(crate::symbols::profile_builder().build(&snapshot))
    }
}

impl Processes {
    /// Looks for them. With a name, only those that are called so.
    pub(crate) fn read(name: Option<&str>) -> Processes {
        let listing = match discovery::list() {
            Ok(listing) => listing,
            Err(why) => return Processes { trouble: Some(why.to_string()), ..Processes::default() },
        };
        let (running, dead): (Vec<SegmentEntry>, Vec<SegmentEntry>) =
            listing.entries.into_iter().partition(|entry| entry.state == ProcessState::Running);
        let mut running: Vec<ProcessRow> = running
            .into_iter()
            .filter(|entry| name.is_none_or(|name| crate::target::is_called(entry, name)))
            .map(row)
            .collect();
        running.sort_by_key(|row| (std::cmp::Reverse(row.rss), row.pid));
        Processes { running, dead: dead.len(), trouble: None }
    }
}

fn row(entry: SegmentEntry) -> ProcessRow {
    let snapshot = SegmentReader::open(&entry.path).ok().and_then(|mut reader| reader.snapshot().ok());
    let snapshot = snapshot.as_ref();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let called = entry.args.first().filter(|called| !called.is_empty()).unwrap_or(&entry.exe);
    let arguments = entry.args.iter().skip(1).map(|argument| printable(argument)).collect::<Vec<_>>().join(" ");
    ProcessRow {
        pid: entry.pid,
        name: printable(file_name(called)),
        arguments,
        in_use: snapshot.filter(|s| !s.classes.is_empty()).map(|s| s.stats().usage().in_use),
        rss: snapshot.and_then(|s| s.memory).map(|memory| memory.rss),
        trend: snapshot.map(|s| s.history.trend(USUAL_WINDOW_NS, s.taken_ns)).unwrap_or_default(),
        age: now.saturating_sub(Duration::from_nanos(entry.start_realtime_ns)),
        path: entry.path,
    }
}
