//! What the loop needs of the world: a screen to draw on, and a source of events with a clock of its own. Tests have
//! others than a user.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ratatui::buffer::Buffer;
use ratatui::layout::Size;

use crate::dashboard::events::Event;

/// What is drawn on.
pub(crate) trait Screen {
    /// Columns and rows of the next frame.
    fn size(&self) -> Size;

    /// Whether it has another size by now than the frames have.
    fn is_resized(&self) -> io::Result<bool>;

    /// Draws a frame; it is shown all at once.
    fn draw(&mut self, draw: &mut dyn FnMut(&mut Buffer)) -> io::Result<()>;

    /// Takes the size as it is now, and makes the next frame draw every cell.
    fn forget(&mut self) -> io::Result<()>;

    /// Puts a text on the clipboard of whoever looks at the screen.
    fn copy(&mut self, text: &str) -> io::Result<()>;

    /// Takes the mouse, or leaves it to the screen.
    fn take_mouse(&mut self, taken: bool) -> io::Result<()>;

    /// Gives the screen back, stops this process as Ctrl-Z does, and takes the screen again once it goes on.
    fn suspend(&mut self) -> io::Result<()>;
}

/// What came of waiting for an event.
#[derive(Debug)]
pub(crate) enum Came {
    /// An event.
    Event(Event),
    /// None, for as long as was waited.
    Nothing,
    /// There will be no more.
    Closed,
}

/// Where events come from.
pub(crate) trait Events {
    /// The time since some moment.
    fn now(&self) -> Duration;

    /// Waits for the next event, at most for so long.
    fn next(&mut self, wait: Duration) -> Came;
}

/// The events that threads send.
pub(crate) struct Inbox {
    events: Receiver<Event>,
    start: Instant,
}

impl Inbox {
    /// What comes out of a channel.
    pub(crate) fn new(events: Receiver<Event>) -> Inbox {
        Inbox { events, start: Instant::now() }
    }
}

impl Events for Inbox {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn next(&mut self, wait: Duration) -> Came {
        match self.events.recv_timeout(wait) {
            Ok(event) => Came::Event(event),
            Err(RecvTimeoutError::Timeout) => Came::Nothing,
            Err(RecvTimeoutError::Disconnected) => Came::Closed,
        }
    }
}
