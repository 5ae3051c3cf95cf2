//! Threads: who allocates, what of it is in use, how well its cache serves it, and how much it frees for others.

mod draw;

use std::cmp::Ordering;

use ratatui::buffer::Buffer;

use super::listing::{Asked, Listing, Nothing, TablePane, opening, ordering};
use super::rows::Rows;
use super::sort::Sort;
use super::{Reply, Scene, Source, View};
use crate::dashboard::input::key::Binding;
use crate::dashboard::model::{Model, ThreadRow};

/// Its line in the table of views.
pub(crate) const VIEW: View = View {
    name: "threads",
    title: "Threads",
    help: "Threads: what they allocate, and what of it is in use",
    source: Source::Readings,
    make: || Box::new(TablePane::new(Rows::new(draw::COLUMNS, &[0, 1], 18, Sort::falling(draw::ALLOCATED)), Threads)),
};

#[derive(Debug)]
struct Threads;

impl Listing for Threads {
    type Row = ThreadRow;
    type Own = Nothing;
    const KEYS: &'static [Binding<Asked<Nothing>>] = {
        let [next, previous, reverse] = ordering();
        &[next, previous, reverse, opening()]
    };

    fn rows<'a>(&'a self, model: &'a Model) -> &'a [ThreadRow] {
        &model.threads
    }

    fn keeps(&self, model: &Model, thread: &ThreadRow) -> bool {
        let name = thread.name.as_deref();
        let text = format!("{} {}", thread.stats.tid, name.unwrap_or_default());
        model.filter.has_thread(name, thread.stats.tid) && model.filter.has_words(&text)
    }

    fn compare(a: &ThreadRow, b: &ThreadRow, column: usize) -> Ordering {
        draw::compare(a, b, column)
    }

    fn key(thread: &ThreadRow) -> u64 {
        thread.stats.tid.into()
    }

    const FIELDS: &'static [&'static str] = &[
        "tid",
        "name",
        "state",
        "in_use_bytes",
        "allocations",
        "allocations_per_second",
        "allocated_bytes",
        "samples",
        "freed_for_others",
        "refills",
    ];

    fn record(thread: &ThreadRow) -> Vec<String> {
        let stats = &thread.stats;
        vec![
            stats.tid.to_string(),
            thread.name.clone().unwrap_or_default(),
            if stats.live { "live" } else { "ended" }.to_owned(),
            format!("{:.0}", thread.in_use),
            stats.allocs.to_string(),
            thread.rate.map(|rate| format!("{rate:.1}")).unwrap_or_default(),
            stats.alloc_bytes.to_string(),
            stats.samples.to_string(),
            stats.remote_frees.to_string(),
            stats.refills.to_string(),
        ]
    }

    fn open(&self, thread: &ThreadRow) -> Reply {
        Reply::FilterBy(format!("thread:^{}$", thread.stats.tid))
    }

    fn own(&mut self, nothing: Nothing, _scene: &Scene<'_>) -> Reply {
        match nothing {}
    }

    fn draw(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        draw::table(rows, scene, buf);
    }
}
