//! Call sites: a table to sort and filter, and the whole stack of the selected one.

use std::cmp::Ordering;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::super::model::Model;
use super::super::site::{SiteRow, SiteText, frames_of};
use super::super::state::State;
use super::super::theme::Theme;
use super::super::widgets::panel::{inside, panel};
use super::super::widgets::table::{Column, Table, cell};
use crate::words::{clip, numbers};

/// Index of the column of bytes in use.
pub(crate) const IN_USE: usize = 0;
/// Index of the only column of text.
pub(crate) const NAME: usize = 7;

/// The columns.
pub(crate) const COLUMNS: &[Column] = &[
    Column { title: "In use", width: 9, right: true, rank: 0 },
    Column { title: "Share", width: 6, right: true, rank: 3 },
    Column { title: "Objects", width: 8, right: true, rank: 2 },
    Column { title: "Allocated", width: 10, right: true, rank: 1 },
    Column { title: "Objects", width: 8, right: true, rank: 5 },
    Column { title: "Rate", width: 10, right: true, rank: 4 },
    Column { title: "Samples", width: 8, right: true, rank: 6 },
    Column { title: "Call site", width: 0, right: false, rank: 0 },
];

/// Where the parts of the view lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteAreas {
    list: Rect,
    /// Titles and rows.
    pub(crate) table: Rect,
    /// The filter line; no height without one.
    filter: Rect,
    /// The stack, with its frame.
    pub(crate) detail: Rect,
}

/// Divides the body: the stack beside the table where it is wide, else below it.
pub(crate) fn areas(state: &State, body: Rect) -> SiteAreas {
    let (list, detail) = if body.width >= 160 {
        let width = body.width * 3 / 5;
        (Rect { width, ..body }, Rect { x: body.x + width, width: body.width - width, ..body })
    } else {
        let height = (body.height * 2 / 5).clamp(4, 16);
        let list = Rect { height: body.height - height, ..body };
        (list, Rect { y: list.bottom(), height, ..body })
    };
    let inner = inside(list);
    let filtered = state.editing || !state.filter.is_empty();
    let line = u16::from(filtered && inner.height > 2);
    let table = Rect { y: inner.y + line, height: inner.height - line, ..inner };
    SiteAreas { list, table, filter: Rect { height: line, ..inner }, detail }
}

/// The natural order by a column.
pub(crate) fn compare(a: &SiteRow, b: &SiteRow, column: usize) -> Ordering {
    match column {
        0 | 1 => a.in_use.bytes.total_cmp(&b.in_use.bytes),
        2 => a.in_use.objects.total_cmp(&b.in_use.objects),
        3 => a.allocated.bytes.total_cmp(&b.allocated.bytes),
        4 => a.allocated.objects.total_cmp(&b.allocated.objects),
        5 => a.rate.unwrap_or(0.0).total_cmp(&b.rate.unwrap_or(0.0)),
        6 => a.allocated.samples.cmp(&b.allocated.samples),
        _ => a.text.function.cmp(&b.text.function),
    }
}

/// The table, for drawing and hit-testing.
pub(crate) fn table(state: &State) -> Table<'static> {
    let t = &state.sites;
    let rows = t.order.len();
    Table {
        columns: COLUMNS,
        fill_min: 44,
        sorted: Some((t.sort.column, t.sort.falls)),
        selected: (rows > 0).then_some(t.selected),
        rows,
    }
}

/// `function file:line ‹ caller ‹ caller`, as much of it as there is room for. Rows of one function differ by its
/// caller: that goes before the place, and loses the outer parts of its path before its name is cut.
pub(crate) fn name_line(text: &SiteText, width: usize, theme: &Theme) -> Line<'static> {
    let function = clip(fitting(&text.function, width), width);
    let mut left = width.saturating_sub(function.width());
    let mut spans = vec![Span::styled(function, theme.text)];
    // A closure's name tells no row from another.
    let caller = text.callers.first().map(|caller| fitting(caller, 0)).filter(|caller| !caller.starts_with('{'));
    let caller = caller.map_or(0, |caller| CALLED_BY.width() + caller.width());
    if let Some(place) = &text.place
        && left > place.width()
        && (left > place.width() + caller || caller > left)
    {
        left -= place.width() + 1;
        spans.push(Span::styled(format!(" {place}"), theme.dim));
    }
    for caller in &text.callers {
        if left < 8 {
            break;
        }
        let part = clip(&format!("{CALLED_BY}{}", fitting(caller, left - CALLED_BY.width())), left);
        left -= part.width();
        spans.push(Span::styled(part, theme.dim));
    }
    Line::from(spans)
}

/// Between a function and its caller.
const CALLED_BY: &str = " ‹ ";

/// A function's path without its outermost parts, if it is too wide with them: `Session::remember`.
fn fitting(function: &str, width: usize) -> &str {
    let mut rest = function;
    while rest.width() > width && !rest.starts_with('<') {
        match rest.split_once("::") {
            Some((outer, inner)) if !outer.contains(['<', '(']) => rest = inner,
            _ => break,
        }
    }
    rest
}

