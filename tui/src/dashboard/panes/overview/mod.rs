//! The overview: memory over time, the tiers, and the call sites that hold the most.

mod draw;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::sort::Sort;
use super::{Keyed, Pane, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::model::Model;
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "overview",
    title: "Overview",
    help: "Memory over time, tiers, largest call sites",
    source: Source::Readings,
    make: || Box::new(Overview::default()),
};

#[derive(Debug, Default)]
struct Overview {
    /// All counters of the tiers are shown.
    all_tiers: bool,
    /// The model's call sites that hold something, the largest first.
    order: Vec<usize>,
    /// Place in `order`.
    selected: usize,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Open the selected call site.
    Open,
    /// Show all counters of the tiers, or some.
    Tiers,
}

impl Keyed for Overview {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        Binding {
            keys: &[named(KeyCode::Enter)],
            action: Action::Open,
            label: "call site",
            help: "Open the selected call site in its own view",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('t')],
            action: Action::Tiers,
            label: "tiers",
            help: "Show all counters of the tiers, or the first ones only",
            section: Section::View,
            footer: true,
        },
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Open => {
                let row = self.order.get(self.selected).and_then(|&at| scene.model?.sites.get(at));
                return row.map_or(Reply::Done, |row| Reply::Show(Subject::Site(row.key)));
            }
            Action::Tiers => self.all_tiers = !self.all_tiers,
        }
        Reply::Done
    }
}

impl Pane for Overview {
    fn follow(&mut self, model: &Arc<Model>) {
        self.order = Sort::falling(0).sorted(
            &model.sites,
            |site| site.in_use.bytes > 0.0,
            |a, b, _| a.in_use.bytes.total_cmp(&b.in_use.bytes),
        );
        self.selected = self.selected.min(self.order.len().saturating_sub(1));
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        self.selected = motion.from(self.selected, self.order.len());
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        let list = inside(self.parts(scene.body).sites);
        let row = self.sites_table().row_at(list, at.x, at.y)?;
        if self.selected == row {
            return Some(self.act(Action::Open, scene));
        }
        self.selected = row;
        Some(Reply::Done)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
