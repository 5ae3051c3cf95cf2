//! The counters of the tiers as they are, each with a sentence.

mod draw;

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::listing::{Asked, Listing, Nothing, TablePane, ordering};
use super::rows::Rows;
use super::sort::Sort;
use super::{Reply, Scene, Source, View};
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::{Model, TierRow};

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "counters",
    title: "Counters",
    help: "The counters of the tiers, each with a sentence",
    source: Source::Readings,
    make: || Box::new(TablePane::new(Rows::new(draw::COLUMNS, &[draw::NAME], 20, Sort::rising(draw::NAME)), Counters)),
};

#[derive(Debug)]
struct Counters;

impl Listing for Counters {
    type Row = TierRow;
    type Own = Nothing;
    const KEYS: &'static [Binding<Asked<Nothing>>] = &ordering();

    fn rows<'a>(&'a self, model: &'a Model) -> &'a [TierRow] {
        &model.tiers
    }

    fn compare(a: &TierRow, b: &TierRow, column: usize) -> Ordering {
        draw::compare(a, b, column)
    }

    fn own(&mut self, nothing: Nothing, _scene: &Scene<'_>) -> Reply {
        match nothing {}
    }

    fn place(&self, _model: &Model, body: Rect) -> Rect {
        draw::place(body)
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        draw::table(rows, scene, buf);
    }
}
