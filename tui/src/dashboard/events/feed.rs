//! Reads the segment again and again, away from the thread that draws: reading, symbols and the call tree take as
//! long as they take.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use poolscope_profiler::model::growth::Tracker;
use poolscope_profiler::model::naming::Naming;
use poolscope_profiler::model::snapshot::{ProcessInfo, ProcessState};
use poolscope_profiler::process::ending::KernelLog;
use poolscope_profiler::process::family::{self, Child};
use poolscope_profiler::process::thread_names;
use poolscope_profiler::reading::Reading;
use poolscope_profiler::recording::replay::film::Film;
use poolscope_profiler::segment::ask::{self, Wish};
use poolscope_profiler::{Profile, SegmentReader, Snapshot};

use super::Event;
use super::own::{self, Meter};
use super::processes::{Listed, Processes};
use super::tensors::Watch;
use super::watched::Watched;
use crate::dashboard::input::moment::{Moment, Seek};
use crate::dashboard::model::{Kin, Model, Modeller, Observed, ThreadNames};
use crate::{symbols, target};

/// A recording is played in so long at most.
const PLAYED_IN: Duration = Duration::from_secs(30);

/// Reads one segment after another of the same process.
pub(crate) struct Source {
    watched: Watched,
    open: Option<(PathBuf, SegmentReader)>,
    builder: poolscope_profiler::ProfileBuilder,
    modeller: Modeller,
    tracker: Tracker,
    /// The processes that it started, and when to count them again.
    children: Vec<Child>,
    family: Vec<Kin>,
    count_children: Option<Instant>,
    /// The names of its threads, and when to read them again.
    names: ThreadNames,
    name_threads: Option<Instant>,
    /// When to look for another segment of the process again.
    look_again: Option<Instant>,
    /// By which functions call sites are not to be named.
    naming: Arc<Naming>,
    film: Option<Film>,
    /// The moment of it that is wanted, and the one that was read.
    moment: Moment,
    shown_us: Option<u64>,
}

/// What a reading gave.
pub(crate) enum Read {
    /// A model.
    Model(Box<Model>),
    /// The process has no segment yet.
    NotYet,
    /// The same as before.
    Same,
}

impl Source {
    /// A source of readings.
    pub(crate) fn new(watched: Watched) -> Source {
        Source {
            watched,
            open: None,
            builder: crate::symbols::profile_builder(),
            modeller: Modeller::default(),
            tracker: Tracker::default(),
            children: Vec::new(),
            family: Vec::new(),
            count_children: None,
            names: ThreadNames::default(),
            name_threads: None,
            look_again: None,
            naming: symbols::naming(),
            film: None,
            moment: Moment::default(),
            shown_us: None,
        }
    }

    /// Names call sites by the callers of a function, too; without one, as at the start.
    fn name_by_caller(&mut self, function: Option<&str>) {
        let mut naming = if function.is_some() { Naming::clone(&self.naming) } else { (*symbols::naming()).clone() };
        // A name that is no rule changes nothing.
        let _ = function.map(|function| naming.add(function));
        self.naming = Arc::new(naming);
        self.builder.set_naming(Arc::clone(&self.naming));
        self.shown_us = None;
    }

    /// Reads the copy of its segment that the program wrote as it ended: the last reading is older, if there was one.
    fn end_with(&mut self, copy: PathBuf) {
        let Watched::Started(pid) = self.watched else { return };
        // What it had started may have written there, too.
        if let Ok(mut reader) = opened(&copy)
            && reader.process().pid == pid
        {
            self.open = Some((copy, reader));
        }
    }

    /// Goes to another moment of a recording; the first reading opens it.
    pub(crate) fn seek(&mut self, seek: Seek) {
        self.moment = seek.from(self.moment);
    }

    /// Goes on by itself, if it does.
    fn play(&mut self, passed: Duration) {
        let Moment { at_us, end_us, plays } = self.moment;
        if plays {
            let share = passed.as_micros() as f64 / PLAYED_IN.as_micros() as f64;
            let step = (passed.as_micros() as u64).max((share * end_us as f64) as u64).max(1);
            let at_us = at_us.saturating_add(step).min(end_us);
            self.moment = Moment { at_us, plays: at_us < end_us, ..self.moment };
        }
    }

    /// The moment of a recording that is wanted; none of what is no recording.
    fn moment(&self) -> Option<Moment> {
        self.film.as_ref().map(|_| self.moment)
    }

