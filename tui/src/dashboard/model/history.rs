//! What the charts draw: a bounded record of totals over time.
//!
//! When it is full, every second point of its older half goes: the past gets coarser, never shorter.

/// Totals at one moment.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Point {
    /// Seconds of `CLOCK_MONOTONIC`.
    pub(crate) at_s: f64,
    /// Bytes in use, as the pool counts them; estimated from the samples where it doesn't.
    pub(crate) live_bytes: f64,
    /// Resident bytes; none once the process is gone.
    pub(crate) rss_bytes: Option<f64>,
    /// Bytes allocated per second since the point before.
    pub(crate) alloc_bytes_per_s: Option<f64>,
}

/// Points in order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    points: Vec<Point>,
}

/// The most points that are kept.
const CAPACITY: usize = 4096;

impl History {
    /// Adds a point; one that is not later than the last is left out.
    pub(crate) fn push(&mut self, point: Point) {
        if self.points.last().is_some_and(|last| last.at_s >= point.at_s) {
            return;
        }
        if self.points.len() == CAPACITY {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index > CAPACITY / 2 || index % 2 == 1
            });
        }
        self.points.push(point);
    }

    /// All points, oldest first.
    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_s: f64) -> Point {
        Point { at_s, live_bytes: at_s, rss_bytes: None, alloc_bytes_per_s: None }
    }

    #[test]
    fn stays_bounded_and_keeps_both_ends() {
        let mut history = History::default();
        for i in 0..50_000 {
            history.push(point(f64::from(i)));
        }
        let points = history.points();
        assert!(points.len() <= CAPACITY);
        assert_eq!(points[0].at_s, 0.0);
        assert_eq!(points[points.len() - 1].at_s, 49_999.0);
        assert!(points.is_sorted_by(|a, b| a.at_s < b.at_s));
    }

    #[test]
    fn leaves_out_what_is_not_later() {
        let mut history = History::default();
        history.push(point(2.0));
        history.push(point(2.0));
        history.push(point(1.0));
        assert_eq!(history.points().len(), 1);
    }
}
