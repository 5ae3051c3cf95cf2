//! How the table and the stack are drawn.

use std::cmp::Ordering;
use std::time::Duration;

use poolscope_profiler::Metric;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::Sites;
use super::groups::By;
use crate::dashboard::model::Model;
use crate::dashboard::model::site::{SiteRow, frames_of};
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::growth::{change_cell, slope_cell, sparkline_cell};
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::site_name::{name_line, sites_count};
use crate::dashboard::widgets::stack::Stack;
use crate::dashboard::widgets::table::{Column, Hidden, cell};
use crate::words::numbers;

/// Index of the column of bytes in use.
pub(super) const IN_USE: usize = 0;
/// Index of the column of what changed since the base.
pub(super) const CHANGE: usize = 1;
/// Index of the same of objects.
const CHANGED_OBJECTS: usize = 2;
/// Index of the column of growth.
pub(super) const GROWTH: usize = 3;
/// Index of the column of what was freed again.
pub(super) const FREED: usize = 9;
/// Index of the only column of text.
pub(super) const NAME: usize = 13;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "Change", width: 10, right: true, rank: 0 },
    Column { title: "Objects ±", width: 9, right: true, rank: 4 },
    Column { title: "Growth/min", width: 12, right: true, rank: 1 },
    Column { title: "up to 5 min", width: 16, right: false, rank: 3 },
    Column { title: "Oldest", width: 7, right: true, rank: 5 },
    Column { title: "Share", width: 6, right: true, rank: 6 },
    Column { title: "Objects", width: 8, right: true, rank: 7 },
    Column { title: "Allocated", width: 10, right: true, rank: 2 },
    Column { title: "Freed", width: 10, right: true, rank: 8 },
    Column { title: "Ever", width: 8, right: true, rank: 10 },
    Column { title: "Rate", width: 10, right: true, rank: 9 },
    Column { title: "Samples", width: 8, right: true, rank: 11 },
    Column { title: "Call site", width: 0, right: false, rank: 0 },
];

/// Columns that there is nothing to be shown in: those of changes, if nothing is compared, and at the peak those of
/// what goes on.
pub(super) fn absent(model: &Model) -> Hidden {
    let compared = model.sites.iter().any(|row| row.change.is_some());
    let mut absent = Hidden::default();
    for (columns, gone) in [(&[CHANGE, CHANGED_OBJECTS][..], !compared), (&[GROWTH, 4, 5, 9, 11][..], model.at_peak)] {
        absent = columns.iter().fold(absent, |absent, &column| absent.with(column, absent.has(column) || gone));
    }
    absent
}

/// Where the parts of the view lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct SiteAreas {
    pub(super) list: Rect,
    /// Titles and rows.
    pub(super) table: Rect,
    /// The stack, with its frame.
    pub(super) detail: Rect,
}

/// The natural order by a column.
pub(super) fn compare(a: &SiteRow, b: &SiteRow, column: usize) -> Ordering {
    match column {
        CHANGE | CHANGED_OBJECTS => {
            let figure = |row: &SiteRow| row.change.as_ref().map_or(0.0, |change| change[column - CHANGE]);
            figure(a).total_cmp(&figure(b)).then(a.in_use.bytes.total_cmp(&b.in_use.bytes))
        }
        0 | 4 | 6 => a.in_use.bytes.total_cmp(&b.in_use.bytes),
        GROWTH => {
            let slope = |row: &SiteRow| row.clear_slope().unwrap_or(0.0);
            slope(a).total_cmp(&slope(b)).then(a.in_use.bytes.total_cmp(&b.in_use.bytes))
        }
        // The oldest was allocated first.
        5 => b.oldest_ns.wrapping_sub(1).cmp(&a.oldest_ns.wrapping_sub(1)),
        7 => a.in_use.objects.total_cmp(&b.in_use.objects),
        8 => a.allocated.bytes.total_cmp(&b.allocated.bytes),
        FREED => a.freed().total_cmp(&b.freed()),
        10 => a.allocated.objects.total_cmp(&b.allocated.objects),
        11 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        12 => a.allocated.samples.cmp(&b.allocated.samples),
        _ => a.text.function.cmp(&b.text.function),
    }
}

