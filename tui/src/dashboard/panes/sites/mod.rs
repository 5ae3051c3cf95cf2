//! Call sites: a table to sort and filter, and the whole stack of the selected one.

mod draw;

use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::Position;

use super::rows::{self, Clicked, Reorder, Rows};
use super::sort::Sort;
use super::{Keyed, Pane, Reply, Scene, Source, Subject, View};
use crate::dashboard::input::common::{Motion, moved};
use crate::dashboard::input::key::{Binding, Section, named, plain};
use crate::dashboard::model::Model;
use crate::dashboard::model::site::{SiteRow, frames_of};
use crate::words::numbers;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "sites",
    title: "Call sites",
    help: "Call sites with their stacks",
    source: Source::Readings,
    make: || Box::new(Sites::new()),
};

#[derive(Debug)]
struct Sites {
    rows: Rows,
    /// Nobody chose an order: what grows comes first, if something does.
    usual_order: bool,
    /// Key of the selected call site, so that it stays selected when the order changes.
    key: Option<u64>,
    /// First frame of its stack that is shown; none shows the function that names the call site.
    stack_scroll: Option<usize>,
}

/// What its keys ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Another order.
    Reorder(Reorder),
    /// Type the filter.
    Filter,
    /// Show the call site in the flamegraph.
    Open,
    /// Scroll the stack by some frames.
    Scroll(isize),
}

impl Keyed for Sites {
    type Action = Action;
    const KEYS: &'static [Binding<Action>] = &[
        Binding {
            keys: &[plain('/')],
            action: Action::Filter,
            label: "filter",
            help: "Filter, as f does",
            section: Section::View,
            footer: false,
        },
        rows::NEXT.with(Action::Reorder(Reorder::Next)),
        rows::PREVIOUS.with(Action::Reorder(Reorder::Previous)),
        rows::REVERSE.with(Action::Reorder(Reorder::Reverse)),
        Binding {
            keys: &[named(KeyCode::Enter)],
            action: Action::Open,
            label: "flamegraph",
            help: "Show the selected call site in the flamegraph",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain(']')],
            action: Action::Scroll(5),
            label: "stack",
            help: "Scroll the stack towards its outermost frame",
            section: Section::View,
            footer: true,
        },
        Binding {
            keys: &[plain('[')],
            action: Action::Scroll(-5),
            label: "stack back",
            help: "Scroll the stack towards its innermost frame",
            section: Section::View,
            footer: false,
        },
    ];

    fn act(&mut self, action: Action, scene: &Scene<'_>) -> Reply {
        match action {
            Action::Reorder(by) => {
                self.rows.reorder(by);
                self.usual_order = false;
                if by != Reorder::Reverse {
                    self.select_first();
                }
                self.order(scene);
            }
            Action::Filter => return Reply::Filter,
            // The function that names the call site: what lies within it says less.
            Action::Open => {
                let row = scene.model.and_then(|model| self.current(model));
                let frame = row.map(|row| Subject::Frame { site: row.key, depth: row.text.frame });
                return frame.map_or(Reply::Done, Reply::Show);
            }
            Action::Scroll(by) => self.scroll(by, scene),
        }
        Reply::Done
    }
}

impl Sites {
    fn new() -> Sites {
        let rows = Rows::new(draw::COLUMNS, &[draw::NAME], 44, Sort::falling(draw::IN_USE));
        Sites { rows, usual_order: true, key: None, stack_scroll: None }
    }

    /// The selected call site.
    fn current<'a>(&self, model: &'a Model) -> Option<&'a SiteRow> {
        model.sites.get(self.rows.current()?)
    }

    fn order(&mut self, scene: &Scene<'_>) {
        scene.model.into_iter().for_each(|model| self.follow(model));
    }

    /// Selects the first row, whichever call site comes to be there.
    fn select_first(&mut self) {
        self.key = None;
        self.rows.selected = 0;
    }

    /// The selection has moved.
    fn remember(&mut self, scene: &Scene<'_>) {
        self.stack_scroll = None;
        if let Some(row) = scene.model.and_then(|model| self.current(model)) {
            self.key = Some(row.key);
        }
    }

    fn scroll(&mut self, by: isize, scene: &Scene<'_>) {
        let Some(model) = scene.model else { return };
        let Some(row) = self.current(model) else { return };
        let Some(site) = model.profile.sites.get(row.index) else { return };
        let frames = frames_of(&model.profile, site).count();
        let room = self.stack_room(scene.body);
        let first = self.first_frame(row.text.frame, frames, room);
        self.stack_scroll = Some(moved(first, by, frames.saturating_sub(room) + 1));
    }
}

/// A call site with its stack, innermost frame first.
pub(super) fn site_text(model: &Model, row: &SiteRow) -> Option<String> {
    let site = model.profile.sites.get(row.index)?;
    let bytes = numbers::bytes(row.in_use.bytes);
    let mut text =
        format!("{}: {bytes} in use in {} objects\n", row.text.function, numbers::scaled(row.in_use.objects));
    for frame in frames_of(&model.profile, site) {
        text += &format!("  {}  {}\n", frame.name, frame.place());
    }
    Some(text)
}

impl Pane for Sites {
    fn follow(&mut self, model: &Arc<Model>) {
        if self.usual_order {
            let grows = model.sites.iter().any(SiteRow::grows);
            let compared = model.sites.iter().any(|row| row.change.is_some());
            self.rows.sort = Sort::falling(match (compared, grows) {
                (true, _) => draw::CHANGE,
                (false, true) => draw::GROWTH,
                (false, false) => draw::IN_USE,
            });
        }
        self.rows.absent = draw::absent(model);
        self.rows.follow(&model.sites, |_| true, draw::compare);
        if let Some(key) = self.key
            && let Some(at) = self.rows.order.iter().position(|&at| model.sites[at].key == key)
        {
            self.rows.selected = at;
        }
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        self.rows.go(motion);
        self.remember(scene);
    }

    fn wheel(&mut self, motion: Motion, at: Position, scene: &Scene<'_>) {
        if self.areas(scene.body).detail.contains(at) {
            self.scroll(motion.rows(), scene);
        } else {
            self.go(motion, scene);
        }
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        if button != MouseButton::Left {
            return None;
        }
        let area = self.areas(scene.body).table;
        match self.rows.click(at, area)? {
            Clicked::Title => {
                self.usual_order = false;
                self.select_first();
                self.order(scene);
            }
            Clicked::Row | Clicked::Again => self.remember(scene),
        }
        Some(Reply::Done)
    }

    fn show(&mut self, subject: &Subject, scene: &Scene<'_>) -> bool {
        let Subject::Site(key) = subject else { return false };
        if !scene.model.is_some_and(|model| model.sites.iter().any(|row| row.key == *key)) {
            return false;
        }
        self.key = Some(*key);
        self.order(scene);
        true
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        let model = scene.model?;
        site_text(model, self.current(model)?)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.draw_in(scene, buf);
    }
}
