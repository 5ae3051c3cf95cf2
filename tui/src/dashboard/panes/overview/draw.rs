//! How the overview is drawn.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use poolscope_profiler::Metric;
use poolscope_profiler::model::accounting::Part;

use super::Overview;
use super::time::Window;
use crate::dashboard::model::Model;
use crate::dashboard::model::history::{Point, Split};
use crate::dashboard::model::site::frames_of;
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::bar::bar;
use crate::dashboard::widgets::growth::{change_cell, slope_cell, sparkline_cell};
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::site_name::{name_line, sites_count};
use crate::dashboard::widgets::stack::Stack;
use crate::dashboard::widgets::table::{Column, Hidden, Table, cell, put};
use crate::dashboard::widgets::time_chart::{Dot, Marks, NOW, Series, TimeChart};
use crate::words::{clip, numbers};

/// Where the parts lie, each with its frame; those without room are empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) chart: Rect,
    memory: Rect,
    /// The list of call sites.
    pub(super) sites: Rect,
    /// The stack of the selected one.
    stack: Rect,
    /// What there is to say.
    pub(super) findings: Rect,
}

/// Rows below the chart from which on the list of call sites leaves some to the stack of the selected one.
const ROWS_WITH_A_STACK: u16 = 26;

/// Rows that the parts of the memory take with their sentences in a panel that is so wide, frame and last line
/// included.
fn explained_rows(panel: u16) -> u16 {
    Part::ALL.into_iter().map(|part| 1 + part_lines(part, panel).len() as u16).sum::<u16>() + 4
}

/// Rows that findings take at least.
const LEAST_FINDINGS: u16 = 8;

impl Overview {
    /// Divides the body.
    pub(super) fn parts(&self, body: Rect) -> Parts {
        let nothing = Rect { width: 0, height: 0, ..body };
        if self.only_memory {
            return Parts { chart: nothing, memory: body, sites: nothing, stack: nothing, findings: nothing };
        }
        if body.width >= 110 && body.height >= 24 {
            let memory_width = if body.width >= 160 { 60 } else { 44 };
            let left = body.width - memory_width;
            let chart_height = (body.height * 9 / 20).max(10);
            let chart = Rect { width: left, height: chart_height, ..body };
            let below = Rect { y: chart.bottom(), height: body.height - chart_height, ..chart };
            let stack_height = if below.height >= ROWS_WITH_A_STACK { below.height * 2 / 5 } else { 0 };
            let (sites, stack) = cut(below, below.height - stack_height);
            let right = Rect { x: body.x + left, width: memory_width, ..body };
            let explained = explained_rows(memory_width);
            let has_findings = right.height >= explained + LEAST_FINDINGS;
            let (memory, findings) = cut(right, if has_findings { explained } else { right.height });
            return Parts { chart, memory, sites, stack, findings };
        }
        // Every part of the memory has its line, if the chart still has some.
        let least = if body.height >= 18 { 10 } else { 5 };
        let lower = (body.height / 2).clamp(least, 12);
        let chart = Rect { height: body.height - lower, ..body };
        let below = Rect { y: chart.bottom(), height: lower, ..body };
        let memory_width = if body.width >= 76 { 34 } else { 0 };
        let sites = Rect { width: below.width - memory_width, ..below };
        let memory = Rect { x: sites.right(), width: memory_width, ..below };
        Parts { chart, memory, sites, stack: nothing, findings: nothing }
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        let theme = scene.theme;
        let parts = if theme.linear { linear_parts(model, scene.body) } else { self.parts(scene.body) };
        if (1..LEAST_CHART).contains(&parts.chart.height) {
            memory_in_short(theme, model, parts.chart, buf);
        } else if parts.chart.height > 0 {
            self.draw_chart(scene, model, parts.chart, buf);
        }
        if parts.memory.width > 0 {
            memory(theme, model, parts.memory, buf);
        }
        if parts.sites.height > 0 {
            self.draw_sites(theme, model, parts.sites, buf);
        }
        if parts.stack.height > 2 {
            self.draw_stack(theme, model, parts.stack, buf);
        }
        if parts.findings.height > 2 {
            findings(theme, model, parts.findings, buf);
        }
    }
}

