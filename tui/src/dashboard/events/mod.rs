//! Everything that can happen to the dashboard, and the threads that say so.

pub(crate) mod feed;
pub(crate) mod named_sites;
pub(crate) mod output;
pub(crate) mod own;
pub(crate) mod processes;
pub(crate) mod tensors;
pub(crate) mod watched;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use poolscope_profiler::Profile;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;

use crate::dashboard::input::moment::Moment;
use crate::dashboard::model::Model;
use crate::words::Ended;
use output::Tail;
use own::OwnCost;
use processes::Processes;
use tensors::Tensors;

/// Whether the program has looked for leaks; why not, for the user.
pub(crate) type Searched = Result<(), String>;

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// Keys, mouse, size, pasted text.
    Input(crossterm::event::Event),
    /// The terminal is gone.
    InputLost,
    /// The segment was read.
    Reading(Arc<Model>),
    /// What the dashboard itself costs.
    Own(OwnCost),
    /// It could not be read; why, for the user.
    Trouble(String),
    /// Which moment of a recording is shown.
    Moment(Moment),
    /// Which processes there are, for as long as that is asked for.
    Processes(Processes),
    /// What the owner says of the tensors that the watched process serves or holds; none if it does neither.
    Tensors(Option<Arc<Tensors>>),
    /// The program wrote something.
    Output(Tail),
    /// The program that `run` started has ended.
    Ended(Ended),
    /// A signal came.
    Signal(i32),
    /// The program has looked for leaks: what it found is in its segment. Or why it did not.
    Searched(Searched),
    /// A profile was read from a file, with its name; or why not.
    Base(Result<(String, Arc<Profile>), String>),
}

/// Reads keys and the like until the receiver or the terminal is gone.
pub(crate) fn watch_input(to: Sender<Event>) -> io::Result<()> {
    thread::Builder::new().name("input".into()).spawn(move || {
        loop {
            let event = match crossterm::event::read() {
                Ok(event) => Event::Input(event),
                Err(_) => Event::InputLost,
            };
            let lost = matches!(event, Event::InputLost);
            if to.send(event).is_err() || lost {
                return;
            }
        }
    })?;
    Ok(())
}

/// Takes the signals that would otherwise end or stop the process with the terminal in disorder.
pub(crate) fn watch_signals(to: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGTSTP])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if to.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
