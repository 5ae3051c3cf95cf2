//! The processes that run on the pool, here or where a server is: what there is to choose from.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use poolscope_profiler::model::growth::Slope;
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::reading::listed::ListedProcess;
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::{SegmentReader, process};

use super::named_sites::{NamedSite, named_sites};
use super::watched::Watched;
use crate::dashboard::input::filter::{Figures, Filter};
use crate::remote::Server;
use crate::words::users;

/// Whose processes are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Only those that are called so.
    pub(crate) name: Option<String>,
    /// Those that a server has, instead of those of this machine.
    pub(crate) server: Option<Server>,
    /// With the call sites of all.
    pub(crate) with_sites: bool,
}

/// A process that runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessRow {
    /// Its process id.
    pub(crate) pid: u32,
    /// The user that it is, where it runs, and the name of that user.
    pub(crate) uid: Option<u32>,
    pub(crate) user: String,
    /// How it is watched.
    pub(crate) watched: Watched,
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
    /// Somebody has looked.
    pub(crate) is_read: bool,
    /// It is a server's list, and the server serves no other process.
    pub(crate) only_one: bool,
    /// The call sites of all by name, if they were asked for.
    pub(crate) sites: Option<Vec<NamedSite>>,
    /// Why nothing could be listed.
    pub(crate) trouble: Option<String>,
}

impl ProcessRow {
    fn new(listed: ListedProcess, watched: Watched, name: impl FnOnce(u32) -> String) -> ProcessRow {
        ProcessRow {
            pid: listed.pid,
            uid: listed.uid,
            user: listed.uid.map(name).unwrap_or_default(),
            watched,
            trend: listed.trend(),
            in_use: listed.in_use_bytes,
            rss: listed.rss_bytes,
            age: Duration::from_secs_f64(listed.age_seconds),
            name: listed.name,
            arguments: listed.arguments,
        }
    }

    /// Whether a filter means it: by its words, and by the bytes in use, their growth and how long it has run.
    pub(crate) fn is_meant(&self, filter: &Filter) -> bool {
        let growth = if self.trend.is_clear() { self.trend.per_minute() } else { 0.0 };
        let size = self.in_use.map_or(0.0, |bytes| bytes as f64);
        let figures = Figures { size, growth: Some(growth), age: Some(self.age.as_secs_f64()) };
        filter.has_words(&format!("{} {} {} {}", self.pid, self.user, self.name, self.arguments))
            && filter.has_figures(&figures)
    }

    /// The natural order by a column of the list.
    pub(crate) fn compare(&self, other: &ProcessRow, column: usize) -> Ordering {
        let slope = |row: &ProcessRow| if row.trend.is_clear() { row.trend.per_minute() } else { 0.0 };
        match column {
            0 => self.pid.cmp(&other.pid),
            1 => self.user.cmp(&other.user),
            2 => self.name.cmp(&other.name),
            3 => self.in_use.cmp(&other.in_use),
            5 => slope(self).total_cmp(&slope(other)),
            6 => self.age.cmp(&other.age),
            7 => self.arguments.cmp(&other.arguments),
            _ => self.rss.cmp(&other.rss),
        }
    }

    /// Its call sites, with names; none if its segment can't be read.
    pub(crate) fn profile(&self) -> Option<poolscope_profiler::Profile> {
        let Watched::Segment(path) = &self.watched else { return None };
        let snapshot = SegmentReader::open(path).ok()?.snapshot().ok()?;
        Some(crate::symbols::profile_builder().build(&snapshot))
    }
}

impl Processes {
    /// Whether they are of several users, or of another one than who looks.
    pub(crate) fn are_others(&self) -> bool {
        let Some(first) = self.running.first() else { return false };
        let usual = if first.watched.is_here() { Some(process::own_uid()) } else { first.uid };
        self.running.iter().any(|row| row.uid != usual)
    }

    /// Looks for them, or asks the server.
    pub(crate) fn read(listed: &Listed) -> Processes {
        let found = match &listed.server {
            Some(server) => Processes::of_server(server),
            None => Processes::of_this_machine(listed.name.as_deref()),
        };
        let found = found.map(|found| {
            let sites = listed.with_sites.then(|| named_sites(&found.running));
            Processes { sites, ..found }
        });
        Processes {
            is_read: true,
            ..found.unwrap_or_else(|why| Processes { trouble: Some(why), ..Processes::default() })
        }
    }

    fn of_this_machine(name: Option<&str>) -> Result<Processes, String> {
        let listing = discovery::list().map_err(|why| why.to_string())?;
        let (running, dead): (Vec<SegmentEntry>, Vec<SegmentEntry>) =
            listing.entries.into_iter().partition(|entry| entry.state == ProcessState::Running);
        // Few users have many processes, and each name is looked up in a file.
        let mut names = BTreeMap::new();
        let mut running: Vec<ProcessRow> = running
            .into_iter()
            .filter(|entry| name.is_none_or(|name| crate::target::named::is_called(entry, name)))
            .map(|entry| row(entry, &mut names))
            .collect();
        running.sort_by_key(|row| (std::cmp::Reverse(row.rss), row.pid));
        Ok(Processes { running, dead: dead.len(), ..Processes::default() })
    }

    /// Those that a server has readings of.
    pub(crate) fn of_server(server: &Server) -> Result<Processes, String> {
        let list = server.processes()?;
        let row = |listed: ListedProcess| {
            let watched = Watched::Server(server.of_process(listed.pid));
            // A server's users have names there.
            ProcessRow::new(listed, watched, |uid| uid.to_string())
        };
        let running = list.processes.into_iter().map(row).collect();
        Ok(Processes { running, only_one: !list.all, ..Processes::default() })
    }
}

fn row(entry: SegmentEntry, names: &mut BTreeMap<u32, String>) -> ProcessRow {
    let snapshot = SegmentReader::open(&entry.path).ok().and_then(|mut reader| reader.snapshot().ok());
    let name = |uid| names.entry(uid).or_insert_with(|| users::name(uid)).clone();
    ProcessRow::new(ListedProcess::new(&entry, snapshot.as_ref()), Watched::Segment(entry.path), name)
}
