//! A view that is one table: its order, its selection, its keys and what a click does are the same whatever it lists.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::rows::{Clicked, NEXT, PREVIOUS, REVERSE, Reorder, Rows};
use super::{Keyed, Pane, Reply, Scene};
use crate::dashboard::events::Searched;
use crate::dashboard::events::tensors::Tensors;
use crate::dashboard::input::common::Motion;
use crate::dashboard::input::key::{Binding, Key, Section, named};
use crate::dashboard::model::Model;
use crate::dashboard::widgets::panel::inside;

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

    /// Whether the filter leaves a row.
    fn keeps(&self, _model: &Model, _row: &Self::Row) -> bool {
        true
    }

    /// The natural order of two rows by a column.
    fn compare(a: &Self::Row, b: &Self::Row, column: usize) -> Ordering;

    /// Shows what a row is about.
    fn open(&self, _row: &Self::Row) -> Reply {
        Reply::Done
    }

    /// Does what only this table can be asked for.
    fn own(&mut self, asked: Self::Own, scene: &Scene<'_>) -> Reply;

    /// What the process answered to a search for leaks.
    fn searched(&mut self, _searched: &Searched) {}

    /// Where the table lies in the view.
    fn place(&self, _model: &Model, body: Rect) -> Rect {
        inside(body)
    }

    /// A row as text, if it can be copied.
    fn copied(&self, _row: &Self::Row) -> Option<String> {
        None
    }

    /// Draws the view.
    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer);
}

/// What a table has no actions of its own for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {}

/// A view that is a table.
#[derive(Debug)]
pub(crate) struct TablePane<L> {
    rows: Rows,
    listing: L,
}

impl<L: Listing> TablePane<L> {
    /// A view without rows yet.
    pub(crate) fn new(rows: Rows, listing: L) -> TablePane<L> {
        TablePane { rows, listing }
    }

    fn order(&mut self, model: &Model) {
        let Self { rows, listing } = self;
        rows.follow(listing.rows(model), |row| listing.keeps(model, row), L::compare);
    }

    fn selected<'a>(&'a self, scene: &'a Scene<'_>) -> Option<&'a L::Row> {
        self.listing.rows(scene.model?).get(self.rows.current()?)
    }
}

impl<L: Listing> Keyed for TablePane<L> {
    type Action = Asked<L::Own>;
    const KEYS: &'static [Binding<Asked<L::Own>>] = L::KEYS;

    fn act(&mut self, asked: Asked<L::Own>, scene: &Scene<'_>) -> Reply {
        match asked {
            Asked::Reorder(by) => self.rows.reorder(by),
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

    fn rows(&self) -> Option<&Rows> {
        Some(&self.rows)
    }

    fn rows_mut(&mut self) -> Option<&mut Rows> {
        Some(&mut self.rows)
    }

    fn go(&mut self, motion: Motion, _scene: &Scene<'_>) {
        self.rows.go(motion);
    }

    fn click(&mut self, button: MouseButton, at: Position, scene: &Scene<'_>) -> Option<Reply> {
        let model = scene.model.filter(|_| button == MouseButton::Left)?;
        match self.rows.click(at, self.listing.place(model, scene.body))? {
            Clicked::Title => self.order(model),
            Clicked::Again => return Some(self.act(Asked::Open, scene)),
            Clicked::Row => {}
        }
        Some(Reply::Done)
    }

    fn copied(&self, scene: &Scene<'_>) -> Option<String> {
        self.listing.copied(self.selected(scene)?)
    }

    fn draw(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        self.listing.draw(&self.rows, scene, buf);
    }
}