/// The first rows of an area, and the others.
fn cut(area: Rect, height: u16) -> (Rect, Rect) {
    let first = Rect { height, ..area };
    (first, Rect { y: first.bottom(), height: area.height - height, ..area })
}

/// The parts below each other, without the chart.
fn linear_parts(model: &Model, body: Rect) -> Parts {
    let explained: usize = model.accounting.parts().map(|(part, _)| 1 + part_lines(part, body.width).len()).sum();
    let rows = (explained as u16).saturating_add(3).min(body.height / 2);
    let memory = Rect { height: rows, ..body };
    let sites = Rect { y: memory.bottom(), height: body.height - rows, ..body };
    let nothing = Rect { width: 0, height: 0, ..body };
    Parts { chart: nothing, memory, sites, stack: nothing, findings: nothing }
}

/// The sentence of a part in a panel that is so wide.
fn part_lines(part: Part, panel: u16) -> Vec<String> {
    wrapped(part.sentence(), usize::from(panel).saturating_sub(6))
}

/// Rows with its frame that a chart takes at least; with fewer there is a bar.
const LEAST_CHART: u16 = 5;

/// The parts of the memory as one bar, with what each is of the whole.
fn memory_in_short(theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
    let accounting = &model.accounting;
    let split = Split::of(accounting);
    let whole = accounting.memory.unwrap_or(accounting.pool()) as f64;
    let rest = whole - split.in_use - split.caches - split.free - split.metadata;
    let parts = [
        ("in use", split.in_use, theme.live),
        ("caches", split.caches, theme.alloc),
        ("free", split.free, theme.accent),
        ("metadata", split.metadata, theme.warn),
        ("others", rest.max(0.0), theme.rss),
    ];
    let right = if accounting.memory.is_some() { format!("{} resident", numbers::bytes(whole)) } else { String::new() };
    let inner = panel(area, buf, theme, "Memory", Line::styled(right, theme.dim));
    let (mut sum, mut x, mut words, mut said) = (0.0, 0u16, inner.x, true);
    for (name, bytes, style) in parts {
        // Each part ends where the sum up to it does, so that the bar is as long as the whole.
        sum += bytes;
        let end = (sum / whole.max(1.0) * f64::from(inner.width)).round().min(f64::from(inner.width)) as u16;
        if inner.height > 0 {
            let columns = usize::from(end.saturating_sub(x));
            buf.set_string(inner.x + x, inner.y, "━".repeat(columns), style);
        }
        x = end.max(x);
        let text = format!("{name} {}", numbers::percent(bytes, whole));
        said &= usize::from(words) + text.len() <= usize::from(inner.right());
        if said && inner.height > 1 {
            buf.set_string(words, inner.y + 1, &text, style);
            words += text.len() as u16 + 2;
        }
    }
}

/// A layer of the chart: its word, its style, and where its upper edge lies.
type Layer = (&'static str, Style, fn(&Split) -> f64);

/// The layers, from the lowest to the highest.
fn layers(theme: &Theme) -> [Layer; 4] {
    [
        ("in use", theme.live, |split| split.in_use),
        ("caches", theme.alloc, |split| split.in_use + split.caches),
        ("free", theme.accent, |split| split.in_use + split.caches + split.free),
        ("metadata", theme.warn, |split| split.in_use + split.caches + split.free + split.metadata),
    ]
}

impl Overview {
    /// The chart without what is drawn in it, for hit-testing.
    pub(super) fn frame_of_chart(&self, model: &Model) -> TimeChart<'static> {
        let window = self.time.window(model.history.points());
        TimeChart { end: window.end, ..TimeChart::until_now(&[], window.now, window.span) }
    }

    fn draw_chart(&self, scene: &Scene<'_>, model: &Model, area: Rect, buf: &mut Buffer) {
        let marks = Marks {
            cursor: self.time.cursor,
            range: self.time.range().or(scene.lens.range),
            peak: model.snapshot.most().map(|most| most.time_ns as f64 / 1e9),
        };
        let at_cursor = self.time.cursor.map(|at| cursor_line(scene.theme, model, at, self.time.anchor.is_some()));
        chart(scene.theme, model, &self.time.window(model.history.points()), marks, at_cursor, area, buf);
    }
}

