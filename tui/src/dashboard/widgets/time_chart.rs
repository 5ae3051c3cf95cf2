//! A chart over real time: one filled series and one line, in braille, with round figures on both axes.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::dashboard::theme::Theme;
use crate::words::numbers;

/// A series: points of (seconds, value), in order of time.
pub(crate) struct Series<'a> {
    /// The points; where there is no value, the line is broken.
    pub(crate) points: &'a [(f64, Option<f64>)],
    /// Its style.
    pub(crate) style: Style,
    /// The area below it is filled, with these of a cell's dots.
    pub(crate) filled: Option<Dot>,
}

/// Which dots of a cell fill an area: where there are no colours, they tell areas apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dot(u8);

impl Dot {
    /// All of them.
    pub(crate) const FULL: Dot = Dot(0xff);

    /// For areas that lie above each other, the lowest first: patterns where there are no colours.
    pub(crate) fn of_layer(at: usize, theme: &Theme) -> Dot {
        const PATTERNS: [u8; 4] = [0xff, 0x95, 0x0c, 0x2d];
        if theme.patterns { Dot(PATTERNS[at % PATTERNS.len()]) } else { Dot::FULL }
    }

    /// A cell that is filled so.
    pub(crate) fn cell(self) -> char {
        char::from_u32(0x2800 + u32::from(self.0)).unwrap_or(' ')
    }
}

/// The chart.
pub(crate) struct TimeChart<'a> {
    /// In the order of drawing: the last is on top.
    pub(crate) series: &'a [Series<'a>],
    /// Seconds of now, from which the labels count.
    pub(crate) now: f64,
    /// What that moment is called.
    pub(crate) called: &'static str,
    /// Seconds at the right edge.
    pub(crate) end: f64,
    /// Seconds from the left edge to the right one.
    pub(crate) span: f64,
    /// What is marked in it.
    pub(crate) marks: Marks,
}

/// Moments that are marked in a chart, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Marks {
    /// Where the cursor stands.
    pub(crate) cursor: Option<f64>,
    /// What is selected.
    pub(crate) range: Option<(f64, f64)>,
    /// When most was in use.
    pub(crate) peak: Option<f64>,
}

/// Where the values are drawn in the area of a chart, beside its axes.
pub(crate) fn plot_of(area: Rect) -> Rect {
    let left = (LABELS + 1).min(area.width);
    Rect { x: area.x + left, y: area.y, width: area.width - left, height: area.height.saturating_sub(1) }
}

/// What the moment is called that the labels count from.
pub(crate) const NOW: &str = "now";

/// Columns that the labels of the vertical axis take.
pub(crate) const LABELS: u16 = 9;

/// The span for points that reach back `age` seconds: whole steps, and a minute at least where time goes on.
pub(crate) fn span_for(age: f64, goes_on: bool) -> f64 {
    const MINUTE: f64 = 60.0;
    const SPANS: [f64; 19] = [
        2.0, 5.0, 10.0, 20.0, 30.0, MINUTE, 120.0, 180.0, 240.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0,
        28_800.0, 43_200.0, 86_400.0,
    ];
    let age = if goes_on { age.max(MINUTE) } else { age };
    SPANS.into_iter().find(|&s| age <= s).unwrap_or_else(|| (age / 86_400.0).ceil() * 86_400.0)
}

/// A step between ticks, so that `steps` of them hold `max` bytes: round in decimals within a unit (50, 100, 150 MiB),
/// in powers of two where the ticks cross to the next one (512 KiB, 1 MiB, 1.5 MiB).
fn value_step(max: f64, steps: u16) -> f64 {
    const DECIMAL: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 250.0, 500.0];
    let least = (max / f64::from(steps.max(1))).max(1.0);
    let mut unit = 1.0;
    while unit * 1024.0 <= least {
        unit *= 1024.0;
    }
    let decimal = DECIMAL.into_iter().map(|factor| unit * factor).find(|&step| step >= least);
    match decimal {
        Some(step) if (max / step).ceil() * step < unit * 1000.0 => step,
        _ => (0..=10).map(|shift| unit * f64::from(1 << shift)).find(|&step| step >= least).unwrap_or(unit * 1024.0),
    }
}

/// The ticks of the vertical axis.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// From tick to tick.
    step: f64,
    /// Ticks above the one at nothing. The topmost is at or above the largest value.
    ticks: u16,
    /// Rows from tick to tick, the same for all.
    apart: u16,
}

