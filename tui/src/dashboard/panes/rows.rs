//! The rows of a table: their order, and which one is selected.

use std::cmp::Ordering;

use ratatui::layout::{Position, Rect};

use crate::dashboard::input::common::Motion;
use crate::dashboard::input::ordering::Reorder;
use crate::dashboard::widgets::table::{Column, Hidden, Table};

use super::sort::Sort;

/// Rows that can be ordered and selected.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// Its columns.
    pub(crate) columns: &'static [Column],
    /// Which of them are text, whose natural order rises.
    pub(crate) text: &'static [usize],
    /// Those of them that the user does not want to see.
    pub(crate) hidden: Hidden,
    /// Those that there is nothing to be shown in.
    pub(crate) absent: Hidden,
    /// The least that the column without a width is left with.
    pub(crate) fill_min: u16,
    /// By which column.
    pub(crate) sort: Sort,
    /// Indices into the model's rows, in order.
    pub(crate) order: Vec<usize>,
    /// Place in `order`.
    pub(crate) selected: usize,
}

/// What a click on a table did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clicked {
    /// It has another order: it has to be sorted.
    Title,
    /// A row was selected.
    Row,
    /// A row that was selected already.
    Again,
}

impl Rows {
    /// No rows yet.
    pub(crate) fn new(columns: &'static [Column], text: &'static [usize], fill_min: u16, sort: Sort) -> Rows {
        let (hidden, absent) = (Hidden::default(), Hidden::default());
        Rows { columns, text, hidden, absent, fill_min, sort, order: Vec::new(), selected: 0 }
    }

    /// The selected row's index in the model.
    pub(crate) fn current(&self) -> Option<usize> {
        self.order.get(self.selected).copied()
    }

    /// Orders and filters the rows anew.
    pub(crate) fn follow<T>(
        &mut self,
        rows: &[T],
        keep: impl Fn(&T) -> bool,
        compare: impl Fn(&T, &T, usize) -> Ordering,
    ) {
        self.order = self.sort.sorted(rows, keep, compare);
        self.selected = self.selected.min(self.order.len().saturating_sub(1));
    }

    /// Selects the row that has a key again, if it is among them. `key_of` has the key of a row of the model.
    pub(crate) fn select(&mut self, key_of: impl Fn(usize) -> Option<u64>, key: Option<u64>) {
        let place = key.and_then(|key| self.order.iter().position(|&at| key_of(at) == Some(key)));
        self.selected = place.unwrap_or(self.selected);
    }

    /// Moves the selection.
    pub(crate) fn go(&mut self, motion: Motion) {
        self.selected = motion.from(self.selected, self.order.len());
    }

    /// Takes another order; the rows have to be sorted after that.
    pub(crate) fn reorder(&mut self, by: Reorder) {
        let columns = self.columns.len();
        let step = match by {
            Reorder::Next => 1,
            Reorder::Previous => columns - 1,
            Reorder::Reverse => return self.sort.falls = !self.sort.falls,
        };
        let mut column = (self.sort.column + step) % columns;
        while self.not_shown().has(column) && column != self.sort.column {
            column = (column + step) % columns;
        }
        self.choose(column);
    }

    fn not_shown(&self) -> Hidden {
        Hidden(self.hidden.0 | self.absent.0)
    }

    fn choose(&mut self, column: usize) {
        self.sort.choose(column, !self.text.contains(&column));
    }

    /// The table, for drawing and hit-testing.
    pub(crate) fn table(&self) -> Table<'static> {
        let rows = self.order.len();
        Table {
            columns: self.columns,
            hidden: self.not_shown(),
            fill_min: self.fill_min,
            sorted: Some((self.sort.column, self.sort.falls)),
            selected: (rows > 0).then_some(self.selected),
            rows,
        }
    }

    /// Handles a click on the table in an area.
    pub(crate) fn click(&mut self, at: Position, area: Rect) -> Option<Clicked> {
        let table = self.table();
        if let Some(column) = table.title_at(area, at.x, at.y) {
            self.choose(column);
            return Some(Clicked::Title);
        }
        let row = table.row_at(area, at.x, at.y)?;
        let again = self.selected == row;
        self.selected = row;
        Some(if again { Clicked::Again } else { Clicked::Row })
    }
}
