//! The tiers: what each is asked for and has, and by size class what is in use, what lies free, and how often the
//! thread caches had a block at hand.

mod draw;

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::listing::{Asked, Listing, Nothing, TablePane, opening, ordering};
use super::rows::Rows;
use super::sort::Sort;
use super::{Reply, Scene, Source, View};
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::{ClassRow, Model};
use crate::dashboard::widgets::panel::inside;

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "classes",
    title: "Classes",
    help: "The tiers, and size classes with their hit rates and what lies free",
    source: Source::Readings,
    make: || Box::new(TablePane::new(Rows::new(draw::COLUMNS, &[], 16, Sort::rising(draw::BLOCK)), Classes)),
};

#[derive(Debug)]
struct Classes;

impl Listing for Classes {
    type Row = ClassRow;
    type Own = Nothing;
    const KEYS: &'static [Binding<Asked<Nothing>>] = {
        let [next, previous, reverse] = ordering();
        &[next, previous, reverse, opening()]
    };

    fn rows<'a>(&'a self, model: &'a Model) -> &'a [ClassRow] {
        &model.classes
    }

    fn keeps(&self, model: &Model, class: &ClassRow) -> bool {
        model.filter.has_class(class.stats.block_bytes)
    }

    fn compare(a: &ClassRow, b: &ClassRow, column: usize) -> Ordering {
        draw::compare(a, b, column)
    }

    fn key(class: &ClassRow) -> u64 {
        class.stats.block_bytes
    }

    const FIELDS: &'static [&'static str] = &[
        "block_bytes",
        "in_use_bytes",
        "free_bytes",
        "in_use_blocks",
        "slabs",
        "slab_bytes",
        "allocations",
        "allocations_per_second",
        "refills",
    ];

    fn record(class: &ClassRow) -> Vec<String> {
        let stats = &class.stats;
        vec![
            stats.block_bytes.to_string(),
            stats.in_use_bytes().to_string(),
            draw::free(class).to_string(),
            stats.in_use_blocks().to_string(),
            stats.slabs().to_string(),
            stats.slab_bytes.to_string(),
            stats.allocs().to_string(),
            class.rate.map(|rate| format!("{rate:.1}")).unwrap_or_default(),
            stats.misses().to_string(),
        ]
    }

    fn open(&self, class: &ClassRow) -> Reply {
        Reply::FilterBy(format!("class:{}", class.stats.block_bytes))
    }

    fn own(&mut self, nothing: Nothing, _scene: &Scene<'_>) -> Reply {
        match nothing {}
    }

    fn place(&self, model: &Model, body: Rect) -> Rect {
        inside(draw::areas(model, body).1)
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        draw::table(rows, scene, buf);
    }
}
