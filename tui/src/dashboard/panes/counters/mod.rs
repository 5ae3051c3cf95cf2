//! The counters of the tiers as they are, each with a sentence.

mod draw;

use std::sync::Arc;

use crossterm::event::MouseButton;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::rows::{self, Clicked, Reorder, Rows};
use super::sort::Sort;
use super::{Keyed, Pane, Reply, Scene, Source, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::Model;
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "counters",
    title: "Counters",
    help: "The counters of the tiers, each with a sentence",
    source: Source::Readings,
    make: || Box::new(Counters { rows: Rows::new(draw::COLUMNS, &[draw::NAME], 20, Sort::rising(draw::NAME)) }),
};

#[derive(Debug)]
struct Counters {
    rows: Rows,
}

impl Keyed for Counters {
    type Action = Reorder;
    const KEYS: &'static [Binding<Reorder>] = rows::KEYS;

    fn act(&mut self, by: Reorder, scene: &Scene<'_>) -> Reply {
        self.rows.reorder(by);
        scene.model.into_iter().for_each(|model| self.follow(model));
        Reply::Done
    }
}

impl Pane for Counters {
    fn follow(&mut self, model: &Arc<Model>) {
        self.rows.follow(&model.tiers, |_| true, draw::compare);
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        self.rows.go(motion);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        if self.rows.click(at, inside(scene.body))? == Clicked::Title {
            scene.model.into_iter().for_each(|model| self.follow(model));
        }
        Some(Reply::Done)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
