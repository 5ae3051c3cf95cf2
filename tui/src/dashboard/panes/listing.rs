//! A view that is one table: its order, its selection, its keys and what a click does are the same whatever it lists.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use poolscope_profiler::words::figures;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::rows::{Clicked, Rows};
use super::{Keyed, Pane, Records, Reply, Scene};
use crate::dashboard::events::Searched;
use crate::dashboard::events::tensors::Tensors;
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Key, Section, named};
use crate::dashboard::input::ordering::{NEXT, PREVIOUS, REVERSE, Reorder};
use crate::dashboard::model::Model;
use crate::dashboard::widgets::panel::inside;
use crate::words::numbers;

/// What the keys of such a view ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked<Own> {
    /// Another order.
    Reorder(Reorder),
    /// Show what the selected row is about.
    Open,
    /// What only this table can be asked for.
    Own(Own),
}

/// The keys by which a table is ordered.
pub(crate) const fn ordering<Own: Copy>() -> [Binding<Asked<Own>>; 3] {
    [
        NEXT.with(Asked::Reorder(Reorder::Next)),
        PREVIOUS.with(Asked::Reorder(Reorder::Previous)),
        REVERSE.with(Asked::Reorder(Reorder::Reverse)),
    ]
}

const ENTER: &[Key] = &[named(KeyCode::Enter)];

/// The key that opens the selected row, of a table whose rows have call sites.
pub(crate) const fn opening<Own: Copy>() -> Binding<Asked<Own>> {
    Binding {
        keys: ENTER,
        action: Asked::Open,
        label: "call sites",
        help: "Show who has what the selected row is about",
        section: Section::Tables,
        footer: true,
    }
}

/// What a table lists.
pub(crate) trait Listing: Debug {
    /// A row.
    type Row;
    /// What only this table can be asked for.
    type Own: Copy + Debug + 'static;
    /// Its keys: [`ordering`], and what else it has.
    const KEYS: &'static [Binding<Asked<Self::Own>>];

    /// Takes a reading, if the rows are made of it.
    fn take(&mut self, _model: &Arc<Model>, _rows: &mut Rows) {}

    /// Takes named tensors, if the rows are those.
    fn listed(&mut self, _tensors: &Arc<Tensors>) {}

    /// The rows, in any order.
    fn rows<'a>(&'a self, model: &'a Model) -> &'a [Self::Row];

    /// What a row is called, if it has no call sites.
    const CALLED: Option<&'static str> = None;

    /// Whether the filter leaves a row.
    fn keeps(&self, _model: &Model, _row: &Self::Row) -> bool {
        true
    }

    /// The natural order of two rows by a column.
    fn compare(a: &Self::Row, b: &Self::Row, column: usize) -> Ordering;

    /// Tells a row from the others in every reading.
    fn key(row: &Self::Row) -> u64;

    /// The names of its figures, for programs that read a table.
    const FIELDS: &'static [&'static str];

    /// The figures of a row, in the order of [`Self::FIELDS`].
    fn record(row: &Self::Row) -> Vec<String>;

    /// Shows what a row is about.
    fn open(&self, _row: &Self::Row) -> Reply {
        Reply::Done
    }

    /// Whether that can be done now.
    fn can(&self, _asked: Self::Own) -> bool {
        true
    }

    /// Does what only this table can be asked for.
    fn own(&mut self, asked: Self::Own, scene: &Scene<'_>) -> Reply;

    /// What the process answered to a search for leaks.
    fn searched(&mut self, _searched: &Searched) {}

    /// Where the table lies in the view.
    fn place(&self, _model: &Model, body: Rect) -> Rect {
        inside(body)
    }

    /// Does what a click on the table does to its rows.
    fn clicked(&self, rows: &mut Rows, model: &Model, body: Rect, at: Position) -> Option<Clicked> {
        rows.click(at, self.place(model, body))
    }

    /// A row as text, if that is something else than its figures.
    fn copied(&self, _row: &Self::Row) -> Option<String> {
        None
    }

    /// Draws the view.
    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer);
}

