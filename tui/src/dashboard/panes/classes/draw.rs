//! How the table is drawn.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::text::Line;

use crate::dashboard::model::ClassRow;
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::widgets::bar::bar;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::rates::{hit_bar, rate_cell};
use crate::dashboard::widgets::table::{Column, cell};
use crate::words::numbers;

/// Index of the column of block sizes.
pub(super) const BLOCK: usize = 0;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "Block", width: 8, right: true, rank: 0 },
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "Share", width: 10, right: false, rank: 3 },
    Column { title: "Blocks", width: 8, right: true, rank: 2 },
    Column { title: "Slabs", width: 7, right: true, rank: 4 },
    Column { title: "Slab", width: 8, right: true, rank: 6 },
    Column { title: "Allocs", width: 8, right: true, rank: 0 },
    Column { title: "Allocs/s", width: 9, right: true, rank: 1 },
    Column { title: "Refills", width: 8, right: true, rank: 5 },
    Column { title: "Thread cache hits", width: 0, right: false, rank: 0 },
];

/// The natural order by a column.
pub(super) fn compare(a: &ClassRow, b: &ClassRow, column: usize) -> Ordering {
    match column {
        0 => a.stats.block_bytes.cmp(&b.stats.block_bytes),
        1 | 2 => a.stats.in_use_bytes().cmp(&b.stats.in_use_bytes()),
        3 => a.stats.in_use_blocks().cmp(&b.stats.in_use_blocks()),
        4 => a.stats.slabs().cmp(&b.stats.slabs()),
        5 => a.stats.slab_bytes.cmp(&b.stats.slab_bytes),
        6 => a.stats.allocs().cmp(&b.stats.allocs()),
        7 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        8 => a.stats.misses().cmp(&b.stats.misses()),
        _ => a.stats.hit_rate().unwrap_or(0.0).total_cmp(&b.stats.hit_rate().unwrap_or(0.0)),
    }
}

/// Draws the view.
pub(super) fn table(rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
    let Some(model) = scene.model else { return };
    let theme = scene.theme;
    let right = Line::styled(format!("{} classes in use", model.classes.len()), theme.dim);
    let inner = panel(scene.body, buf, theme, "Size classes", right);
    let most = model.classes.iter().map(|c| c.stats.in_use_bytes()).max().unwrap_or(0).max(1) as f64;
    rows.table().draw(inner, buf, theme, |row, column, width| {
        let Some(class) = model.classes.get(rows.order[row]) else { return Line::default() };
        let s = &class.stats;
        match column {
            0 => cell(numbers::bytes(s.block_bytes as f64), theme.strong),
            1 => cell(numbers::bytes(s.in_use_bytes() as f64), theme.text),
            2 => cell(bar(s.in_use_bytes() as f64 / most, usize::from(width)), theme.live),
            3 => cell(numbers::scaled(s.in_use_blocks() as f64), theme.text),
            4 => cell(numbers::scaled(s.slabs() as f64), theme.dim),
            5 => cell(numbers::bytes(s.slab_bytes as f64), theme.dim),
            6 => cell(numbers::scaled(s.allocs() as f64), theme.text),
            7 => rate_cell(class.rate, theme),
            8 => cell(numbers::scaled(s.misses() as f64), theme.dim),
            _ => hit_bar(s.hit_rate(), width, theme),
        }
    });
}
