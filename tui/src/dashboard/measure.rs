//! What the dashboard costs: it runs as it does for a person, with its threads and its loop, on a screen that nobody
//! sees, and is given keys.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Sink};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use poolscope_profiler::model::snapshot::ProcessState;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use serde::Serialize;

use super::control::run;
use super::control::screen::{Came, Events, Screen};
use super::events::feed;
use super::events::watched::Watched;
use super::events::{Event, own};
use super::panes::{Source, VIEWS};
use super::state::State;
use super::theme::{Theme, ThemeChoice};

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Times {
    /// How many there were.
    pub(crate) count: usize,
    pub(crate) median_ms: f64,
    /// Nine of ten took no longer.
    pub(crate) ninth_ms: f64,
    pub(crate) most_ms: f64,
}

impl Times {
    fn of(times: &[Duration]) -> Times {
        let mut sorted = times.to_vec();
        sorted.sort();
        let at = |share: f64| {
            let place = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
            sorted.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
        };
        Times { count: sorted.len(), median_ms: at(0.5), ninth_ms: at(0.9), most_ms: at(1.0) }
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cost {
    pub(crate) version: u32,
    /// Call sites at the end.
    pub(crate) sites: usize,
    /// Sampled blocks at the end.
    pub(crate) blocks: usize,
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    pub(crate) interval_seconds: f64,
    /// Readings while nobody pressed a key.
    pub(crate) readings: usize,
    /// Share of a core meanwhile.
    pub(crate) cpu: f64,
    /// Processor time of a reading with its frame: as many as there should be do not come on a busy machine.
    pub(crate) cpu_ms_per_reading: f64,
    /// Resident bytes after that.
    pub(crate) rss_bytes: u64,
    /// Building a frame, by view.
    pub(crate) frames: BTreeMap<&'static str, Times>,
    /// From a key to the end of the frame that shows it, by view.
    pub(crate) keys: BTreeMap<&'static str, Times>,
}

/// What happens on the screen and at the keys.
#[derive(Default)]
struct Log {
    /// The view that is shown.
    view: Cell<&'static str>,
    /// When a key was pressed that no frame shows yet.
    pressed: Cell<Option<Instant>>,
    frames: RefCell<BTreeMap<&'static str, Vec<Duration>>>,
    keys: RefCell<BTreeMap<&'static str, Vec<Duration>>>,
    readings: Cell<usize>,
    sites: Cell<(usize, usize)>,
}

/// A screen whose output goes nowhere.
struct Canvas {
    backend: CrosstermBackend<BufWriter<Sink>>,
    shown: Buffer,
    log: Rc<Log>,
}

impl Screen for Canvas {
    fn size(&self) -> Size {
        self.shown.area.as_size()
    }

    fn is_resized(&self) -> io::Result<bool> {
        Ok(false)
    }

    fn draw(&mut self, draw: &mut dyn FnMut(&mut Buffer)) -> io::Result<()> {
        let begun = Instant::now();
        let mut next = Buffer::empty(self.shown.area);
        draw(&mut next);
        let (view, took) = (self.log.view.get(), begun.elapsed());
        self.log.frames.borrow_mut().entry(view).or_default().push(took);
        self.backend.draw(self.shown.diff(&next).into_iter())?;
        io::Write::flush(&mut self.backend)?;
        self.shown = next;
        if let Some(pressed) = self.log.pressed.take() {
            self.log.keys.borrow_mut().entry(view).or_default().push(pressed.elapsed());
        }
        Ok(())
    }

    fn forget(&mut self) -> io::Result<()> {
        self.shown.reset();
        Ok(())
    }

    fn copy(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn take_mouse(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the feed sends, and keys at their times.
struct Script {
    inbox: Receiver<Event>,
    start: Instant,
    keys: Vec<(&'static str, KeyEvent)>,
    pressed: usize,
    /// From the first reading on.
    time: Duration,
    begun: Option<Begun>,
    /// Why there is nothing to measure, or no more.
    failed: Option<String>,
    next_key: Instant,
    log: Rc<Log>,
}

/// Between two keys.
const KEY_EVERY: Duration = Duration::from_millis(60);

impl Events for Script {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn next(&mut self, wait: Duration) -> Came {
        let now = Instant::now();
        if self.failed.is_some() {
            return Came::Closed;
        }
        let Some(begun) = &self.begun else { return self.receive(wait) };
        let ends = begun.at + self.time;
        if now >= ends {
            return Came::Closed;
        }
        if now >= self.next_key && !self.keys.is_empty() && self.log.pressed.get().is_none() {
            let (view, key) = self.keys[self.pressed % self.keys.len()];
            self.pressed += 1;
            self.next_key = now + KEY_EVERY;
            self.log.view.set(view);
            self.log.pressed.set(Some(now));
            return Came::Event(Event::Input(crossterm::event::Event::Key(key)));
        }
        let until = if self.keys.is_empty() { ends } else { self.next_key.min(ends) };
        self.receive(wait.min(until.saturating_duration_since(now)))
    }
}

/// When the first reading came, the processor time until then, and how the process was.
struct Begun {
    at: Instant,
    cpu: Duration,
    state: ProcessState,
}

impl Script {
    fn receive(&mut self, wait: Duration) -> Came {
        match self.inbox.recv_timeout(wait) {
            Ok(event) => {
                if let Event::Trouble(why) = &event
                    && self.begun.is_none()
                {
                    self.failed = Some(why.clone());
                }
                if let Event::Reading(model) = &event {
                    let state = model.snapshot.process.state;
                    let begin = || Begun { at: Instant::now(), cpu: own::cpu_time(), state };
                    let begun = self.begun.get_or_insert_with(begin);
                    if begun.state != state {
                        self.failed = Some(ENDED.to_owned());
                    }
                    self.next_key = self.next_key.max(begun.at + KEY_EVERY);
                    self.log.readings.set(self.log.readings.get() + 1);
                    self.log.sites.set((model.sites.len(), model.snapshot.live.len()));
                }
                Came::Event(event)
            }
            Err(RecvTimeoutError::Timeout) => Came::Nothing,
            Err(RecvTimeoutError::Disconnected) => Came::Closed,
        }
    }
}

/// Of a process that has ended there is one reading.
const ENDED: &str = "it ended meanwhile: take one that lives for longer, or fewer --seconds";

fn plain(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

/// In each view: opens it, moves, orders, moves back, searches and leaves the search.
fn keys() -> Vec<(&'static str, KeyEvent)> {
    let views = VIEWS.iter().filter(|view| view.source == Source::Readings).enumerate();
    let of_view = views.flat_map(|(at, view)| {
        let number = char::from_digit(at as u32 + 1, 10).unwrap_or('1');
        let keys = [number, 'j', 'j', 'j', 's', 'k', '/', 'm', 'a', 'l'].map(KeyCode::Char);
        let leave = [KeyCode::Enter, KeyCode::Down, KeyCode::Esc, KeyCode::Esc];
        keys.into_iter().chain(leave).map(|code| (view.name, plain(code)))
    });
    of_view.collect()
}

/// Runs a dashboard for so long without keys, in one view, and then as long with keys.
pub(crate) fn measure(
    watched: &Watched,
    view: usize,
    size: Size,
    interval: Duration,
    time: Duration,
) -> io::Result<Cost> {
    let quiet = Rc::new(Log::default());
    quiet.view.set(VIEWS[view].name);
    let (cpu, rss) = run_for(watched, view, size, interval, time, Vec::new(), &quiet)?;
    let readings = quiet.readings.get().saturating_sub(1);
    let busy = Rc::new(Log::default());
    busy.view.set(VIEWS[view].name);
    run_for(watched, view, size, interval, time, keys(), &busy)?;
    let times = |log: &RefCell<BTreeMap<&'static str, Vec<Duration>>>| {
        log.borrow().iter().map(|(view, times)| (*view, Times::of(times))).collect()
    };
    let (sites, blocks) = busy.sites.get();
    Ok(Cost {
        version: 1,
        sites,
        blocks,
        columns: size.width,
        rows: size.height,
        interval_seconds: interval.as_secs_f64(),
        readings,
        cpu: cpu.as_secs_f64() / time.as_secs_f64(),
        cpu_ms_per_reading: cpu.as_secs_f64() * 1e3 / readings.max(1) as f64,
        rss_bytes: rss,
        frames: times(&busy.frames),
        keys: times(&busy.keys),
    })
}

/// Runs a dashboard for so long after its first reading; gives the processor time since then, and the memory at the
/// end.
fn run_for(
    watched: &Watched,
    view: usize,
    size: Size,
    interval: Duration,
    time: Duration,
    keys: Vec<(&'static str, KeyEvent)>,
    log: &Rc<Log>,
) -> io::Result<(Duration, u64)> {
    let (to, inbox) = mpsc::channel();
    let orders = feed::start(watched.clone(), interval, to.clone())?;
    let theme = Theme::choose(ThemeChoice::Dark, |_| None);
    let mut state = State::new(String::new(), theme, size, interval);
    state.open(view);
    let mut screen = Canvas {
        backend: CrosstermBackend::new(BufWriter::new(io::sink())),
        shown: Buffer::empty(Rect::new(0, 0, size.width, size.height)),
        log: Rc::clone(log),
    };
    let start = Instant::now();
    let log = Rc::clone(log);
    let mut script = Script { inbox, start, keys, pressed: 0, time, begun: None, failed: None, next_key: start, log };
    let mut rss = 0;
    run::run_on(state, (orders, to), &mut screen, &mut script, || rss = own::rss())?;
    if let Some(why) = script.failed {
        return Err(io::Error::other(why));
    }
    let cpu = script.begun.map_or(Duration::ZERO, |begun| own::cpu_time().saturating_sub(begun.cpu));
    Ok((cpu, rss))
}
