//! The thread that reads segments for the handlers.
//!
//! Reading and symbolising block, and symbols stay in the thread that found them. One thread serves one request after
//! the other: a crowd of scrapers costs the machine one core, and the symbols of a process are looked up once.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::watched::Watched;
use super::{Options, Source};
use crate::build::builder::ProfileBuilder;
use crate::leaks::LeakReport;
use crate::leaks::suppressions::Suppressions;
use crate::leaks::unreachable;
use crate::model::profile::Profile;
use crate::model::snapshot::ProcessState;
use crate::model::snapshot::Snapshot;
use crate::process;
use crate::process::family::{self, Child};
use crate::reading::Reading;
use crate::reading::listed::{ListedProcess, ListedProcesses};
use crate::segment::ask::{self, AskError, Wish};
use crate::segment::discovery::{self, FindError, SegmentEntry};
use crate::segment::reader::{ReadError, SegmentReader};

/// Processes whose symbols are kept, while all are served.
const KEPT_BUILDERS: usize = 32;

/// Time that a process has to look for what it can't reach. Other requests wait meanwhile.
const LEAKS_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks for processes that one started: they read all of `/proc`.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// So many of them, the largest, are asked whether they run on the pool.
const LOOKED_AT: usize = 32;

/// Requests that may wait; more are refused.
const WAITING: usize = 64;

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0} processes run on the pool here: name one by ?pid=PID ({1})")]
    Ambiguous(usize, String),
    #[error("no process runs on the pool: start one with `poolscope run -- COMMAND`")]
    NoProcess,
    #[error("process {asked} is not served here: only {served} is")]
    NotServed { asked: u32, served: u32 },
    #[error(transparent)]
    NotChecked(#[from] AskError),
    #[error("process {pid} could not look for unreachable blocks: {why}")]
    NotSearched { pid: u32, why: String },
    #[error("too many requests wait already: try again in a moment")]
    Busy,
}

type Answer<T> = oneshot::Sender<Result<T, Refusal>>;

enum Request {
    Profile(Option<u32>, Answer<Box<Reading>>),
    Reading(Option<u32>, Answer<Box<Reading>>),
    Leaks(Option<u32>, Answer<Box<Profile>>),
    Snapshots(Option<u32>, Answer<Vec<Snapshot>>),
    Entries(Answer<Vec<SegmentEntry>>),
    Listed(Answer<ListedProcesses>),
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Worker {
    served: Option<u32>,
    requests: mpsc::SyncSender<Request>,
    /// What the first page remembers.
    pub(super) watched: Watched,
}

impl Worker {
    /// Starts the thread; it ends when this is dropped.
    pub(super) fn start(source: Source, options: Options) -> Self {
        let (requests, inbox) = mpsc::sync_channel(WAITING);
        let served = match &source {
            Source::Process(pid) => Some(*pid),
            // Perhaps that of a process that is gone.
            Source::Segment(path) => Some(crate::segment::reader::pid_from_path(path).unwrap_or(0)),
            Source::All => None,
        };
        // Without a thread every request is refused, which says more than a panic in whoever mounts the handlers.
        let _ = thread::Builder::new().name("poolscope-http".to_owned()).spawn(move || {
            let mut files = Files { source, options, open: HashMap::new() };
            while let Ok(request) = inbox.recv() {
                files.answer(request);
            }
        });
        Self { served, requests, watched: Watched::default() }
    }

    /// The process that is served, if it is only one.
    pub(super) fn served_pid(&self) -> Option<u32> {
        self.served
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.requests.try_send(request(answer)).map_err(|_| Refusal::Busy)?;
        answered.await.map_err(|_| Refusal::Busy)?
    }

    /// The profile of a process; of the only one if none is named.
    pub(super) async fn profile(&self, pid: Option<u32>) -> Result<Box<Reading>, Refusal> {
        self.ask(|answer| Request::Profile(pid, answer)).await
    }

