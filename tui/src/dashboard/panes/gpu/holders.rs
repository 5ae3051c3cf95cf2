//! Who holds the memory of the selected device: a table as other views have one, with a row for what no call site
//! accounts for.

use std::cmp::Ordering;
use std::sync::Arc;

use poolscope_wire::DeviceCounter;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use crate::dashboard::model::DeviceRow;
use crate::dashboard::panes::Records;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::panes::sort::Sort;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::site_name::{name_line_of_helper, sites_count};
use crate::dashboard::widgets::table::{Column, cell};
use crate::words::{clip, numbers};

const COLUMNS: &[Column] = &[
    Column { title: "In use", width: 8, right: true, rank: 0 },
    Column { title: "±", width: 8, right: true, rank: 1 },
    Column { title: "Share", width: 6, right: true, rank: 2 },
    Column { title: "Blocks", width: 8, right: true, rank: 3 },
    Column { title: "Call site", width: 0, right: false, rank: 0 },
];

/// Index of the column of bytes.
const IN_USE: usize = 0;
/// Index of the only column of text.
const NAME: usize = 4;

/// What a row of the table is.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The call site, by its place among those of the device; none of what nobody accounts for.
    pub(super) site: Option<usize>,
    bytes: f64,
    error: f64,
    blocks: f64,
    function: Arc<str>,
    file: Option<Arc<str>>,
}

/// No rows yet.
pub(super) fn rows() -> Rows {
    Rows::new(COLUMNS, &[NAME], 24, Sort::falling(IN_USE))
}

/// Bytes that nobody accounts for are spoken of from here on.
const WORTH_A_ROW: f64 = 4096.0;

/// The rows of a device.
pub(super) fn of(device: &DeviceRow) -> Vec<Row> {
    let known = device.sites.iter().zip(&device.held).enumerate().map(|(at, (site, held))| Row {
        site: Some(at),
        bytes: held.bytes,
        error: held.error,
        blocks: site.in_use.objects,
        function: Arc::clone(&site.text.function),
        file: site.text.place.clone(),
    });
    let bytes = device.unattributed;
    let nobodys = Row { site: None, bytes, error: 0.0, blocks: 0.0, function: "".into(), file: None };
    known.chain((bytes >= WORTH_A_ROW).then_some(nobodys)).collect()
}

/// The natural order by a column.
pub(super) fn compare(a: &Row, b: &Row, column: usize) -> Ordering {
    match column {
        1 => a.error.total_cmp(&b.error),
        3 => a.blocks.total_cmp(&b.blocks),
        NAME => a.function.cmp(&b.function),
        _ => a.bytes.total_cmp(&b.bytes),
    }
}

/// The table for programs that read it, as it is ordered.
pub(super) fn records(list: &[Row], rows: &Rows) -> Records {
    let record = |row: &Row| -> Vec<String> {
        let name = if row.site.is_some() { &*row.function } else { "(not attributed)" };
        let figures = [row.bytes, row.error, row.blocks].map(|figure| format!("{figure:.0}"));
        figures.into_iter().chain([name.to_owned(), row.file.as_deref().unwrap_or_default().to_owned()]).collect()
    };
    Records {
        fields: &["in_use_bytes", "error_bytes", "in_use_objects", "function", "file"],
        rows: rows.order.iter().filter_map(|&at| list.get(at)).map(record).collect(),
        by_command: true,
    }
}

/// How the samples of a device are: what the reader should know of the figures.
fn sampling(device: &DeviceRow) -> String {
    match device.pool.period_bytes() {
        0 | 1 => sites_count(device.sites.len()),
        period => format!("{}, a sample in {}", sites_count(device.sites.len()), numbers::bytes(period as f64)),
    }
}

/// Where the table lies in its panel: the mark of a selected row takes two columns.
pub(super) fn place(inner: Rect, is_selected: bool) -> Rect {
    if is_selected { inner } else { Rect { x: inner.x.saturating_sub(2), width: inner.width + 2, ..inner } }
}

/// Draws the table; a row is marked if one was selected.
pub(super) fn draw(
    theme: &Theme,
    device: &DeviceRow,
    (list, rows): (&[Row], &Rows),
    is_selected: bool,
    area: Rect,
    buf: &mut Buffer,
) {
    let right = Line::styled(sampling(device), theme.dim);
    let inner = panel(area, buf, theme, "Who holds it", right);
    if list.is_empty() {
        buf.set_string(inner.x, inner.y, clip("Nothing sampled is in use yet.", inner.width.into()), theme.dim);
        return;
    }
    let in_use = device.pool.get(DeviceCounter::CurrentUsage) as f64;
    let mut table = rows.table();
    table.selected = table.selected.filter(|_| is_selected);
    table.draw(place(inner, is_selected), buf, theme, |at, column, width| {
        let Some(row) = rows.order.get(at).and_then(|&at| list.get(at)) else { return Line::default() };
        let site = row.site.and_then(|site| device.sites.get(site));
        match (column, site) {
            (0, _) => cell(numbers::bytes(row.bytes), theme.strong),
            (1, _) if row.error > 0.0 => cell(numbers::bytes(row.error), theme.dim),
            (2, _) => cell(numbers::percent(row.bytes, in_use), theme.text),
            (3, Some(_)) => cell(numbers::scaled(row.blocks), theme.text),
            (NAME, Some(site)) => name_line_of_helper(&site.text, usize::from(width), theme),
            (NAME, None) => cell(clip("(not attributed: no block was sampled)", width.into()), theme.dim),
            _ => Line::default(),
        }
    });
}
