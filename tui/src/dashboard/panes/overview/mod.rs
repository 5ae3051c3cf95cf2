//! The overview: memory over time, where it is, and the call sites that grow or hold the most.

mod draw;

use std::cmp::Ordering;
use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::sites::site_text;
use super::sort::Sort;
use super::{Keyed, Pane, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::SiteRow;
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "overview",
    title: "Overview",
    help: "Memory over time, where it is, largest call sites",
    source: Source::Readings,
    make: || Box::new(Overview::default()),
};

#[derive(Debug, Default)]
struct Overview {
    /// Only where the memory is, with a sentence each.
    only_memory: bool,
    /// Call sites that grow; they come first.
    growing: usize,
    /// They are compared with a base.
    compared: bool,
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
    /// Show only where the memory is, or all.
    Memory,
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
            action: Action::Memory,
            label: "memory",
            help: "Show only where the memory is, with a sentence each, or all",
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
            Action::Memory => self.only_memory = !self.only_memory,
        }
        Reply::Done
    }
}

/// What grows goes before what does not, by how fast it does; the rest by what it holds.
fn growing_first(a: &SiteRow, b: &SiteRow) -> Ordering {
    let slope = |row: &SiteRow| row.growth.filter(|_| row.grows()).map_or(0.0, |growth| growth.slope.per_minute);
    slope(a).total_cmp(&slope(b)).then(a.in_use.bytes.total_cmp(&b.in_use.bytes))
}

impl Pane for Overview {
    fn follow(&mut self, model: &Arc<Model>) {
        self.compared = model.sites.iter().any(|site| site.change.is_some());
        let is_shown = |site: &SiteRow| site.in_use.bytes > 0.0 || site.changed().is_some_and(|bytes| bytes != 0.0);
        let compared = self.compared;
        self.order = Sort::falling(0).sorted(&model.sites, is_shown, |a, b, _| {
            let changed = |site: &SiteRow| site.changed().unwrap_or(0.0).abs();
            if compared { changed(a).total_cmp(&changed(b)) } else { growing_first(a, b) }
        });
        self.growing = self.order.iter().filter(|&&at| model.sites[at].grows()).count();
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

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        let model = scene.model?;
        site_text(model, model.sites.get(*self.order.get(self.selected)?)?)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
