//! What the program wrote: the end of the file that holds it.

mod draw;

use crossterm::event::MouseButton;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::{Keyed, Pane, Reply, Scene, Source, View};
use crate::dashboard::events::output::Tail;
use crate::dashboard::input::common::{Motion, moved};
use crate::dashboard::input::key::Binding;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "output",
    title: "Output",
    help: "Output of the program that run started",
    source: Source::OwnProgram,
    make: || Box::new(Output::default()),
};

#[derive(Debug, Default)]
struct Output {
    /// What was written last.
    tail: Option<Tail>,
    /// Lines above the end; 0 follows it.
    back: usize,
}

impl Keyed for Output {
    type Action = ();
    const KEYS: &'static [Binding] = &[];

    fn act(&mut self, (): (), _scene: &Scene<'_>) -> Reply {
        Reply::Done
    }
}

impl Pane for Output {
    fn written(&mut self, tail: &Tail) {
        if self.back > 0
            && let Some(before) = &self.tail
        {
            // What is being read stays where it is.
            self.back += tail.lines.len().saturating_sub(before.lines.len());
        }
        self.tail = Some(tail.clone());
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        let lines = self.tail.as_ref().map_or(0, |tail| tail.lines.len());
        self.back = moved(self.back, motion.rows().checked_neg().unwrap_or(isize::MAX), lines + 1);
    }

    fn click(&mut self, _button: MouseButton, _at: Position, _scene: &Scene<'_>) -> Option<Reply> {
        None
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