/// Draws the view.
pub(crate) fn draw(state: &State, model: &Model, body: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let areas = areas(state, body);
    let shown: f64 = state.sites.order.iter().filter_map(|&i| model.sites.get(i)).map(|s| s.in_use.bytes).sum();
    let all = super::sites_count(model.sites.len());
    let of = state.filter_pattern.as_ref().map(|_| format!("{} of ", numbers::grouped(state.sites.order.len() as u64)));
    let shown = match model.live_error() {
        Some(error) if of.is_none() => numbers::estimate(shown, error),
        _ => numbers::bytes(shown),
    };
    let right = format!("{}{all} · {shown} in use", of.unwrap_or_default());
    panel(areas.list, buf, theme, "Call sites", Line::styled(right, theme.dim));
    if areas.filter.height > 0 {
        let literal = state.filter_pattern.as_ref().is_some_and(|p| p.literal);
        edit_line("filter", &state.filter, state.editing, literal, areas.filter, buf, theme);
    }
    table(state).draw(areas.table, buf, theme, |row, column, width| {
        let Some(site) = model.sites.get(state.sites.order[row]) else { return Line::default() };
        match column {
            0 => cell(numbers::bytes(site.in_use.bytes), theme.strong),
            1 => cell(numbers::percent(site.in_use.bytes, model.live.bytes), theme.text),
            2 => cell(numbers::scaled(site.in_use.objects), theme.text),
            3 => cell(numbers::bytes(site.allocated.bytes), theme.text),
            4 => cell(numbers::scaled(site.allocated.objects), theme.dim),
            5 => match site.rate {
                Some(rate) if rate > 0.0 => cell(numbers::byte_rate(rate), theme.alloc),
                _ => cell("·", theme.faint),
            },
            6 => cell(numbers::scaled(site.allocated.samples as f64), theme.dim),
            _ => name_line(&site.text, usize::from(width), theme),
        }
    });
    if state.sites.order.is_empty() && areas.table.height > 1 {
        let text = if state.filter_pattern.is_some() { "No call site matches." } else { "Nothing sampled yet." };
        buf.set_string(areas.table.x + 2, areas.table.y + 1, text, theme.dim);
    }
    detail(state, model, areas.detail, buf);
}

/// A line that is typed, with its cursor.
pub(crate) fn edit_line(
    label: &str,
    line: &super::super::line_edit::LineEdit,
    editing: bool,
    literal: bool,
    area: Rect,
    buf: &mut Buffer,
    theme: &Theme,
) {
    let (before, after) = line.parts();
    let mut spans = vec![Span::styled(format!("{label} "), theme.dim), Span::styled(before, theme.strong)];
    if editing {
        let mut rest = after.chars();
        let under = rest.next().unwrap_or(' ').to_string();
        spans.push(Span::styled(under, theme.strong.add_modifier(Modifier::REVERSED)));
        spans.push(Span::styled(rest.collect::<String>(), theme.strong));
    } else {
        spans.push(Span::styled(after, theme.strong));
    }
    if literal {
        spans.push(Span::styled("  (no regex: taken as it stands)", theme.warn));
    }
    super::super::widgets::table::put(buf, area.x, area.y, area.width, false, Line::from(spans));
}

fn detail(state: &State, model: &Model, area: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let row = state.sites.current().and_then(|i| model.sites.get(i));
    let Some(row) = row else {
        panel(area, buf, theme, "Stack", Line::default());
        return;
    };
    let Some(site) = model.profile.sites.get(row.index) else { return };
    let mean = if row.in_use.objects > 0.0 {
        format!(" · {} each", numbers::bytes(row.in_use.bytes / row.in_use.objects))
    } else {
        String::new()
    };
    let right =
        format!("{} in use in {} objects{mean}", numbers::bytes(row.in_use.bytes), numbers::scaled(row.in_use.objects));
    let inner = panel(area, buf, theme, "Stack", Line::styled(right, theme.dim));
    let frames: Vec<_> = frames_of(&model.profile, site).collect();
    let room = usize::from(inner.height);
    let cut = frames.len() > room;
    let room = if cut { room.saturating_sub(1) } else { room };
    let first = first_frame(state, row.text.frame, frames.len(), room);
    let shown = frames.len().saturating_sub(first).min(room);
    for (line, frame) in frames.iter().skip(first).take(room).enumerate() {
        let y = inner.y + line as u16;
        let width = usize::from(inner.width);
        let inlined = frame.frame.inlined;
        let mark = if inlined { "↳ " } else { "  " };
        let place = if inlined { format!("{}  inlined", frame.place()) } else { frame.place() };
        let name_width = clip(&frame.name, width).width();
        let place_room = width.saturating_sub(6 + 2 + name_width).max(width / 2).min(place.width());
        let name_room = width.saturating_sub(6 + place_room + 2);
        let name_style = if first + line == row.text.frame {
            theme.strong
        } else if inlined {
            theme.dim
        } else {
            theme.text
        };
        buf.set_string(inner.x, y, format!("{:>3} ", first + line), theme.faint);
        buf.set_string(inner.x + 4, y, mark, theme.accent);
        buf.set_string(inner.x + 6, y, clip(&frame.name, name_room), name_style);
        let place = tail(&place, place_room);
        let x = inner.right().saturating_sub(place.width() as u16);
        buf.set_string(x, y, place, theme.dim);
    }
    let foot = if cut {
        let (above, below) = (first, frames.len() - first - shown);
        format!("    {above} frames above, {below} below: [ ] scroll")
    } else if site.incomplete && shown < room {
        "    … outer frames are missing".to_owned()
    } else {
        return;
    };
    if inner.height > 0 {
        buf.set_string(inner.x, inner.y + shown as u16, clip(&foot, inner.width.into()), theme.dim);
    }
}

/// The first frame that is shown: by the user's choice, else so that the one which names the call site can be seen with
/// some of its callers.
pub(crate) fn first_frame(state: &State, names: usize, frames: usize, room: usize) -> usize {
    let wanted = state.stack_scroll.unwrap_or(if names + 3 < room { 0 } else { names.saturating_sub(room / 3) });
    wanted.min(frames.saturating_sub(room))
}

/// The end of a text that is too long: of a path, it says more than the start.
fn tail(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let mut out = String::from("…");
    out.extend(text.chars().skip(count - width.saturating_sub(1)));
    out
}