/// What there was at the cursor.
fn cursor_line(theme: &Theme, model: &Model, at: f64, selects: bool) -> Line<'static> {
    let points = model.history.points();
    let now = points.last().map_or(0.0, |point| point.at_s);
    let after = points.partition_point(|point| point.at_s <= at);
    let Some(point) = points.get(after.saturating_sub(1)) else { return Line::default() };
    let ago = numbers::duration(Duration::from_secs_f64((now - at).max(0.0)));
    let when = if model.has_ended() { "before the end" } else { "ago" };
    let mut spans = vec![
        Span::styled(format!("{ago} {when}: "), theme.text),
        Span::styled(format!("{} in use", numbers::bytes(point.live_bytes)), theme.live),
    ];
    if let Some(rss) = point.rss_bytes {
        spans.push(Span::styled(format!(", {} RSS", numbers::bytes(rss)), theme.rss));
    }
    let does = if selects { " · v selects up to here" } else { " · v begins a range" };
    spans.push(Span::styled(does, theme.dim));
    Line::from(spans)
}

fn chart(
    theme: &Theme,
    model: &Model,
    window: &Window,
    marks: Marks,
    at_cursor: Option<Line<'static>>,
    area: Rect,
    buf: &mut Buffer,
) {
    let points = model.history.points();
    let is_split = points.last().is_some_and(|point| point.split.is_some());
    let layers = layers(theme);
    let mut legend = Vec::new();
    if is_split {
        for (at, (name, style, _)) in layers.iter().enumerate() {
            let sign = format!("{} ", Dot::of_layer(at, theme).cell());
            legend.extend([Span::styled(sign, *style), Span::styled(format!("{name}   "), theme.text)]);
        }
    } else {
        let live = if model.live_is_estimate() { "live (estimate)   " } else { "live   " };
        legend.extend([Span::styled("⣿ ", theme.live), Span::styled(live, theme.text)]);
    }
    legend.extend([Span::styled("⠒ ", theme.rss), Span::styled("RSS", theme.text)]);
    let inner = panel(area, buf, theme, "Memory", at_cursor.unwrap_or_else(|| Line::from(legend)));
    let of = |value: &dyn Fn(&Point) -> Option<f64>| -> Curve {
        points.iter().map(|point| (point.at_s, value(point))).collect()
    };
    let rss = of(&|point| point.rss_bytes);
    // The highest first: what is drawn later lies over it.
    let filled: Vec<(Style, Dot, Curve)> = if is_split {
        let edge = |up_to: fn(&Split) -> f64| of(&|point| point.split.as_ref().map(up_to));
        let dots = |at| Dot::of_layer(at, theme);
        layers.iter().enumerate().rev().map(|(at, (_, style, up_to))| (*style, dots(at), edge(*up_to))).collect()
    } else {
        vec![(theme.live, Dot::FULL, of(&|point| Some(point.live_bytes)))]
    };
    let mut series: Vec<Series<'_>> =
        filled.iter().map(|(style, dots, points)| Series { points, style: *style, filled: Some(*dots) }).collect();
    series.push(Series { points: &rss, style: theme.rss, filled: None });
    let Window { now, end, span, .. } = *window;
    let called = if model.has_ended() { "end" } else { NOW };
    TimeChart { series: &series, now, called, end, span, marks }.draw(inner, buf, theme);
}

/// Values at their times, in seconds; `None` where it is not known.
type Curve = Vec<(f64, Option<f64>)>;

/// The style of a part, that of its layer in the chart.
fn part_style(part: Part, theme: &Theme) -> Style {
    match part {
        Part::InUse => theme.live,
        Part::ThreadCaches | Part::TransferCache | Part::CentralCache => theme.alloc,
        Part::Free => theme.accent,
        Part::Metadata => theme.warn,
        Part::Files | Part::Other => theme.rss,
    }
}