    /// The same with what the kernel says of it.
    pub(super) async fn reading(&self, pid: Option<u32>) -> Result<Box<Reading>, Refusal> {
        self.ask(|answer| Request::Reading(pid, answer)).await
    }

    /// What a process can't reach any more, of which it looks for that now.
    pub(super) async fn leaks(&self, pid: Option<u32>) -> Result<Box<Profile>, Refusal> {
        self.ask(|answer| Request::Leaks(pid, answer)).await
    }

    /// All processes that are served, without names.
    pub(super) async fn snapshots(&self, pid: Option<u32>) -> Result<Vec<Snapshot>, Refusal> {
        self.ask(|answer| Request::Snapshots(pid, answer)).await
    }

    /// All processes that are served.
    pub(super) async fn entries(&self) -> Result<Vec<SegmentEntry>, Refusal> {
        self.ask(Request::Entries).await
    }

    /// The same as rows to choose from.
    pub(super) async fn listed(&self) -> Result<ListedProcesses, Refusal> {
        self.ask(Request::Listed).await
    }
}

/// What the thread has open.
struct Files {
    source: Source,
    options: Options,
    open: HashMap<PathBuf, Open>,
}

/// What is kept of a process.
struct Open {
    reader: SegmentReader,
    builder: ProfileBuilder,
    /// The processes that it started, and when to look for them again.
    children: Vec<Child>,
    on_pool: Vec<u32>,
    look_again: Option<Instant>,
}

impl Files {
    /// Whoever asked may be gone by now.
    fn answer(&mut self, request: Request) {
        match request {
            Request::Profile(pid, answer) => drop(answer.send(self.profile(pid).map(Box::new))),
            Request::Reading(pid, answer) => drop(answer.send(self.reading(pid).map(Box::new))),
            Request::Leaks(pid, answer) => drop(answer.send(self.leaks(pid).map(Box::new))),
            Request::Snapshots(pid, answer) => drop(answer.send(self.snapshots(pid))),
            Request::Entries(answer) => drop(answer.send(self.entries())),
            Request::Listed(answer) => drop(answer.send(self.listed())),
        }
    }

    /// A process may have replaced itself by `exec` since the last request, so it is looked for each time.
    fn entries(&self) -> Result<Vec<SegmentEntry>, Refusal> {
        match &self.source {
            Source::Process(pid) => Ok(vec![discovery::find(&pid.to_string())?]),
            Source::Segment(path) => Ok(vec![discovery::find(&path.display().to_string())?]),
            Source::All => {
                let mut entries = discovery::list()?.entries;
                entries.retain(|entry| entry.state == ProcessState::Running);
                Ok(entries)
            }
        }
    }

    fn entry(&self, pid: Option<u32>) -> Result<SegmentEntry, Refusal> {
        let mut entries = self.entries()?;
        match pid {
            None if entries.len() > 1 => {
                let pids: Vec<String> = entries.iter().map(|entry| entry.pid.to_string()).collect();
                Err(Refusal::Ambiguous(entries.len(), pids.join(", ")))
            }
            None => entries.pop().ok_or(Refusal::NoProcess),
            Some(pid) => match entries.iter().find(|entry| entry.pid == pid) {
                Some(entry) => Ok(entry.clone()),
                None => match (&self.source, entries.first()) {
                    (Source::Process(_) | Source::Segment(_), Some(served)) => {
                        Err(Refusal::NotServed { asked: pid, served: served.pid })
                    }
                    _ => Err(FindError::NoSuchProcess { pid }.into()),
                },
            },
        }
    }

    fn open(&mut self, entry: &SegmentEntry) -> Result<&mut Open, Refusal> {
        if !self.open.contains_key(&entry.path) {
            if self.open.len() >= KEPT_BUILDERS {
                self.open.clear();
            }
            let builder =
                ProfileBuilder::with_debug_dirs(&self.options.debug_dirs).with_naming(Arc::clone(&self.options.naming));
            let (reader, children, on_pool) = (SegmentReader::open(&entry.path)?, Vec::new(), Vec::new());
            self.open.insert(entry.path.clone(), Open { reader, builder, children, on_pool, look_again: None });
        }
        // It was put there a moment ago.
        self.open.get_mut(&entry.path).ok_or(Refusal::NoProcess)
    }