    fn read_film(&mut self, path: &Path) -> Result<Read, String> {
        if self.film.is_none() {
            let film = Film::open(path).map_err(|e| e.to_string())?;
            self.moment = Moment { at_us: film.end_us(), end_us: film.end_us(), plays: false };
            self.film = Some(film);
        }
        let at_us = self.moment.at_us;
        let Some(film) = self.film.as_mut().filter(|_| self.shown_us != Some(at_us)) else { return Ok(Read::Same) };
        let frame = film.at(at_us).map_err(|e| e.to_string())?;
        // Nothing grows backwards.
        if self.shown_us.is_some_and(|shown| shown > at_us) {
            let with_tree = self.modeller.with_tree;
            self.modeller = Modeller::default();
            self.modeller.with_tree = with_tree;
            self.tracker = Tracker::default();
        }
        self.shown_us = Some(at_us);
        self.names = frame.thread_names.into_iter().collect();
        let (profile, site_of_stacks) = self.builder.build_with_sites(&frame.snapshot, |_| false);
        Ok(Read::Model(Box::new(self.model(frame.snapshot, profile, &site_of_stacks))))
    }

    fn read_profile(&mut self, path: &Path) -> Result<Read, String> {
        if self.shown_us.replace(0).is_some() {
            return Ok(Read::Same);
        }
        let mut profile = target::read_profile(path)?;
        profile.naming = Arc::clone(&self.naming);
        let name = path.display().to_string();
        let state = ProcessState::Exited;
        let process = ProcessInfo { exe: name.clone(), args: vec![name], state, ..ProcessInfo::default() };
        let exact = profile.exact;
        let snapshot = Snapshot { process, exact, period_bytes: profile.period_bytes, ..Snapshot::default() };
        Ok(Read::Model(Box::new(self.model(snapshot, profile, &[]))))
    }

    /// Its process was started, and has a segment or will have one.
    fn is_started(&self) -> bool {
        !matches!(self.watched, Watched::Named(_) | Watched::Nothing)
    }

    /// A segment of this machine is read.
    fn is_of_this_machine(&self) -> bool {
        matches!(self.watched, Watched::Segment(_) | Watched::Started(_) | Watched::Named(_))
    }

    /// A server is asked, which may be away for a while.
    fn is_remote(&self) -> bool {
        matches!(self.watched, Watched::Server(_))
    }

    /// Reads once.
    pub(crate) fn read(&mut self) -> Result<Read, String> {
        match &self.watched {
            Watched::Server(server) => {
                let reading = server.read()?;
                return Ok(Read::Model(Box::new(self.model_of(reading))));
            }
            Watched::Recording(path) => return self.read_film(&path.clone()),
            Watched::Profile(path) => return self.read_profile(&path.clone()),
            _ => {}
        }
        if self.open.is_none() {
            let path = match &self.watched {
                Watched::Segment(path) => path.clone(),
                Watched::Started(pid) => match target::newest_segment(*pid) {
                    Some(path) => path,
                    None => return Ok(Read::NotYet),
                },
                Watched::Named(name) => match target::named::newest(name) {
                    Some(entry) => entry.path,
                    None => return Ok(Read::NotYet),
                },
                _ => return Ok(Read::NotYet),
            };
            self.open = Some((path.clone(), opened(&path)?));
        }
        let Some((path, reader)) = &mut self.open else { return Ok(Read::NotYet) };
        let snapshot = reader.snapshot().map_err(|e| e.to_string())?;
        let now = Instant::now();
        if self.look_again.is_none_or(|at| at <= now) {
            self.look_again = Some(now + LOOK_EVERY);
            // A program that another one replaced by exec has a segment of its own. The old one's end shows later: its
            // process lives.
            let newer = match snapshot.process.state {
                ProcessState::Running => target::replaced_by(snapshot.process.pid, path),
                _ => target::newest_segment(snapshot.process.pid).filter(|newer| newer != path).or_else(|| {
                    let Watched::Named(name) = &self.watched else { return None };
                    target::named::newest(name).map(|entry| entry.path).filter(|newer| newer != path)
                }),
            };
            if let Some(newer) = newer
                && let Ok(reader) = opened(&newer)
            {
                self.open = Some((newer, reader));
                self.name_threads = None;
                self.names.clear();
                return self.read();
            }
        }
        if self.name_threads.is_none_or(|at| at <= now) {
            self.name_threads = Some(now + NAME_EVERY);
            if snapshot.process.state == ProcessState::Running {
                self.names.extend(thread_names(snapshot.process.pid));
            }
            // Those that have ended keep the names that they had.
            let known: HashSet<u32> = snapshot.threads.iter().map(|thread| thread.tid).collect();
            self.names.retain(|tid, _| known.contains(tid));
        }
        let (profile, site_of_stacks) = self.builder.build_with_sites(&snapshot, |_| false);
        // Who is gone has no processes any more.
        let running = snapshot.process.state == ProcessState::Running;
        if !running || self.count_children.is_none_or(|at| at <= now) {
            self.count_children = Some(now + COUNT_EVERY);
            self.children = if running { family::children(snapshot.process.pid) } else { Vec::new() };
            self.family = family_of(&self.children, |pid| target::newest_segment(pid).is_some());
        }
        Ok(Read::Model(Box::new(self.model(snapshot, profile, &site_of_stacks))))
    }