/// Where the memory is: each part, and what all of them come to. With room, a sentence for each.
fn memory(theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
    const LABEL: usize = 14;
    if model.at_peak {
        return memory_then(theme, model, area, buf);
    }
    if model.is_recorded() {
        let inner = panel(area, buf, theme, "Memory of the pool", Line::default());
        let text = "A recording has each block of the program. What the pool kept beside them was not counted.";
        for (line, y) in wrapped(text, usize::from(inner.width)).iter().zip(inner.top()..inner.bottom()) {
            buf.set_string(inner.x, y, line, theme.dim);
        }
        return;
    }
    let accounting = &model.accounting;
    let (title, right) = match accounting.memory {
        Some(memory) => ("Where the memory is", format!("{} resident", numbers::bytes(memory as f64))),
        None => ("Memory of the pool", numbers::bytes(accounting.pool() as f64)),
    };
    let inner = panel(area, buf, theme, title, Line::styled(right, theme.dim));
    let whole = accounting.memory.unwrap_or(accounting.pool()) as f64;
    let width = usize::from(inner.width);
    let sentences: Vec<(Part, u64, Vec<String>)> =
        accounting.parts().map(|(part, bytes)| (part, bytes, part_lines(part, area.width))).collect();
    let lines: usize = sentences.iter().map(|(.., lines)| 1 + lines.len()).sum();
    let explained = lines <= usize::from(inner.height);
    let rows =
        sentences.into_iter().map(|(part, bytes, sentence)| (part.label(), part_style(part, theme), bytes, sentence));
    let mut y = inner.y;
    for (label, style, bytes, sentence) in as_many_as_fit(rows.collect(), inner.height.into(), theme) {
        if y >= inner.bottom() {
            return;
        }
        let share = bytes as f64 / whole.max(1.0);
        let figure = format!("{:>9} {:>6}", numbers::bytes(bytes as f64), numbers::percent(bytes as f64, whole));
        let room = width.saturating_sub(LABEL + figure.len() + 2);
        let mut spans = vec![Span::styled(format!("{label:<LABEL$}"), theme.text)];
        spans.push(Span::styled(figure, theme.strong));
        if room >= 4 {
            spans.push(Span::styled(format!("  {}", bar(share, room)), style));
        }
        put(buf, inner.x, y, inner.width, false, Line::from(spans));
        y += 1;
        for line in sentence.iter().filter(|_| explained) {
            buf.set_string(inner.x + 2, y, line, theme.dim);
            y += 1;
        }
    }
    let untouched = accounting.untouched;
    if untouched > 0 && y < inner.bottom() {
        let text = format!("{} more are in use and were never touched", numbers::bytes(untouched as f64));
        let lines = wrapped(&text, width);
        // Half of the sentence says something else.
        let short = || clip(&format!("{} more never touched", numbers::bytes(untouched as f64)), width);
        let lines = if lines.len() > usize::from(inner.bottom() - y) { vec![short()] } else { lines };
        for (line, y) in lines.iter().zip(y..inner.bottom()) {
            buf.set_string(inner.x, y, line, theme.dim);
        }
    }
}