/// A key of what has a name.
pub(crate) fn key_of(name: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What a table has no actions of its own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {}

/// A view that is a table.
#[derive(Debug)]
pub(crate) struct TablePane<L> {
    rows: Rows,
    listing: L,
    /// Key of the row that the user selected: it stays selected wherever it is by now.
    key: Option<u64>,
}

impl<L: Listing> TablePane<L> {
    /// A view without rows yet.
    pub(crate) fn new(rows: Rows, listing: L) -> TablePane<L> {
        TablePane { rows, listing, key: None }
    }

    fn order(&mut self, model: &Model) {
        let Self { rows, listing, key } = self;
        let all = listing.rows(model);
        rows.follow(all, |row| listing.keeps(model, row), L::compare);
        rows.select(|at| all.get(at).map(L::key), *key);
    }

    /// The selected row stays selected from now on.
    fn hold(&mut self, model: Option<&Arc<Model>>) {
        let row = model.zip(self.rows.current()).and_then(|(model, at)| self.listing.rows(model).get(at));
        self.key = row.map(L::key);
    }

    fn selected<'a>(&'a self, scene: &'a Scene<'_>) -> Option<&'a L::Row> {
        self.listing.rows(scene.model?).get(self.rows.current()?)
    }
}

impl<L: Listing> Keyed for TablePane<L> {
    type Action = Asked<L::Own>;
    const KEYS: &'static [Binding<Asked<L::Own>>] = L::KEYS;

    fn can(&self, asked: Asked<L::Own>) -> bool {
        match asked {
            Asked::Own(own) => self.listing.can(own),
            Asked::Open | Asked::Reorder(_) => true,
        }
    }

    fn act(&mut self, asked: Asked<L::Own>, scene: &Scene<'_>) -> Reply {
        match asked {
            Asked::Reorder(by) => {
                self.rows.reorder(by);
                if by != Reorder::Reverse {
                    (self.key, self.rows.selected) = (None, 0);
                }
            }
            Asked::Open => return self.selected(scene).map_or(Reply::Done, |row| self.listing.open(row)),
            Asked::Own(own) => {
                let reply = self.listing.own(own, scene);
                scene.model.into_iter().for_each(|model| self.order(model));
                return reply;
            }
        }
        scene.model.into_iter().for_each(|model| self.order(model));
        Reply::Done
    }
}

impl<L: Listing> Pane for TablePane<L> {
    fn follow(&mut self, model: &Arc<Model>) {
        self.listing.take(model, &mut self.rows);
        self.order(model);
    }

    fn listed(&mut self, tensors: &Arc<Tensors>, model: Option<&Arc<Model>>) {
        self.listing.listed(tensors);
        model.into_iter().for_each(|model| self.order(model));
    }

    fn searched_for_leaks(&mut self, searched: &Searched) {
        self.listing.searched(searched);
    }

    fn left_by_filter(&self, model: &Model) -> Option<String> {
        let all = self.listing.rows(model).len() as u64;
        let left = numbers::grouped(self.rows.order.len() as u64);
        L::CALLED.map(|called| format!("{left} of {}", figures::count(all, called)))
    }

    fn rows(&self) -> Option<&Rows> {
        Some(&self.rows)
    }

    fn rows_mut(&mut self) -> Option<&mut Rows> {
        Some(&mut self.rows)
    }

    fn go(&mut self, motion: Motion, scene: &Scene<'_>) {
        self.rows.go(motion);
        self.hold(scene.model);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        let model = scene.model.filter(|_| button == MouseButton::Left)?;
        match self.listing.clicked(&mut self.rows, model, scene.body, at)? {
            Clicked::Title => {
                (self.key, self.rows.selected) = (None, 0);
                self.order(model);
            }
            Clicked::Again => return Some(self.act(Asked::Open, scene)),
            Clicked::Row => self.hold(scene.model),
        }
        Some(Reply::Done)
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        let row = self.selected(scene)?;
        let values = || L::FIELDS.iter().zip(L::record(row)).map(|(name, value)| format!("{name} {value}\n"));
        Some(self.listing.copied(row).unwrap_or_else(|| values().collect()))
    }

    fn records(&self, scene: &Scene<'_>) -> Option<Records> {
        let all = self.listing.rows(scene.model?);
        let shown = self.rows.order.iter().filter_map(|&at| all.get(at));
        Some(Records { fields: L::FIELDS, rows: shown.map(L::record).collect(), by_command: true })
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.listing.draw(&self.rows, scene, buf);
    }
}