    /// Has the program look for leaks, on a thread of its own: what is read meanwhile is shown.
    fn search(&self, copy: bool, to: &Sender<Event>) {
        let (watched, path) = (self.watched.clone(), self.open.as_ref().map(|(path, _)| path.clone()));
        let answer = to.clone();
        let search = move || {
            let searched = match (&watched, &path) {
                (Watched::Server(server), _) => server.search(),
                (Watched::Recording(_), _) => Err("a recording has no program that could look".to_owned()),
                (_, Some(path)) => {
                    ask::search(path, Wish { snapshot: copy, ..Wish::default() }).map_err(|why| why.to_string())
                }
                (_, None) => Err("it has no segment yet".to_owned()),
            };
            let _ = answer.send(Event::Searched(searched));
        };
        if let Err(error) = thread::Builder::new().name("search".into()).spawn(search) {
            let _ = to.send(Event::Searched(Err(format!("no thread waits for it: {error}"))));
        }
    }

    /// The model of what a server sent.
    fn model_of(&mut self, reading: Reading) -> Model {
        let Reading { snapshot, mut profile, site_of_stacks, children, on_pool } = reading;
        self.names = profile.thread_names.iter().map(|(&tid, name)| (tid, name.clone())).collect();
        self.family = family_of(&children, |pid| on_pool.contains(&pid));
        self.children = children;
        // Who looks says how call sites are named.
        profile.naming = Arc::clone(&self.naming);
        self.model(snapshot, profile, &site_of_stacks)
    }

    fn model(&mut self, snapshot: Snapshot, profile: Profile, site_of_stacks: &[Option<usize>]) -> Model {
        self.tracker.update(&snapshot);
        let growths = self.tracker.of_sites(&snapshot, site_of_stacks, profile.sites.len());
        let (watched_ns, devices) = (self.tracker.watched_ns(), self.tracker.of_devices());
        let (children, family) = (&self.children[..], &self.family[..]);
        let state = snapshot.process.state;
        let ending = match (state, &mut self.open) {
            (ProcessState::Killed, Some((_, reader))) => reader.ending(&KernelLog::read()),
            _ => None,
        };
        let successor = self.open.as_ref().and_then(|(_, reader)| reader.successor(state));
        let (growths, devices) = (&growths[..], &devices[..]);
        let observed = Observed { growths, devices, watched_ns, children, family, site_of_stacks, ending, successor };
        self.modeller.next(snapshot, profile, &observed, &self.names)
    }
}

/// A reader that looks at the process's pages no more often than a person can follow.
fn opened(path: &Path) -> Result<SegmentReader, String> {
    let mut reader = SegmentReader::open(path).map_err(|e| e.to_string())?;
    reader.ask_for_memory_every(MEMORY_EVERY);
    Ok(reader)
}

/// So many of its processes are looked at.
const FAMILY: usize = 8;

/// The largest of the processes that it started, and which of them run on the pool.
fn family_of(children: &[Child], is_on_pool: impl Fn(u32) -> bool) -> Vec<Kin> {
    let mut largest: Vec<&Child> = children.iter().collect();
    largest.sort_by_key(|child| (std::cmp::Reverse(child.rss), child.pid));
    let kin = |child: &Child| Kin { child: child.clone(), on_pool: is_on_pool(child.pid) };
    largest.into_iter().take(FAMILY).map(kin).collect()
}

/// What the reading thread is told.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Another time between readings, and one reading now.
    Interval(Duration),
    /// Something else is watched from now on.
    Watch(Watched),
    /// Make call trees, or no longer: nobody looks at them.
    Trees(bool),
    /// Have the program look for leaks, itself or by a copy, and say when it has.
    Search { copy: bool },
    /// Show another moment of the recording.
    Seek(Seek),
    /// Name call sites by the callers of this function, too; or as at the start.
    ByCaller(Option<String>),
    /// The program has ended, and wrote its segment here.
    End(PathBuf),
    /// Say which processes there are, or no longer.
    List(Option<Listed>),
}

