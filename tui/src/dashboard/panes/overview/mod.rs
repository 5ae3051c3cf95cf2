//! The overview: memory over time, where it is, and the call sites that grow or hold the most.

mod draw;
mod time;

use std::cmp::Ordering;
use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::sites::site_text;
use super::sort::Sort;
use super::{Keyed, Pane, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Key, Section, named, plain};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::SiteRow;
use crate::dashboard::widgets::panel::inside;
use crate::dashboard::widgets::time_chart::plot_of;
use time::TimeView;

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
    /// What the chart shows.
    time: TimeView,
    /// Call sites that grow; they come first.
    growing: usize,
    /// They are compared with a base.
    compared: bool,
    /// The model's call sites that hold something, the largest first.
    order: Vec<usize>,
    /// Place in `order`.
    selected: usize,
    /// Key of the call site that the user selected: it stays selected wherever it is by now.
    key: Option<u64>,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Open the selected call site.
    Open,
    /// Show only where the memory is, or all.
    Memory,
    /// Move the cursor in the chart by so many columns.
    Cursor(i8),
    /// Show less of the time, or more.
    Zoom { closer: bool },
    /// Move what is shown of the time.
    Pan { later: bool },
    /// Begin a range at the cursor, or end it.
    Range,
}

const fn of_time(keys: &'static [Key], action: Action, label: &'static str, help: &'static str) -> Binding<Action> {
    Binding { keys, action, label, help, section: Section::View, footer: false }
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
        of_time(
            &[named(KeyCode::Left), plain('h')],
            Action::Cursor(-1),
            "earlier",
            "Move the cursor in the chart back",
        ),
        of_time(&[named(KeyCode::Right), plain('l')], Action::Cursor(1), "later", "Move the cursor in the chart on"),
        of_time(&[plain('H')], Action::Cursor(-10), "much earlier", "The same by ten columns"),
        of_time(&[plain('L')], Action::Cursor(10), "much later", "The same by ten columns"),
        of_time(&[plain(']')], Action::Zoom { closer: true }, "zoom in", "Show half of the time, around the cursor"),
        of_time(&[plain('[')], Action::Zoom { closer: false }, "zoom out", "Show twice the time"),
        of_time(&[plain(',')], Action::Pan { later: false }, "pan back", "Show earlier time"),
        of_time(&[plain('.')], Action::Pan { later: true }, "pan on", "Show later time"),
        of_time(
            &[plain('v')],
            Action::Range,
            "range",
            "Begin a range at the cursor, then end it: what was allocated in it and is in use (or drag)",
        ),
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Open => {
                let row = self.order.get(self.selected).and_then(|&at| scene.model?.sites.get(at));
                return row.map_or(Reply::Done, |row| Reply::Show(Subject::Site(row.key)));
            }
            Action::Memory => self.only_memory = !self.only_memory,
            _ => return self.in_time(action, scene),
        }
        Reply::Done
    }
}

impl Overview {
    /// What the keys of the chart ask for.
    fn in_time(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        let Some(model) = scene.model else { return Reply::Done };
        let (points, width) = (model.history.points(), plot_of(inside(self.parts(scene.body).chart)).width);
        match action {
            Action::Cursor(by) => self.time.step(points, f64::from(by), width),
            Action::Zoom { closer } => self.time.zoom(points, None, closer),
            Action::Pan { later } => self.time.pan(points, if later { 0.5 } else { -0.5 }),
            _ if self.time.cursor.is_none() => {
                self.time.step(points, 0.0, width);
                self.time.anchor = self.time.cursor;
            }
            _ if self.time.anchor.is_none() => self.time.anchor = self.time.cursor,
            _ => return self.selected_range(),
        }
        Reply::Done
    }

    /// Selects a row. The first one is whichever comes to be there.
    fn select(&mut self, row: usize, scene: &Scene<'_>) {
        let site = self.order.get(row).and_then(|&at| scene.model?.sites.get(at));
        (self.selected, self.key) = (row, site.map(|site| site.key).filter(|_| row > 0));
    }

    fn selected_range(&mut self) -> Reply {
        let range = self.time.range();
        self.time.anchor = None;
        Reply::Range(range)
    }

    /// The moment under a point of the chart.
    fn time_at(&self, at: Position, scene: &Scene<'_>) -> Option<f64> {
        let area = inside(self.parts(scene.body).chart);
        if !area.contains(at) {
            return None;
        }
        self.frame_of_chart(scene.model?).time_at(area, at.x)
    }
}

/// What grows goes before what does not, by how fast it does and how little of it is freed; the rest by what it holds.
fn growing_first(a: &SiteRow, b: &SiteRow) -> Ordering {
    let slope = |row: &SiteRow| {
        let growth = row.growth.filter(|_| row.grows());
        growth.map_or(0.0, |growth| growth.slope.for_good(&row.in_use, &row.allocated))
    };
    slope(a).total_cmp(&slope(b)).then(a.in_use.bytes.total_cmp(&b.in_use.bytes))
}

impl Pane for Overview {
    fn follow(&mut self, model: &Arc<Model>) {
        self.compared = model.listed().iter().any(|site| site.change.is_some());
        self.time.is_over = model.has_ended() || model.is_recorded();
        let is_shown = |site: &SiteRow| site.in_use.bytes > 0.0 || site.changed().is_some_and(|bytes| bytes != 0.0);
        let compared = self.compared;
        self.order = Sort::falling(0).sorted(model.listed(), is_shown, |a, b, _| {
            let changed = |site: &SiteRow| site.changed().unwrap_or(0.0).abs();
            if compared { changed(a).total_cmp(&changed(b)) } else { growing_first(a, b) }
        });
        self.growing = self.order.iter().filter(|&&at| model.listed()[at].grows()).count();
        let place = self.key.and_then(|key| self.order.iter().position(|&at| model.listed()[at].has(key)));
        self.selected = place.unwrap_or(self.selected).min(self.order.len().saturating_sub(1));
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        self.select(motion.from(self.selected, self.order.len()), scene);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        if let Some(time) = self.time_at(at, scene) {
            (self.time.cursor, self.time.anchor) = (Some(time), Some(time));
            return Some(Reply::Done);
        }
        if self.parts(scene.body).findings.contains(at) {
            return Some(Reply::Show(Subject::View("findings")));
        }
        let list = inside(self.parts(scene.body).sites);
        let row = self.sites_table().row_at(list, at.x, at.y)?;
        if self.selected == row {
            return Some(self.act(Action::Open, scene));
        }
        self.select(row, scene);
        Some(Reply::Done)
    }

    fn drag(&mut self, at: Position, ends: bool, scene: &Scene<'_>) -> Option<Reply> {
        let anchor = self.time.anchor?;
        if let Some(time) = self.time_at(at, scene) {
            self.time.cursor = Some(time);
        }
        if !ends {
            return Some(Reply::Done);
        }
        if self.time.cursor == Some(anchor) {
            // A click, which only sets the cursor.
            self.time.anchor = None;
            return Some(Reply::Done);
        }
        Some(self.selected_range())
    }

    fn wheel(&mut self, motion: Motion, at: Position, scene: &Scene<'_>) {
        match (self.time_at(at, scene), scene.model) {
            (Some(time), Some(model)) => {
                self.time.zoom(model.history.points(), Some(time), motion == Motion::WheelUp);
            }
            _ => self.go(motion, scene),
        }
    }

    fn back(&mut self, _scene: &Scene<'_>) -> bool {
        self.time.back()
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        let model = scene.model?;
        site_text(model, model.listed().get(*self.order.get(self.selected)?)?)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
