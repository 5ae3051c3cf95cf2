//! Device memory: pools, and of the selected one its memory over time, a map of it, and who holds it.

mod draw;

use std::sync::Arc;

use crossterm::event::MouseButton;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::{Keyed, Pane, Reply, Scene, Source, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::Model;
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "gpu",
    title: "GPU",
    help: "Device memory: pools, a map of what lies where, who holds it",
    source: Source::Readings,
    make: || Box::new(Gpu::default()),
};

#[derive(Debug, Default)]
struct Gpu {
    /// Row of the list of devices.
    selected: usize,
    /// Rows of it.
    devices: usize,
}

impl Keyed for Gpu {
    type Action = ();
    const KEYS: &'static [Binding] = &[];

    fn act(&mut self, (): (), _scene: &Scene<'_>) -> Reply {
        Reply::Done
    }
}

impl Pane for Gpu {
    fn follow(&mut self, model: &Arc<Model>) {
        self.devices = model.devices.len();
        self.selected = self.selected.min(self.devices.saturating_sub(1));
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        self.selected = motion.from(self.selected, self.devices);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        let list = inside(draw::devices_area(scene.body, self.devices));
        self.selected = self.devices_table().row_at(list, at.x, at.y)?;
        Some(Reply::Done)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