/// Starts the reading thread; it ends when the receiver of its events is gone.
pub(crate) fn start(watched: Watched, interval: Duration, to: Sender<Event>) -> io::Result<Sender<Order>> {
    own::spare_memory();
    let (orders, inbox) = mpsc::channel();
    let tensors = Watch::start(to.clone())?;
    thread::Builder::new().name("feed".into()).spawn(move || feed(watched, interval, &to, &inbox, &tensors))?;
    Ok(orders)
}

/// Between two looks for another segment of the same process: they read what it has mapped.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Between two looks at which of its pages have memory.
const MEMORY_EVERY: Duration = Duration::from_millis(900);

/// Between two looks at the names of its threads.
const NAME_EVERY: Duration = Duration::from_millis(900);

/// Between two looks for processes that it started: they read all of `/proc`.
const COUNT_EVERY: Duration = Duration::from_secs(2);

/// Without a segment for so long, a started program is not on the pool.
const PATIENCE: Duration = Duration::from_secs(3);

fn feed(watched: Watched, mut interval: Duration, to: &Sender<Event>, inbox: &Receiver<Order>, tensors: &Watch) {
    let mut source = Source::new(watched);
    let mut meter = Meter::new();
    let mut begin = Instant::now();
    let mut readings = 0u32;
    let mut over = None;
    let mut listed: Option<Listed> = None;
    let mut told: Option<Moment> = None;
    loop {
        if let Some(listed) = &listed
            && to.send(Event::Processes(Processes::read(listed))).is_err()
        {
            return;
        }
        let event = match source.read() {
            Ok(Read::Model(model)) => {
                readings += 1;
                if source.is_of_this_machine() {
                    tensors.follow(&model.snapshot.process);
                }
                let key = (model.snapshot.process.state != ProcessState::Running)
                    .then_some(model.snapshot.process.start_monotonic_ns);
                // A dead process's segment doesn't change: one reading of it is enough.
                let seen = key.is_some() && over == key;
                over = key;
                (!seen).then(|| Event::Reading(Arc::from(model)))
            }
            Ok(Read::NotYet) => (begin.elapsed() > PATIENCE && source.is_started()).then(|| {
                Event::Trouble(
                    "no segment appeared: the program is static or setuid, unset LD_PRELOAD, or /dev/shm is full"
                        .to_owned(),
                )
            }),
            Ok(Read::Same) => None,
            Err(why) => Some(Event::Trouble(why)),
        };
        let moment = source.moment();
        if moment != told
            && let Some(moment) = moment
        {
            told = Some(moment);
            if to.send(Event::Moment(moment)).is_err() {
                return;
            }
        }
        if let Some(event) = event
            && to.send(event).is_err()
        {
            return;
        }
        if let Some(cost) = meter.look()
            && to.send(Event::Own(cost)).is_err()
        {
            return;
        }
        // A program that has only just started is looked at more often, so that a short one is seen at all.
        let wait = match readings {
            // Nobody waits for what is not chosen yet.
            0 if !source.is_started() || source.is_remote() => Duration::from_millis(500),
            0 => Duration::from_millis(20),
            1..4 => Duration::from_millis(200),
            _ => interval,
        };
        let mut order = inbox.recv_timeout(wait.min(interval));
        if order.is_err() {
            source.play(wait.min(interval));
        }
        // Of several moments that are sought only the last is read.
        while let Ok(next) = order {
            match next {
                Order::Interval(new) => interval = new,
                Order::Watch(watched) => {
                    let with_tree = source.modeller.with_tree;
                    source = Source::new(watched);
                    source.modeller.with_tree = with_tree;
                    (begin, readings, over) = (Instant::now(), 0, None);
                }
                Order::Trees(wanted) => source.modeller.with_tree = wanted,
                Order::Search { copy } => source.search(copy, to),
                Order::List(new) => listed = new,
                Order::Seek(seek) => source.seek(seek),
                Order::End(copy) => {
                    source.end_with(copy);
                    over = None;
                }
                Order::ByCaller(function) => {
                    source.name_by_caller(function.as_deref());
                    over = None;
                }
            }
            order = inbox.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            });
        }
        if order.is_err_and(|error| error == RecvTimeoutError::Disconnected) {
            return;
        }
    }
}
