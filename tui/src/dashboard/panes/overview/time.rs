//! The part of the past that the chart shows: how long it is, where it ends, where the cursor stands, and what is
//! selected. Nothing chosen shows everything, and goes on with time.

use crate::dashboard::model::history::Point;
use crate::dashboard::widgets::time_chart::span_for;

/// The shortest that is shown, in seconds.
const SHORTEST: f64 = 5.0;

/// What the user chose; seconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TimeView {
    /// From the left edge to the right one; none is all there is.
    span: Option<f64>,
    /// The right edge; none is now.
    end: Option<f64>,
    /// Where the cursor stands.
    pub(super) cursor: Option<f64>,
    /// Where a range begins that goes to the cursor.
    pub(super) anchor: Option<f64>,
    /// The program has ended, or is a recording: a short life has the whole width.
    pub(super) is_over: bool,
}

/// What is shown, worked out for the points that there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// The last point.
    pub(super) now: f64,
    /// The first point.
    pub(super) first: f64,
    /// The right edge.
    pub(super) end: f64,
    /// From the left edge to the right one.
    pub(super) span: f64,
}

impl TimeView {
    /// The span that shows all.
    fn whole(&self, age: f64) -> f64 {
        span_for(age, !self.is_over)
    }

    /// What is shown of some points.
    pub(super) fn window(&self, points: &[Point]) -> Window {
        let now = points.last().map_or(0.0, |point| point.at_s);
        let first = points.first().map_or(0.0, |point| point.at_s);
        let whole = self.whole(now - first);
        let span = self.span.map_or(whole, |span| span.clamp(SHORTEST.min(whole), whole));
        Window { now, first, end: self.end.map_or(now, |end| end.clamp((first + span).min(now), now)), span }
    }

    /// Shows half as much, or twice, with `around` where it is.
    pub(super) fn zoom(&mut self, points: &[Point], around: Option<f64>, closer: bool) {
        let window = self.window(points);
        let around = around.or(self.cursor).unwrap_or(window.end);
        let whole = self.whole(window.now - window.first);
        let span = if closer { (window.span / 2.0).max(SHORTEST) } else { window.span * 2.0 };
        if span >= whole {
            (self.span, self.end) = (None, None);
            return;
        }
        let share = (window.end - around) / window.span;
        self.show(span, around + share * span, &window);
    }

    /// Moves what is shown by a part of itself.
    pub(super) fn pan(&mut self, points: &[Point], by: f64) {
        let window = self.window(points);
        self.show(window.span, window.end + by * window.span, &window);
    }

    fn show(&mut self, span: f64, end: f64, window: &Window) {
        self.span = Some(span);
        // What ends now goes on with time.
        self.end = (end < window.now).then_some(end.max((window.first + span).min(window.now)));
    }

    /// Moves the cursor by some columns of a chart that is so many wide; what is shown follows it.
    pub(super) fn step(&mut self, points: &[Point], columns: f64, width: u16) {
        let window = self.window(points);
        let column = window.span / f64::from(width.saturating_sub(1).max(1));
        let at = self.cursor.map_or(window.end, |cursor| cursor + columns * column);
        let at = at.clamp(window.first, window.now);
        self.cursor = Some(at);
        if at < window.end - window.span {
            self.show(window.span, at + window.span, &window);
        } else if at > window.end {
            self.show(window.span, at, &window);
        }
    }

    /// The range between the anchor and the cursor, the earlier first.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        let (anchor, cursor) = (self.anchor?, self.cursor?);
        Some((anchor.min(cursor), anchor.max(cursor)))
    }

    /// Takes back the last that was chosen; whether there was anything.
    pub(super) fn back(&mut self) -> bool {
        if self.anchor.is_some() {
            self.anchor = None;
        } else if self.cursor.is_some() {
            self.cursor = None;
        } else if self.span.is_some() || self.end.is_some() {
            (self.span, self.end) = (None, None);
        } else {
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        let point = |second: u32| Point {
            at_s: f64::from(second),
            live_bytes: 0.0,
            rss_bytes: None,
            alloc_bytes_per_s: None,
            split: None,
        };
        (100..=400).map(point).collect()
    }

    #[test]
    fn everything_is_shown_until_something_is_chosen() {
        let view = TimeView::default();
        let window = view.window(&points());
        assert_eq!((window.end, window.span), (400.0, 300.0));
        let few = &points()[..10];
        assert_eq!(view.window(few).span, 60.0);
        let over = TimeView { is_over: true, ..view };
        assert_eq!((over.window(few).span, over.window(&points()).span), (10.0, 300.0));
    }

    #[test]
    fn a_zoom_keeps_the_cursor_where_it_is() {
        let mut view = TimeView { cursor: Some(200.0), ..TimeView::default() };
        let share = |view: &TimeView| {
            let window = view.window(&points());
            (window.end - 200.0) / window.span
        };
        let before = share(&view);
        view.zoom(&points(), None, true);
        assert_eq!(view.window(&points()).span, 150.0);
        assert!((share(&view) - before).abs() < 1e-9);
        view.zoom(&points(), None, false);
        assert_eq!(view.window(&points()), TimeView::default().window(&points()));
        (0..20).for_each(|_| view.zoom(&points(), None, true));
        assert_eq!(view.window(&points()).span, SHORTEST);
    }

    #[test]
    fn the_cursor_stays_in_what_is_known_and_what_is_shown_follows_it() {
        let mut view = TimeView::default();
        view.zoom(&points(), None, true);
        view.zoom(&points(), None, true);
        (0..500).for_each(|_| view.step(&points(), -1.0, 76));
        let window = view.window(&points());
        assert_eq!(view.cursor, Some(100.0));
        assert_eq!((window.end, window.span), (175.0, 75.0));
        view.pan(&points(), -0.5);
        assert_eq!(view.window(&points()).end, 175.0, "nothing is before the first");
        view.pan(&points(), 9.0);
        assert_eq!(view.window(&points()).end, 400.0);
    }

    #[test]
    fn a_range_has_its_ends_in_order() {
        let view = TimeView { cursor: Some(150.0), anchor: Some(250.0), ..TimeView::default() };
        assert_eq!(view.range(), Some((150.0, 250.0)));
        let mut view = view;
        assert!(view.back() && view.range().is_none() && view.back() && !view.back());
    }
}
