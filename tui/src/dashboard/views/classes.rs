//! Size classes: what each holds, and how often its thread cache had a block at hand.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::model::{ClassRow, Model};
use super::super::state::State;
use super::super::theme::Theme;
use super::super::widgets::bar::bar;
use super::super::widgets::panel::{inside, panel};
use super::super::widgets::table::{Column, Table, cell};
use crate::words::numbers;

/// Index of the column of block sizes.
pub(crate) const BLOCK: usize = 0;

/// The columns.
pub(crate) const COLUMNS: &[Column] = &[
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

/// Where the table lies in the body.
pub(crate) fn table_area(body: Rect) -> Rect {
    inside(body)
}

/// The natural order by a column.
pub(crate) fn compare(a: &ClassRow, b: &ClassRow, column: usize) -> Ordering {
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

/// The table, for drawing and hit-testing.
pub(crate) fn table(state: &State) -> Table<'static> {
    let t = &state.classes;
    let rows = t.order.len();
    Table {
        columns: COLUMNS,
        fill_min: 16,
        sorted: Some((t.sort.column, t.sort.falls)),
        selected: (rows > 0).then_some(t.selected),
        rows,
    }
}

/// Draws the view.
pub(crate) fn draw(state: &State, model: &Model, body: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let right = Line::styled(format!("{} classes in use", model.classes.len()), theme.dim);
    let inner = panel(body, buf, theme, "Size classes", right);
    let most = model.classes.iter().map(|c| c.stats.in_use_bytes()).max().unwrap_or(0).max(1) as f64;
    table(state).draw(inner, buf, theme, |row, column, width| {
        let Some(class) = model.classes.get(state.classes.order[row]) else { return Line::default() };
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

/// Events per second; none is a dot, so that the others stand out.
pub(crate) fn rate_cell(rate: Option<f64>, theme: &Theme) -> Line<'static> {
    match rate {
        Some(rate) if rate > 0.0 => cell(numbers::count_rate(rate), theme.alloc),
        _ => cell("·", theme.faint),
    }
}

/// `99.2% ━━━━`: few hits are drawn loud.
pub(crate) fn hit_bar(rate: Option<f64>, width: u16, theme: &Theme) -> Line<'static> {
    let Some(rate) = rate else { return cell("-", theme.dim) };
    let style = if rate >= 0.9 {
        theme.ok
    } else if rate >= 0.6 {
        theme.warn
    } else {
        theme.alert
    };
    let room = usize::from(width.saturating_sub(8)).min(32);
    Line::from(vec![
        Span::styled(format!("{:>6}  ", format!("{:.1}%", 100.0 * rate)), style),
        Span::styled(bar(rate, room), style),
    ])
}
