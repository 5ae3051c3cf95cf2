//! The loop: takes what happened, changes the state, draws when something changed, at most sixty times a second.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGKILL, SIGTERM, SIGTSTP};

use super::dispatch::{self, Effect};
use super::mouse::{self, Moused};
use super::screen::{Came, Events, Inbox, Screen};
use super::terminal::Terminal;
use crate::dashboard::events::feed::{self, Order};
use crate::dashboard::events::watched::Watched;
use crate::dashboard::events::{self, Event, output};
use crate::dashboard::frame;
use crate::dashboard::panes::{FLAME, VIEWS};
use crate::dashboard::state::{Overlay, State};
use crate::dashboard::theme::Theme;
use crate::launch::child::Program;
use crate::remote::Server;
use crate::target;

/// Between two frames.
const FRAME: Duration = Duration::from_millis(16);

/// What a dashboard is started with.
pub(crate) struct Setup {
    /// What is watched.
    pub(crate) watched: Watched,
    /// The server that is asked, if it is one.
    pub(crate) server: Option<Server>,
    /// What it is called before the first reading.
    pub(crate) label: String,
    /// All processes are shown together, to choose from.
    pub(crate) everybody: bool,
    /// Only processes of this name are to choose from, if nothing is watched yet.
    pub(crate) wanted_name: Option<String>,
    /// Colours.
    pub(crate) theme: Theme,
    /// The mouse is taken.
    pub(crate) mouse: bool,
    /// Between readings.
    pub(crate) interval: Duration,
    /// What the views are filtered by.
    pub(crate) filter: Option<String>,
    /// The program that `run` started.
    pub(crate) program: Option<Started>,
}

/// A program that `run` started.
pub(crate) struct Started {
    pub(crate) program: Arc<Program>,
    /// The file with its output.
    pub(crate) output: PathBuf,
    /// The file that it copies its segment to as it ends, if it does.
    pub(crate) end: Option<PathBuf>,
}

/// How the dashboard was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// By the user.
    Left,
    /// By the user, and the program shall run on.
    Detached,
    /// By a signal.
    Signal(i32),
}

/// Runs a dashboard on this terminal.
pub(crate) fn run(setup: Setup) -> io::Result<Outcome> {
    let (to, inbox) = mpsc::channel();
    // Signals first: one that comes while the terminal is being taken must not be lost.
    events::watch_signals(to.clone())?;
    let mut screen = Terminal::take(setup.mouse)?;
    events::watch_input(to.clone())?;
    let chooses = matches!(setup.watched, Watched::Nothing);
    let orders = feed::start(setup.watched, setup.interval, to.clone())?;
    let mut state = State::new(setup.label, setup.theme, screen.size(), setup.interval);
    (state.mouse, state.server, state.with_sites) = (setup.mouse, setup.server, setup.everybody);
    state.opens_at_peak = true;
    setup.filter.iter().for_each(|filter| state.filter_by(filter));
    if chooses {
        (state.overlay, state.watches, state.wanted_name) = (Overlay::Choose, false, setup.wanted_name);
        let _ = orders.send(Order::List(Some(state.listed())));
    }
    let (mut program, mut end) = (None, None);
    if let Some(started) = setup.program {
        state.owns_program = true;
        output::watch(started.output, to.clone())?;
        let ends = to.clone();
        started.program.at_end(move |ended| drop(ends.send(Event::Ended(ended))));
        (program, end) = (Some(started.program), started.end);
    }
    App { state, orders, program, end, leave_at_end: false, to, with_trees: false }
        .run(&mut screen, &mut Inbox::new(inbox))
}

/// Runs a dashboard that nobody looks at, until there are no more events. `ended` is called while it still has all that
/// it has read.
pub(crate) fn run_on(
    state: State,
    (orders, to): (Sender<Order>, Sender<Event>),
    screen: &mut impl Screen,
    events: &mut impl Events,
    ended: impl FnOnce(),
) -> io::Result<()> {
    let mut app = App { state, orders, program: None, end: None, leave_at_end: false, to, with_trees: false };
    app.turn(screen, events)?;
    ended();
    Ok(())
}

