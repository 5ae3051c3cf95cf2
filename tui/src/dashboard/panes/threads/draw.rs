//! How the table is drawn.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::text::Line;

use crate::dashboard::model::ThreadRow;
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::rates::{hit_bar, rate_cell};
use crate::dashboard::widgets::table::{Column, cell};
use crate::words::{clip, numbers};

/// Index of the column of bytes allocated.
pub(super) const ALLOCATED: usize = 6;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "Tid", width: 8, right: true, rank: 0 },
    Column { title: "Name", width: 15, right: false, rank: 1 },
    Column { title: "State", width: 7, right: false, rank: 4 },
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "Allocs", width: 8, right: true, rank: 3 },
    Column { title: "Allocs/s", width: 9, right: true, rank: 2 },
    Column { title: "Allocated", width: 9, right: true, rank: 0 },
    Column { title: "Samples", width: 8, right: true, rank: 6 },
    Column { title: "Freed for others", width: 16, right: true, rank: 5 },
    Column { title: "Thread cache hits", width: 0, right: false, rank: 0 },
];

/// The natural order by a column.
pub(super) fn compare(a: &ThreadRow, b: &ThreadRow, column: usize) -> Ordering {
    match column {
        0 => a.stats.tid.cmp(&b.stats.tid),
        1 => a.name.cmp(&b.name),
        2 => a.stats.live.cmp(&b.stats.live),
        3 => a.in_use.total_cmp(&b.in_use),
        4 => a.stats.allocs.cmp(&b.stats.allocs),
        5 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        ALLOCATED => a.stats.alloc_bytes.cmp(&b.stats.alloc_bytes),
        7 => a.stats.samples.cmp(&b.stats.samples),
        8 => a.stats.remote_frees.cmp(&b.stats.remote_frees),
        _ => a.hit_rate().unwrap_or(0.0).total_cmp(&b.hit_rate().unwrap_or(0.0)),
    }
}

/// Draws the view.
pub(super) fn table(rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
    let Some(model) = scene.model else { return };
    let theme = scene.theme;
    let live = model.threads.iter().filter(|t| t.stats.live).count();
    let right = Line::styled(format!("{live} live of {} heaps", model.threads.len()), theme.dim);
    let inner = panel(scene.body, buf, theme, "Threads", right);
    rows.table().draw(inner, buf, theme, |row, column, width| {
        let Some(thread) = model.threads.get(rows.order[row]) else { return Line::default() };
        let s = &thread.stats;
        match column {
            0 => cell(s.tid.to_string(), theme.text),
            1 => cell(clip(thread.name.as_deref().unwrap_or("-"), usize::from(width)), theme.text),
            2 => cell(if s.live { "live" } else { "ended" }, if s.live { theme.ok } else { theme.dim }),
            3 => cell(numbers::bytes(thread.in_use), theme.strong),
            4 => cell(numbers::scaled(s.allocs as f64), theme.text),
            5 => rate_cell(thread.rate, theme),
            ALLOCATED => cell(numbers::bytes(s.alloc_bytes as f64), theme.text),
            7 => cell(numbers::scaled(s.samples as f64), theme.dim),
            8 => cell(numbers::scaled(s.remote_frees as f64), theme.text),
            _ => hit_bar(thread.hit_rate(), thread.asked(), width, theme),
        }
    });
}