    fn snapshot(&mut self, entry: &SegmentEntry) -> Result<Snapshot, Refusal> {
        let snapshot = self.open(entry)?.reader.snapshot();
        if snapshot.is_err() {
            self.open.remove(&entry.path);
        }
        Ok(snapshot?)
    }

    fn profile(&mut self, pid: Option<u32>) -> Result<Reading, Refusal> {
        let entry = self.entry(pid)?;
        let snapshot = self.snapshot(&entry)?;
        let builder = &mut self.open(&entry)?.builder;
        let (mut profile, site_of_stacks) = builder.build_with_sites(&snapshot, |_| false);
        if snapshot.process.state == ProcessState::Running {
            profile.thread_names = process::thread_names(snapshot.process.pid);
        }
        profile.comments.extend(builder.take_warnings().iter().map(ToString::to_string));
        Ok(Reading { snapshot, profile, site_of_stacks, ..Reading::default() })
    }

    fn reading(&mut self, pid: Option<u32>) -> Result<Reading, Refusal> {
        let mut reading = self.profile(pid)?;
        let process = &reading.snapshot.process;
        if process.state != ProcessState::Running {
            return Ok(reading);
        }
        let entry = self.entry(Some(process.pid))?;
        let open = self.open(&entry)?;
        let now = Instant::now();
        if open.look_again.is_none_or(|at| at <= now) {
            open.look_again = Some(now + LOOK_EVERY);
            open.children = family::children(process.pid);
            let mut largest: Vec<&Child> = open.children.iter().collect();
            largest.sort_by_key(|child| std::cmp::Reverse(child.rss));
            let pids = largest.into_iter().take(LOOKED_AT).map(|child| child.pid);
            open.on_pool = pids.filter(|&pid| discovery::newest_of(pid).is_some()).collect();
        }
        (reading.children, reading.on_pool) = (open.children.clone(), open.on_pool.clone());
        Ok(reading)
    }

    fn leaks(&mut self, pid: Option<u32>) -> Result<Profile, Refusal> {
        let entry = self.entry(pid)?;
        ask::search(&entry.path, Wish { limit: LEAKS_LIMIT, ..Wish::default() })?;
        let mut snapshot = self.snapshot(&entry)?;
        let search = snapshot.search.unwrap_or_default();
        if let Some(why) = search.failed {
            return Err(Refusal::NotSearched { pid: entry.pid, why: why.to_owned() });
        }
        snapshot.live.retain(|block| block.verdict.is_leaked());
        unreachable::forget_other_stacks(&mut snapshot);
        let builder = &mut self.open(&entry)?.builder;
        let mut profile = LeakReport::leaked(&builder.build(&snapshot), &Suppressions::defaults());
        profile.sites.retain(|site| site.in_use.objects > 0.0);
        profile.comments.extend(builder.take_warnings().iter().map(ToString::to_string));
        profile.comments.push(format!("unreachable blocks; {}", search.looked_at()));
        Ok(profile)
    }

    /// Whose segment can't be read just now has a row without figures.
    fn listed(&mut self) -> Result<ListedProcesses, Refusal> {
        let rows =
            self.entries()?.into_iter().map(|entry| ListedProcess::new(&entry, self.snapshot(&entry).ok().as_ref()));
        let rows = rows.collect();
        Ok(ListedProcesses::new(self.source == Source::All, rows))
    }

    fn snapshots(&mut self, pid: Option<u32>) -> Result<Vec<Snapshot>, Refusal> {
        let entries = if pid.is_some() { vec![self.entry(pid)?] } else { self.entries()? };
        let several = entries.len() > 1;
        let mut snapshots = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.snapshot(&entry) {
                Ok(snapshot) => snapshots.push(snapshot),
                // One of many that ended just now takes nothing from the others.
                Err(_) if several => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(snapshots)
    }
}