struct App {
    state: State,
    orders: Sender<Order>,
    program: Option<Arc<Program>>,
    /// The file that it copies its segment to as it ends.
    end: Option<PathBuf>,
    /// The user wants to leave as soon as the program has ended.
    leave_at_end: bool,
    /// Where events go.
    to: Sender<Event>,
    /// The feed was told to make call trees.
    with_trees: bool,
}

/// What handling an event leads to.
enum Next {
    /// Nothing changed.
    Same,
    /// Something changed.
    Draw,
    /// The terminal is in disorder: draw every cell.
    DrawAll,
    /// The process shall stop like a job of the shell.
    Suspend,
    /// Copy a text by the terminal.
    Copy(String),
    /// Take the mouse, or give it back.
    Mouse(bool),
    /// Leave.
    Leave(Outcome),
}

impl App {
    fn run(mut self, screen: &mut impl Screen, events: &mut impl Events) -> io::Result<Outcome> {
        self.turn(screen, events)
    }

    fn turn(&mut self, screen: &mut impl Screen, events: &mut impl Events) -> io::Result<Outcome> {
        let mut changed = true;
        let mut next_frame = events.now();
        loop {
            let mut wait = if changed { next_frame.saturating_sub(events.now()) } else { Duration::from_secs(3600) };
            loop {
                let event = match events.next(wait) {
                    Came::Event(event) => event,
                    Came::Nothing => break,
                    Came::Closed => return Ok(Outcome::Left),
                };
                match self.handle(event) {
                    Next::Same => {}
                    Next::Draw => changed = true,
                    Next::DrawAll => {
                        screen.forget()?;
                        changed = true;
                    }
                    Next::Suspend => {
                        screen.suspend()?;
                        changed = true;
                    }
                    Next::Copy(text) => {
                        screen.copy(&text)?;
                        changed = true;
                    }
                    Next::Mouse(taken) => {
                        screen.take_mouse(taken)?;
                        changed = true;
                    }
                    Next::Leave(outcome) => return Ok(outcome),
                }
                self.ask_for_trees();
                // What is there already is taken before a frame is drawn.
                wait = Duration::ZERO;
            }
            if changed && events.now() >= next_frame {
                if screen.is_resized()? {
                    screen.forget()?;
                }
                self.state.size = screen.size();
                screen.draw(&mut |buf| frame::draw(&self.state, buf))?;
                #[cfg(feature = "test-panic")]
                if std::env::var_os("POOLSCOPE_TEST_PANIC").is_some() {
                    panic!("asked for by POOLSCOPE_TEST_PANIC");
                }
                changed = false;
                next_frame = events.now() + FRAME;
            }
        }
    }

    fn handle(&mut self, event: Event) -> Next {
        let state = &mut self.state;
        match event {
            Event::Input(input) => return self.input(input),
            Event::InputLost => return Next::Leave(Outcome::Signal(SIGHUP)),
            Event::Reading(model) => state.take_reading(model),
            Event::Own(cost) => state.own = Some(cost),
            Event::Trouble(why) => {
                if state.trouble.as_ref() == Some(&why) {
                    return Next::Same;
                }
                state.trouble = Some(why);
            }
            Event::Searched(searched) => {
                state.take_search(&searched);
                // What it found is to be seen at once.
                let _ = self.orders.send(Order::Interval(state.interval));
            }
            Event::Base(read) => dispatch::compare_with(state, read),
            Event::Moment(moment) => state.moment = Some(moment),
            Event::Processes(processes) => state.take_processes(processes),
            Event::Output(tail) => state.take_output(&tail),
            Event::Tensors(tensors) => state.take_tensors(tensors),
            Event::Ended(ended) => {
                state.end(ended);
                // The last reading is to be seen at once.
                let order = self.end.take().map_or(Order::Interval(state.interval), Order::End);
                let _ = self.orders.send(order);
                if self.leave_at_end {
                    return Next::Leave(Outcome::Left);
                }
                if matches!(state.overlay, Overlay::Confirm | Overlay::Ending) {
                    state.overlay = Overlay::None;
                }
            }
            Event::Signal(SIGTSTP) => return Next::Suspend,
            Event::Signal(signal) => return Next::Leave(Outcome::Signal(signal)),
        }
        Next::Draw
    }

