//! How groups of call sites and their tree are drawn, and below them the largest call sites of the selected row.

use std::cmp::Ordering;

use poolscope_profiler::Metric;
use poolscope_profiler::symbols::function_name::short;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Sites;
use super::groups::{By, Group};
use crate::dashboard::model::Model;
use crate::dashboard::model::flame_tree::format_change;
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::site_name::name_line;
use crate::dashboard::widgets::table::{Column, Hidden, cell, put};
use crate::words::name::clip_name;
use crate::words::{clip, numbers};

/// Index of the column of bytes in use.
pub(super) const IN_USE: usize = 0;
const TOTAL: usize = 1;
/// Index of the column of what changed since the base.
pub(super) const CHANGE: usize = 2;
const GROWTH: usize = 3;
/// Index of the column of what was freed again.
pub(super) const FREED: usize = 7;
/// Index of the only column of text.
pub(super) const NAME: usize = 9;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "+ callees", width: 10, right: true, rank: 1 },
    Column { title: "Change", width: 10, right: true, rank: 0 },
    Column { title: "Growth/min", width: 12, right: true, rank: 2 },
    Column { title: "Share", width: 6, right: true, rank: 4 },
    Column { title: "Objects", width: 8, right: true, rank: 6 },
    Column { title: "Allocated", width: 10, right: true, rank: 3 },
    Column { title: "Freed", width: 10, right: true, rank: 5 },
    Column { title: "Sites", width: 6, right: true, rank: 7 },
    Column { title: "Name", width: 0, right: false, rank: 0 },
];

/// Columns that there is nothing to be shown in.
pub(super) fn absent(model: &Model, by: By) -> Hidden {
    let compared = model.sites.iter().any(|row| row.change.is_some()) && !by.is_of_blocks();
    let gone = [
        (TOTAL, by != By::Function),
        (CHANGE, !compared),
        (GROWTH, by.is_of_blocks() || model.at_peak),
        (6, by.is_of_blocks()),
        (7, by.is_of_blocks() || model.at_peak),
        (8, by.is_tree() || by.is_of_blocks()),
    ];
    gone.into_iter().fold(Hidden::default(), |hidden, (column, gone)| hidden.with(column, gone))
}

/// The natural order by a column.
pub(super) fn compare(a: &Group, b: &Group, column: usize) -> Ordering {
    let slope = |group: &Group| if group.slope.is_clear() { group.slope.per_minute() } else { 0.0 };
    match column {
        TOTAL => a.with_callees.total_cmp(&b.with_callees),
        CHANGE => a.changed(0).total_cmp(&b.changed(0)),
        GROWTH => slope(a).total_cmp(&slope(b)),
        5 => a.figures[1].total_cmp(&b.figures[1]),
        6 => a.figures[2].total_cmp(&b.figures[2]),
        FREED => a.freed().total_cmp(&b.freed()),
        8 => a.sites.cmp(&b.sites),
        NAME => a.name.cmp(&b.name),
        _ => a.figures[0].total_cmp(&b.figures[0]).then(a.with_callees.total_cmp(&b.with_callees)),
    }
}

impl Sites {
    /// Draws the groups.
    pub(super) fn draw_groups(&self, scene: &Scene<'_>, model: &Model, buf: &mut Buffer) {
        let (theme, areas) = (scene.theme, self.areas(scene.body));
        let rows = &self.group_rows;
        let of = if self.by.is_tree() { "→ opens, ← closes" } else { "v groups otherwise" };
        let right = format!("{} rows · {of}", numbers::grouped(rows.order.len() as u64));
        panel(areas.list, buf, theme, self.by.title(), Line::styled(right, theme.dim));
        let mut table = rows.table();
        if self.by.is_tree() {
            table.sorted = None;
        }
        table.draw(areas.table, buf, theme, |row, column, width| {
            let Some(group) = self.groups.get(rows.order[row]) else { return Line::default() };
            group_cell(theme, model, group, column, usize::from(width))
        });
        if rows.order.is_empty() && areas.table.height > 1 {
            let text = match (model.at_peak && self.by.is_of_blocks(), model.filter.is_empty()) {
                (true, _) => "Threads and sizes are not kept of the peak.",
                (false, false) => "Nothing matches the filter.",
                (false, true) => "Nothing sampled yet.",
            };
            buf.set_string(areas.table.x + 2, areas.table.y + 1, text, theme.dim);
        }
        self.draw_members(theme, model, areas.detail, buf);
    }

    /// The largest call sites of the selected row.
    fn draw_members(&self, theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
        let Some(group) = self.group() else {
            panel(area, buf, theme, "Call sites", Line::default());
            return;
        };
        let title = clip_name(&short(&group.name), usize::from(area.width / 2));
        let enter = match self.by {
            By::Function | By::Callees | By::Callers => "Enter: flamegraph",
            _ => "Enter: its call sites",
        };
        let inner = panel(area, buf, theme, &title, Line::styled(enter, theme.dim));
        if self.by.is_of_blocks() {
            let text = "Enter shows the call sites whose blocks these are.";
            buf.set_string(inner.x, inner.y, clip(text, inner.width.into()), theme.dim);
            return;
        }
        let members = self.members.iter().filter_map(|&at| model.sites.get(at));
        for (row, y) in members.zip(inner.top()..inner.bottom()) {
            let mut spans = vec![Span::styled(format!("{:>9}  ", numbers::bytes(row.in_use.bytes)), theme.strong)];
            spans.extend(name_line(&row.text, usize::from(inner.width).saturating_sub(11), theme).spans);
            put(buf, inner.x, y, inner.width, false, Line::from(spans));
        }
    }
}

fn group_cell(theme: &Theme, model: &Model, group: &Group, column: usize, width: usize) -> Line<'static> {
    match column {
        IN_USE => cell(numbers::bytes(group.figures[0]), theme.strong),
        TOTAL => cell(numbers::bytes(group.with_callees), theme.text),
        CHANGE => match group.changed(0) {
            0.0 => cell("·", theme.faint),
            change => {
                let style = if change > 0.0 { theme.alert } else { theme.ok };
                cell(format_change(Metric::InUseBytes, change), style)
            }
        },
        GROWTH if group.slope.is_clear() => {
            let (grows, slope) = (group.slope.grows(), group.slope.per_minute());
            let sign = if slope > 0.0 { "+" } else { "" };
            let mark = if grows { "▲" } else { " " };
            let style = if grows { theme.alert } else { theme.text };
            cell(format!("{sign}{} {mark}", numbers::bytes(slope)), style)
        }
        GROWTH => cell("·", theme.faint),
        4 => cell(numbers::percent(group.figures[0], model.live.bytes), theme.text),
        5 => cell(numbers::scaled(group.figures[1]), theme.text),
        6 => cell(numbers::bytes(group.figures[2]), theme.text),
        FREED => cell(numbers::bytes(group.freed()), theme.text),
        8 => cell(numbers::scaled(group.sites as f64), theme.dim),
        _ => {
            let mark = match group.open {
                Some(true) => "▾ ",
                Some(false) => "▸ ",
                None => "  ",
            };
            // A deep tree keeps room for names.
            let indent = (group.depth * 2).min(width / 3);
            let mark = if group.depth > 0 || group.open.is_some() { mark } else { "" };
            let name = clip_name(&short(&group.name), width.saturating_sub(indent + mark.len().min(2)));
            Line::from(vec![
                Span::styled(" ".repeat(indent), theme.text),
                Span::styled(mark, theme.accent),
                Span::styled(name, theme.text),
            ])
        }
    }
}