impl Scale {
    /// For values up to `max` on so many rows, which are three at least.
    fn of(max: f64, rows: u16) -> Scale {
        let above = rows - 1;
        // A tick on every second row at most.
        let step = value_step(max, (above / 2).clamp(1, 6));
        let ticks = ((max / step).ceil() as u16).clamp(1, above);
        Scale { step, ticks, apart: above / ticks }
    }
}

/// A step between ticks of time, so that labels are at least `apart` columns from each other.
fn time_step(span: f64, columns: u16, apart: u16) -> f64 {
    const STEPS: [f64; 16] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0,
        86_400.0,
    ];
    let least = span * f64::from(apart) / f64::from(columns.max(1));
    STEPS.into_iter().find(|&s| s >= least).unwrap_or(span)
}

/// Braille dots: two columns and four rows a cell.
struct Dots {
    width: usize,
    cells: Vec<(u8, Style)>,
}

impl Dots {
    fn set(&mut self, x: usize, y: usize, style: Style) {
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        if let Some(cell) = self.cells.get_mut(y / 4 * self.width + x / 2) {
            cell.0 |= BITS[y % 4][x % 2];
            cell.1 = style;
        }
    }
}

impl<'a> TimeChart<'a> {
    /// A chart that ends now, with nothing marked.
    pub(crate) fn until_now(series: &'a [Series<'a>], now: f64, span: f64) -> TimeChart<'a> {
        TimeChart { series, now, called: NOW, end: now, span, marks: Marks::default() }
    }

    /// The moment at a column of the screen; none outside of the plot.
    pub(crate) fn time_at(&self, area: Rect, x: u16) -> Option<f64> {
        let plot = plot_of(area);
        let columns = f64::from(plot.width.checked_sub(1)?.max(1));
        let at = x.checked_sub(plot.x).filter(|&at| at < plot.width)?;
        Some(self.end - self.span + f64::from(at) / columns * self.span)
    }

    /// The column of a moment, if it is shown.
    fn column_of(&self, plot: Rect, at: f64) -> Option<u16> {
        let share = (at - (self.end - self.span)) / self.span;
        let within = (-1e-9..=1.0 + 1e-9).contains(&share);
        within.then(|| plot.x + (share * f64::from(plot.width - 1)).round() as u16)
    }

    fn draw_marks(&self, plot: Rect, buf: &mut Buffer, theme: &Theme) {
        if let Some((from, to)) = self.marks.range {
            let left = self.column_of(plot, from.max(self.end - self.span));
            let right = self.column_of(plot, to.min(self.end));
            if let (Some(left), Some(right)) = (left, right)
                && left <= right
            {
                buf.set_style(Rect { x: left, width: right - left + 1, ..plot }, theme.selected);
            }
        }
        if let Some(x) = self.marks.cursor.and_then(|at| self.column_of(plot, at)) {
            for y in plot.top()..plot.bottom() {
                if matches!(buf[(x, y)].symbol(), " " | "┈") {
                    buf.set_string(x, y, "│", theme.accent);
                }
            }
            buf.set_style(Rect { x, width: 1, ..plot }, theme.accent);
            buf.set_string(x, plot.bottom(), "▲", theme.accent);
        }
        if let Some(x) = self.marks.peak.and_then(|at| self.column_of(plot, at)) {
            let text = if x + 6 < plot.right() { "▼ peak" } else { "▼" };
            buf.set_string(x, plot.top(), text, theme.strong);
        }
    }

    /// Draws the chart with its axes.
    pub(crate) fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme) {
        if area.width <= LABELS + 8 || area.height < 3 {
            return;
        }
        let plot = plot_of(area);
        let is_shown = |at: f64| (self.end - self.span..=self.end).contains(&at);
        let shown = self.series.iter().flat_map(|s| s.points).filter(|(at, _)| is_shown(*at));
        let max = shown.filter_map(|p| p.1).fold(0.0, f64::max);
        let Scale { step, ticks, apart } = Scale::of(max, plot.height);
        // Rows above the topmost tick belong to the scale, too.
        let top = step * f64::from(plot.height - 1) / f64::from(apart);

        for tick in 0..=ticks {
            let y = plot.bottom() - 1 - tick * apart;
            let label =
                numbers::bytes(step * f64::from(tick)).replace(".00 ", " ").replace(".50 ", ".5 ").replace(".0 ", " ");
            buf.set_string(area.x + LABELS.saturating_sub(label.len() as u16), y, &label, theme.dim);
            buf.set_string(plot.x - 1, y, "┤", theme.faint);
            if tick > 0 {
                for x in plot.left()..plot.right() {
                    buf.set_string(x, y, "┈", theme.faint);
                }
            }
        }
        for y in plot.top()..plot.bottom() {
            if buf[(plot.x - 1, y)].symbol() == " " {
                buf.set_string(plot.x - 1, y, "│", theme.faint);
            }
        }
        self.time_axis(plot, buf, theme);
        self.plot(plot, buf, top);
        self.draw_marks(plot, buf, theme);
    }

    fn time_axis(&self, plot: Rect, buf: &mut Buffer, theme: &Theme) {
        let y = plot.bottom();
        let step = time_step(self.span, plot.width, 12);
        // The labels are whole steps before now, wherever the chart ends.
        let mut back = ((self.now - self.end) / step).ceil() * step;
        while back <= self.now - self.end + self.span {
            let share = 1.0 - (back - (self.now - self.end)) / self.span;
            let x = plot.x + (share * f64::from(plot.width - 1)).round() as u16;
            let label = if back == 0.0 {
                self.called.to_owned()
            } else {
                format!("-{}", numbers::short_duration(Duration::from_secs_f64(back)).replace(' ', ""))
            };
            let width = label.len() as u16;
            let left = (x.saturating_sub(width / 2)).clamp(plot.x, plot.right() - width);
            buf.set_string(left, y, label, theme.dim);
            back += step;
        }
    }

    fn plot(&self, plot: Rect, buf: &mut Buffer, top: f64) {
        let (width, height) = (usize::from(plot.width), usize::from(plot.height));
        let (columns, rows) = (width * 2, height * 4);
        // What filled series have drawn: where a lower one ends within a cell, the higher one goes on.
        let mut under = vec![0u8; width * height];
        for series in self.series {
            let mut dots = Dots { width, cells: vec![(0, Style::new()); width * height] };
            let mut last: Option<usize> = None;
            for (x, value) in self.columns(series.points, columns).into_iter().enumerate() {
                let Some(value) = value else {
                    last = None;
                    continue;
                };
                let up = ((value / top).clamp(0.0, 1.0) * (rows - 1) as f64).round() as usize;
                let y = rows - 1 - up;
                let (from, to) = if series.filled.is_some() {
                    (y, rows - 1)
                } else {
                    let before = last.unwrap_or(y);
                    (y.min(before), y.max(before))
                };
                for y in from..=to {
                    dots.set(x, y, series.style);
                }
                last = Some(y);
            }
            for (index, &(bits, style)) in dots.cells.iter().enumerate() {
                if bits > 0 {
                    // A line lies alone in its cell; an area takes the place of what it covers.
                    let shown = match series.filled {
                        Some(Dot(dots)) => (bits & dots) | (under[index] & !bits),
                        None => bits,
                    };
                    // Few dots of a pattern may be none.
                    let bits = if shown == 0 { bits } else { shown };
                    under[index] = bits;
                    let (x, y) = (plot.x + (index % width) as u16, plot.y + (index / width) as u16);
                    let symbol = char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ');
                    buf[(x, y)].set_char(symbol).set_style(style);
                }
            }
        }
    }

    /// The value of each column of dots: the largest that falls into it, else between its neighbours in time.
    fn columns(&self, points: &[(f64, Option<f64>)], columns: usize) -> Vec<Option<f64>> {
        let start = self.end - self.span;
        let per_second = (columns - 1) as f64 / self.span;
        let mut out: Vec<Option<f64>> = vec![None; columns];
        for &(at, value) in points {
            let x = ((at - start) * per_second).round();
            if x < 0.0 || x >= columns as f64 {
                continue;
            }
            let slot = &mut out[x as usize];
            *slot = match (*slot, value) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
        }
        for pair in points.windows(2) {
            let ((t0, Some(v0)), (t1, Some(v1))) = (pair[0], pair[1]) else { continue };
            let (x0, x1) = ((t0 - start) * per_second, (t1 - start) * per_second);
            if x1 < 0.0 || x0 >= columns as f64 {
                continue;
            }
            let (from, to) = (x0.round().max(0.0) as usize, (x1.round().max(0.0) as usize).min(columns));
            for (x, slot) in out.iter_mut().enumerate().take(to).skip(from) {
                let share = ((x as f64 - x0) / (x1 - x0)).clamp(0.0, 1.0);
                slot.get_or_insert(v0 + (v1 - v0) * share);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_hold_the_largest_value() {
        const MIB: f64 = 1024.0 * 1024.0;
        for max in [0.0, 1.0, 900.0, 1e5, 123.0 * MIB, 900.0 * MIB, 1e12] {
            for steps in 1..7 {
                assert!(value_step(max, steps) * f64::from(steps) >= max, "{max} {steps}");
            }
        }
        assert_eq!(value_step(123.0 * MIB, 3), 50.0 * MIB);
        assert_eq!(value_step(2.6 * MIB, 6), 0.5 * MIB);
        assert_eq!(value_step(1700.0 * MIB, 4), 512.0 * MIB);
    }

    #[test]
    fn ticks_are_equally_far_apart_and_never_on_adjacent_rows() {
        const MIB: f64 = 1024.0 * 1024.0;
        for rows in 3..60 {
            for max in [0.0, 900.0, 2.6 * MIB, 45.0 * MIB, 52.0 * MIB, 1700.0 * MIB, 1e12] {
                let scale = Scale::of(max, rows);
                assert!(scale.step * f64::from(scale.ticks) >= max, "{max} is above the topmost tick");
                assert!(scale.apart >= 2 && scale.apart * scale.ticks < rows, "{scale:?} on {rows} rows");
            }
        }
        let mut buf = Buffer::empty(Rect::new(0, 0, 70, 7));
        let points = [(0.0, Some(45.0 * MIB)), (60.0, Some(52.0 * MIB))];
        let series = [Series { points: &points, style: Style::new(), filled: None }];
        let theme = Theme::choose(crate::dashboard::theme::ThemeChoice::Dark, |_| None);
        TimeChart::until_now(&series, 60.0, 60.0).draw(buf.area, &mut buf, &theme);
        let ticks: Vec<u16> = (0..6).filter(|&y| buf[(LABELS, y)].symbol() == "┤").collect();
        assert!(ticks.windows(3).all(|rows| rows[1] - rows[0] == rows[2] - rows[1]), "{ticks:?}");
    }

    #[test]
    fn a_gap_in_the_values_is_a_gap_in_the_line() {
        let chart = TimeChart::until_now(&[], 60.0, 60.0);
        let points = [(0.0, Some(1.0)), (20.0, Some(3.0)), (30.0, None), (40.0, Some(5.0))];
        let columns = chart.columns(&points, 61);
        assert_eq!(columns[10], Some(2.0));
        assert_eq!(columns[25], None);
        assert_eq!(columns[35], None);
        assert_eq!(columns[40], Some(5.0));
        assert_eq!(columns[50], None);
    }

    #[test]
    fn a_column_and_its_moment_are_each_others() {
        let chart = TimeChart { end: 50.0, ..TimeChart::until_now(&[], 60.0, 40.0) };
        let area = Rect::new(3, 0, 91, 10);
        let plot = plot_of(area);
        for x in plot.left()..plot.right() {
            let at = chart.time_at(area, x).expect("is in the plot");
            assert!((10.0..=50.0).contains(&at));
            assert_eq!(chart.column_of(plot, at), Some(x));
        }
        assert_eq!((chart.time_at(area, plot.x - 1), chart.column_of(plot, 55.0)), (None, None));
    }

    #[test]
    fn the_span_grows_in_steps() {
        assert_eq!(span_for(3.0, true), 60.0);
        assert_eq!(span_for(61.0, true), 120.0);
        assert_eq!(span_for(200_000.0, true), 259_200.0);
    }

    /// Without colours, each area has a pattern of its own, also beside the one below it.
    #[test]
    fn areas_without_colours_have_patterns() {
        use crate::dashboard::theme::ThemeChoice;
        let theme = Theme::choose(ThemeChoice::Mono, |_| None);
        let signs: Vec<char> = (0..4).map(|at| Dot::of_layer(at, &theme).cell()).collect();
        assert!(signs.iter().all(|sign| signs.iter().filter(|other| *other == sign).count() == 1), "{signs:?}");
        let points = |bytes: f64| [(0.0, Some(bytes)), (60.0, Some(bytes))];
        let (lower, upper) = (points(40.0), points(90.0));
        let layer = |points, at| Series { points, style: Style::new(), filled: Some(Dot::of_layer(at, &theme)) };
        let series = [layer(&upper, 1), layer(&lower, 0)];
        let area = Rect::new(0, 0, 60, 12);
        let mut buf = Buffer::empty(area);
        TimeChart::until_now(&series, 60.0, 60.0).draw(area, &mut buf, &theme);
        let plot = plot_of(area);
        let column: Vec<&str> = (plot.top()..plot.bottom()).map(|y| buf[(plot.x + 20, y)].symbol()).collect();
        let count = |sign: char| column.iter().filter(|cell| cell.chars().eq([sign])).count();
        assert!(count(signs[0]) >= 3 && count(signs[1]) >= 3, "{column:?}");
    }
}
