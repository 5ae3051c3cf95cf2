//! Threads: who allocates, how well its cache serves it, and how much it frees for others.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::model::{Model, ThreadRow};
use super::super::state::State;
use super::super::widgets::panel::{inside, panel};
use super::super::widgets::table::{Column, Table, cell};
use crate::words::{clip, numbers};

/// Index of the column of allocations.
pub(crate) const ALLOCS: usize = 3;

/// The columns.
pub(crate) const COLUMNS: &[Column] = &[
    Column { title: "Tid", width: 8, right: true, rank: 0 },
    Column { title: "Name", width: 15, right: false, rank: 1 },
    Column { title: "State", width: 7, right: false, rank: 4 },
    Column { title: "Allocs", width: 8, right: true, rank: 0 },
    Column { title: "Allocs/s", width: 9, right: true, rank: 2 },
    Column { title: "Bytes", width: 9, right: true, rank: 0 },
    Column { title: "Samples", width: 8, right: true, rank: 5 },
    Column { title: "Freed for others", width: 16, right: true, rank: 3 },
    Column { title: "Thread cache hits", width: 0, right: false, rank: 0 },
];

/// Where the table lies in the body.
pub(crate) fn table_area(body: Rect) -> Rect {
    inside(body)
}

/// The natural order by a column.
pub(crate) fn compare(a: &ThreadRow, b: &ThreadRow, column: usize) -> Ordering {
    match column {
        0 => a.stats.tid.cmp(&b.stats.tid),
        1 => a.name.cmp(&b.name),
        2 => a.stats.live.cmp(&b.stats.live),
        3 => a.stats.allocs.cmp(&b.stats.allocs),
        4 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        5 => a.stats.alloc_bytes.cmp(&b.stats.alloc_bytes),
        6 => a.stats.samples.cmp(&b.stats.samples),
        7 => a.stats.remote_frees.cmp(&b.stats.remote_frees),
        _ => a.hit_rate().unwrap_or(0.0).total_cmp(&b.hit_rate().unwrap_or(0.0)),
    }
}

/// The table, for drawing and hit-testing.
pub(crate) fn table(state: &State) -> Table<'static> {
    let t = &state.threads;
    let rows = t.order.len();
    Table {
        columns: COLUMNS,
        fill_min: 18,
        sorted: Some((t.sort.column, t.sort.falls)),
        selected: (rows > 0).then_some(t.selected),
        rows,
    }
}

/// Draws the view.
pub(crate) fn draw(state: &State, model: &Model, body: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let live = model.threads.iter().filter(|t| t.stats.live).count();
    let right = Line::styled(format!("{live} live of {} heaps", model.threads.len()), theme.dim);
    let inner = panel(body, buf, theme, "Threads", right);
    table(state).draw(inner, buf, theme, |row, column, width| {
        let Some(thread) = model.threads.get(state.threads.order[row]) else { return Line::default() };
        let s = &thread.stats;
        match column {
            0 => cell(s.tid.to_string(), theme.strong),
            1 => cell(clip(thread.name.as_deref().unwrap_or("-"), usize::from(width)), theme.text),
            2 => cell(if s.live { "live" } else { "ended" }, if s.live { theme.ok } else { theme.dim }),
            3 => cell(numbers::scaled(s.allocs as f64), theme.text),
            4 => super::classes::rate_cell(thread.rate, theme),
            5 => cell(numbers::bytes(s.alloc_bytes as f64), theme.text),
            6 => cell(numbers::scaled(s.samples as f64), theme.dim),
            7 => cell(numbers::scaled(s.remote_frees as f64), theme.text),
            _ => super::classes::hit_bar(thread.hit_rate(), width, theme),
        }
    });
}
