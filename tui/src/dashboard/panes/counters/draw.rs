//! How the table, and the sentence of the selected counter, are drawn.

use std::cmp::Ordering;

use poolscope_wire::Unit;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::Counter;
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::table::{Column, cell};
use crate::words::{clip, numbers};

/// Index of the column that says of which memory it is; there are the host's alone where it is not shown.
pub(super) const OF: usize = 0;
/// Index of the column of names.
pub(super) const NAME: usize = 1;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "Of", width: 10, right: false, rank: 0 },
    Column { title: "Counter", width: 22, right: false, rank: 0 },
    Column { title: "Value", width: 9, right: true, rank: 0 },
    Column { title: "Change", width: 12, right: true, rank: 1 },
    Column { title: "What it says", width: 0, right: false, rank: 0 },
];

/// Lines below the table for the whole sentence of the selected counter.
const FOOT: u16 = 2;

/// The natural order by a column.
pub(super) fn compare(a: &Counter, b: &Counter, column: usize) -> Ordering {
    let name = a.info.name.cmp(b.info.name);
    match column {
        OF => a.device.cmp(&b.device).then(name),
        2 => (a.info.unit == Unit::Bytes, a.value).cmp(&(b.info.unit == Unit::Bytes, b.value)),
        3 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        4 => a.info.help.cmp(b.info.help),
        // Those of one memory stay together.
        _ => a.device.cmp(&b.device).then(name),
    }
}

/// Where the table lies, above the sentence.
pub(super) fn place(body: Rect) -> Rect {
    let inner = inside(body);
    Rect { height: inner.height - FOOT.min(inner.height / 3), ..inner }
}

/// Draws the view.
pub(super) fn table(counters: &[Counter], rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
    let theme = scene.theme;
    let right = Line::styled("raw figures; the overview adds them up", theme.dim);
    let inner = panel(scene.body, buf, theme, "Counters", right);
    let table = place(scene.body);
    rows.table().draw(table, buf, theme, |row, column, width| {
        let Some(counter) = counters.get(rows.order[row]) else { return Line::default() };
        match column {
            OF if counter.device.is_empty() => cell("host", theme.dim),
            OF => cell(clip(&counter.device, usize::from(width)), theme.dim),
            NAME => cell(clip(&name(counter), usize::from(width)), theme.text),
            2 => cell(value(counter, counter.value as f64), theme.strong),
            3 => match counter.rate {
                Some(rate) if rate.abs() >= 0.05 => {
                    let sign = if rate > 0.0 && !counter.info.monotonic { "+" } else { "" };
                    cell(format!("{sign}{}/s", value(counter, rate)), theme.dim)
                }
                _ => cell("·", theme.faint),
            },
            _ => cell(clip(counter.info.help, usize::from(width)), theme.dim),
        }
    });
    let Some(counter) = rows.current().and_then(|at| counters.get(at)) else { return };
    let sentence = wrapped(counter.info.help, usize::from(inner.width));
    for (line, y) in sentence.iter().zip(table.bottom()..inner.bottom()) {
        buf.set_string(inner.x, y, line, theme.text);
    }
}

/// `page_heap_free_bytes` as `Page heap free`.
fn name(counter: &Counter) -> String {
    let words = counter.info.name.trim_end_matches("_bytes").trim_end_matches("_ns").replace('_', " ");
    let mut chars = words.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn value(counter: &Counter, value: f64) -> String {
    match counter.info.unit {
        Unit::Bytes => numbers::bytes(value),
        Unit::Count => numbers::scaled(value),
        Unit::Nanoseconds => numbers::nanoseconds(value),
    }
}