impl Sites {
    /// Divides the body: the stack beside the table where it is wide, else below it.
    pub(super) fn areas(&self, body: Rect) -> SiteAreas {
        let (list, detail) = if body.width >= 160 {
            let width = body.width * 3 / 5;
            (Rect { width, ..body }, Rect { x: body.x + width, width: body.width - width, ..body })
        } else {
            let height = (body.height * 2 / 5).clamp(4, 16);
            let list = Rect { height: body.height - height, ..body };
            (list, Rect { y: list.bottom(), height, ..body })
        };
        SiteAreas { list, table: inside(list), detail }
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        if self.by != By::Stack {
            return self.draw_groups(scene, model, buf);
        }
        let (theme, areas, rows) = (scene.theme, self.areas(scene.body), &self.rows);
        let shown: f64 = rows.order.iter().filter_map(|&i| model.listed().get(i)).map(|s| s.in_use.bytes).sum();
        let all = sites_count(model.listed().len());
        let shown = match model.live_error() {
            Some(error) => numbers::estimate(shown, error),
            // How many samples there were is not kept of the peak.
            None if model.at_peak && !model.snapshot.exact => format!("about {}", numbers::bytes(shown)),
            _ => numbers::bytes(shown),
        };
        let right = format!("{all} · {shown} in use");
        panel(areas.list, buf, theme, "Call sites", Line::styled(right, theme.dim));
        rows.table().draw(areas.table, buf, theme, |row, column, width| {
            let Some(site) = model.listed().get(rows.order[row]) else { return Line::default() };
            match column {
                0 => cell(numbers::bytes(site.in_use.bytes), theme.strong),
                CHANGE => change_cell(site, Metric::InUseBytes, theme),
                CHANGED_OBJECTS => change_cell(site, Metric::InUseObjects, theme),
                GROWTH => slope_cell(site, theme),
                4 => sparkline_cell(site, width, theme),
                5 => age_cell(site, model, theme),
                6 => cell(numbers::percent(site.in_use.bytes, model.live.bytes), theme.text),
                7 => cell(numbers::scaled(site.in_use.objects), theme.text),
                8 => cell(numbers::bytes(site.allocated.bytes), theme.text),
                FREED => cell(numbers::bytes(site.freed()), theme.text),
                10 => cell(numbers::scaled(site.allocated.objects), theme.dim),
                11 => match site.rate {
                    Some(rate) if rate >= 1.0 => cell(numbers::byte_rate(rate.into()), theme.alloc),
                    _ => cell("·", theme.faint),
                },
                12 => cell(numbers::scaled(site.allocated.samples as f64), theme.dim),
                _ => name_line(&site.text, usize::from(width), theme),
            }
        });
        if rows.order.is_empty() && areas.table.height > 1 {
            let text = if !model.filter.is_empty() { "No call site matches." } else { "Nothing sampled yet." };
            buf.set_string(areas.table.x + 2, areas.table.y + 1, text, theme.dim);
        }
        self.draw_stack(theme, model, areas.detail, buf);
    }

    fn draw_stack(&self, theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
        let Some(row) = self.current(model) else {
            panel(area, buf, theme, "Stack", Line::default());
            return;
        };
        let Some(site) = model.profile.sites.get(row.index) else { return };
        let mean = if row.in_use.objects > 0.0 {
            format!(" · {} each", numbers::bytes(row.in_use.bytes / row.in_use.objects))
        } else {
            String::new()
        };
        let right = format!(
            "{} in use in {}{mean}",
            numbers::bytes(row.in_use.bytes),
            numbers::counted(row.in_use.objects, "object")
        );
        let title = match row.others.len() {
            0 => "Stack".to_owned(),
            others => format!("Largest of {} stacks", others + 1),
        };
        let inner = panel(area, buf, theme, &title, Line::styled(right, theme.dim));
        let frames: Vec<_> = frames_of(&model.profile, site).collect();
        let stack = Stack { frames: &frames, names: row.text.frame, incomplete: site.incomplete };
        stack.draw(self.stack_scroll, Some("[ ] scroll"), inner, buf, theme);
    }

    /// Frames that the stack has room for, beside the line that says how many there are.
    pub(super) fn stack_room(&self, body: Rect) -> usize {
        usize::from(inside(self.areas(body).detail).height.saturating_sub(1))
    }
}

/// How long ago the oldest sample was allocated that the call site holds.
fn age_cell(site: &SiteRow, model: &Model, theme: &Theme) -> Line<'static> {
    match model.age_ns(site.oldest_ns) {
        None => cell("·", theme.faint),
        Some(age) => cell(numbers::duration(Duration::from_nanos(age)), theme.dim),
    }
}