    fn input(&mut self, input: crossterm::event::Event) -> Next {
        use crossterm::event::Event as Input;
        let effect = match input {
            Input::Key(key) => dispatch::key(&mut self.state, &key),
            Input::Mouse(event) => {
                return match mouse::mouse(&mut self.state, &event) {
                    Moused::Nothing => Next::Same,
                    Moused::Changed => Next::Draw,
                    Moused::Effect(effect) => self.effect(effect),
                };
            }
            Input::Paste(text) => {
                dispatch::paste(&mut self.state, &text);
                None
            }
            Input::Resize(..) => return Next::Draw,
            Input::FocusGained | Input::FocusLost => return Next::Same,
        };
        effect.map_or(Next::Draw, |effect| self.effect(effect))
    }

    fn effect(&mut self, effect: Effect) -> Next {
        match effect {
            Effect::Quit => return Next::Leave(Outcome::Left),
            Effect::Detach => return Next::Leave(Outcome::Detached),
            Effect::Suspend => return Next::Suspend,
            Effect::Redraw => return Next::DrawAll,
            Effect::Copy(text) => return Next::Copy(text),
            Effect::Mouse(taken) => return Next::Mouse(taken),
            Effect::Base(path) => self.read_base(path),
            Effect::Seek(seek) => {
                let _ = self.orders.send(Order::Seek(seek));
            }
            Effect::ByCaller(function) => {
                let _ = self.orders.send(Order::ByCaller(function));
            }
            Effect::Search { copy } => {
                let _ = self.orders.send(Order::Search { copy });
            }
            Effect::Interval => {
                let _ = self.orders.send(Order::Interval(self.state.interval));
            }
            Effect::EndProgram => self.end(SIGTERM),
            Effect::KillProgram => self.end(SIGKILL),
            Effect::Stay => self.leave_at_end = false,
            Effect::List(on) => self.list(on),
            Effect::Watch(watched) => {
                self.list(false);
                let _ = self.orders.send(Order::Watch(watched));
            }
        }
        if self.leave_at_end && self.state.ended.is_some() { Next::Leave(Outcome::Left) } else { Next::Draw }
    }

    /// Reads a profile away from the thread that draws.
    fn read_base(&mut self, path: PathBuf) {
        let to = self.to.clone();
        let name = path.display().to_string();
        let read = move || {
            let read = target::read_profile(&path).map(|profile| (name, Arc::new(profile)));
            let _ = to.send(Event::Base(read));
        };
        if let Err(error) = std::thread::Builder::new().name("base".into()).spawn(read) {
            self.state.note = Some(format!("no thread reads the file: {error}"));
        }
    }

    /// Has the feed make call trees while somebody looks at them.
    fn ask_for_trees(&mut self) {
        let wanted = VIEWS[self.state.view].name == FLAME;
        if std::mem::replace(&mut self.with_trees, wanted) != wanted {
            let _ = self.orders.send(Order::Trees(wanted));
        }
    }

    fn list(&mut self, on: bool) {
        let _ = self.orders.send(Order::List(on.then(|| self.state.listed())));
    }

    fn end(&mut self, signal: i32) {
        if let Some(program) = &self.program {
            program.signal(signal);
            self.leave_at_end = true;
            self.state.overlay = Overlay::Ending;
        }
    }
}

#[cfg(test)]
mod tests;