/// A part of the memory: its label, its style, its bytes, and its sentence in lines.
type Row = (&'static str, Style, u64, Vec<String>);

/// So many rows that still come to the whole: what has nothing goes first, then the smallest ones become one.
fn as_many_as_fit(mut rows: Vec<Row>, room: usize, theme: &Theme) -> Vec<Row> {
    if rows.len() > room {
        rows.retain(|(_, _, bytes, _)| *bytes > 0);
    }
    let mut rest = 0;
    while rows.len() + usize::from(rest > 0) > room.max(2) {
        let Some(least) = (0..rows.len()).min_by_key(|&at| rows[at].2) else { break };
        rest += rows.remove(least).2;
    }
    if rest > 0 {
        rows.push(("smaller ones", theme.dim, rest, Vec::new()));
    }
    rows
}

/// What there is to say, as far as there is room.
fn findings(theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
    let count = model.findings.len();
    let right = if count > 0 { count.to_string() } else { String::new() };
    let inner = panel(area, buf, theme, "What to know", Line::styled(right, theme.dim));
    let width = usize::from(inner.width);
    if count == 0 {
        let text = "Nothing grows for certain, and no memory lies idle that matters.";
        for (line, y) in wrapped(text, width).iter().zip(inner.top()..inner.bottom()) {
            buf.set_string(inner.x, y, line, theme.dim);
        }
        return;
    }
    let mut y = inner.y;
    for (at, finding) in model.findings.iter().enumerate() {
        let lines = wrapped(&finding.sentence, width.saturating_sub(2));
        let left = usize::from(inner.bottom().saturating_sub(y));
        // A sentence that is cut says something else, and the first one is in the line above the keys.
        if lines.len() > left || (lines.len() == left && at + 1 < count) {
            if left > 0 {
                buf.set_string(inner.x, y, clip(&format!("{} more: ! shows them", count - at), width), theme.dim);
            }
            return;
        }
        let style = theme.severity(finding.severity);
        buf.set_string(inner.x, y, "●", style);
        for line in lines {
            buf.set_string(inner.x + 2, y, line, theme.text);
            y += 1;
        }
        y += 1;
    }
}

/// The same at the peak, as far as the process kept it.
fn memory_then(theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
    let history = &model.snapshot.history;
    let Some(most) = model.snapshot.most() else { return };
    let after = history.totals.partition_point(|total| total.time_ns < most.time_ns);
    let split = history.totals.get(after).or(history.totals.last()).and_then(|total| Point::from(total).split);
    let Some(split) = split else { return };
    let parts = [
        ("in use", split.in_use, theme.live),
        ("caches", split.caches, theme.alloc),
        ("free pages", split.free, theme.accent),
        ("metadata", split.metadata, theme.warn),
    ];
    let whole: f64 = parts.iter().map(|(_, bytes, _)| bytes).sum();
    let right = Line::styled(numbers::bytes(whole), theme.dim);
    let inner = panel(area, buf, theme, "Memory of the pool then", right);
    for ((label, bytes, style), y) in parts.into_iter().zip(inner.top()..inner.bottom()) {
        let figure = format!("{label:<14}{:>9} {:>6}", numbers::bytes(bytes), numbers::percent(bytes, whole));
        let room = usize::from(inner.width).saturating_sub(figure.len() + 2);
        let bar = if room >= 4 { format!("  {}", bar(bytes / whole.max(1.0), room)) } else { String::new() };
        let line = Line::from(vec![Span::styled(figure, theme.text), Span::styled(bar, style)]);
        put(buf, inner.x, y, inner.width, false, line);
    }
}

/// The columns; a higher rank of the growth lets it go before others.
const fn site_columns(growth: u8) -> [Column; 6] {
    [
        Column { title: "In use", width: 8, right: true, rank: 0 },
        Column { title: "Change", width: 10, right: true, rank: 0 },
        Column { title: "Share", width: 6, right: true, rank: 1 },
        Column { title: "Growth/min", width: 12, right: true, rank: growth },
        Column { title: "", width: 16, right: false, rank: 4 },
        Column { title: "Call site", width: 0, right: false, rank: 0 },
    ]
}

/// Index of the column of lines.
const SPARKLINE: usize = 4;

/// What grows is asked first, so its column stays on the narrowest screen.
const GROWING_COLUMNS: &[Column] = &site_columns(0);

/// Where nothing grows, names have its room; and compared with another moment, the change has it.
const SITE_COLUMNS: &[Column] = &site_columns(2);

impl Overview {
    /// The list of call sites as a table, for drawing and hit-testing.
    pub(super) fn sites_table(&self) -> Table<'static> {
        let rows = self.order.len();
        let selected = (rows > 0).then_some(self.selected);
        let hidden = Hidden::default().with(1, !self.compared);
        let columns = if self.growing > 0 && !self.compared { GROWING_COLUMNS } else { SITE_COLUMNS };
        Table { columns, hidden, fill_min: 24, sorted: None, selected, rows }
    }

    fn draw_stack(&self, theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
        let inner = panel(area, buf, theme, "Stack of the selected one", Line::default());
        let row = self.order.get(self.selected).and_then(|&at| model.listed().get(at));
        let Some((row, site)) = row.and_then(|row| Some((row, model.profile.sites.get(row.index)?))) else { return };
        let frames: Vec<_> = frames_of(&model.profile, site).collect();
        let stack = Stack { frames: &frames, names: row.text.frame, incomplete: site.incomplete };
        stack.draw(None, Some("Enter opens it"), inner, buf, theme);
    }

    fn draw_sites(&self, theme: &Theme, model: &Model, area: Rect, buf: &mut Buffer) {
        let right = Line::styled(sites_count(self.order.len()), theme.dim);
        let title = match (self.compared, self.growing) {
            (true, _) => "Call sites that changed most",
            (false, 0) => "Largest call sites",
            (false, _) => "Growing call sites first",
        };
        let inner = panel(area, buf, theme, title, right);
        if self.order.is_empty() {
            buf.set_string(inner.x, inner.y, clip("Nothing sampled is in use yet.", inner.width.into()), theme.dim);
            return;
        }
        let mut table = self.sites_table();
        table.hidden = table.hidden.with(SPARKLINE, theme.linear);
        table.draw(inner, buf, theme, |row, column, width| {
            let Some(site) = model.listed().get(self.order[row]) else { return Line::default() };
            match column {
                0 => cell(numbers::bytes(site.in_use.bytes), theme.strong),
                1 => change_cell(site, Metric::InUseBytes, theme),
                2 => cell(numbers::percent(site.in_use.bytes, model.live.bytes), theme.text),
                3 => slope_cell(site, theme),
                SPARKLINE => sparkline_cell(site, width, theme),
                _ => name_line(&site.text, usize::from(width), theme),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::widgets::table::place;

    #[test]
    fn parts_without_room_become_one_and_nothing_is_lost() {
        use crate::dashboard::theme::ThemeChoice;
        let theme = Theme::choose(ThemeChoice::Dark, |_| None);
        let bytes = [900u64, 0, 30, 50, 0, 400, 7, 60];
        let rows = || bytes.map(|bytes| ("part", Style::new(), bytes, Vec::new())).to_vec();
        for room in 2..=8 {
            let fitting = as_many_as_fit(rows(), room, &theme);
            assert!(fitting.len() <= room, "{room}: {fitting:?}");
            assert_eq!(fitting.iter().map(|row| row.2).sum::<u64>(), bytes.iter().sum::<u64>(), "{room}");
            assert_eq!(fitting[0].2, 900, "{room}");
        }
        assert_eq!(as_many_as_fit(rows(), 8, &theme).len(), 8);
        assert_eq!(as_many_as_fit(rows(), 6, &theme).len(), 6, "what has nothing goes first");
        assert_eq!(as_many_as_fit(rows(), 5, &theme)[4].2, 37);
    }

    #[test]
    fn growth_stays_on_a_narrow_screen_where_something_grows() {
        let titles = |growing: usize, compared, width| -> Vec<&str> {
            let table = Overview { growing, compared, ..Overview::default() }.sites_table();
            let placed = place(table.columns, table.hidden, table.fill_min, width, None);
            placed.iter().map(|&(column, ..)| table.columns[column].title).collect()
        };
        // The list has 42 columns inside its frame on a screen of 80, 56 on one of 60.
        assert_eq!(titles(1, false, 42), ["In use", "Growth/min", "Call site"]);
        assert_eq!(titles(1, false, 56), ["In use", "Growth/min", "Call site"]);
        assert_eq!(titles(1, true, 42), ["In use", "Change", "Call site"]);
        assert_eq!(titles(0, false, 42), ["In use", "Call site"]);
    }
}
