//! What the charts draw: a bounded record of totals over time.
//!
//! When it is full, every second point of its older half goes: the past gets coarser, never shorter.

use poolscope_profiler::model::accounting::{Accounting, Part};
use poolscope_wire::Total;

/// Totals at one moment.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Point {
    /// Seconds of `CLOCK_MONOTONIC`.
    pub(crate) at_s: f64,
    /// Bytes in use, as the pool counts them; estimated from the samples where it doesn't.
    pub(crate) live_bytes: f64,
    /// Resident bytes; none once the process is gone.
    pub(crate) rss_bytes: Option<f64>,
    /// Bytes allocated per second since the point before.
    pub(crate) alloc_bytes_per_s: Option<f64>,
    /// What the memory of the pool is for, as far as there is memory.
    pub(crate) split: Option<Split>,
}

/// Memory of the pool, in bytes: none of it counts twice.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Split {
    /// In blocks that the program has and touched.
    pub(crate) in_use: f64,
    /// In free blocks that the caches keep.
    pub(crate) caches: f64,
    /// In free pages.
    pub(crate) free: f64,
    /// Of the pool's own.
    pub(crate) metadata: f64,
}

impl Split {
    /// The parts of a reading.
    pub(crate) fn of(accounting: &Accounting) -> Split {
        Split {
            in_use: accounting.get(Part::InUse) as f64,
            caches: accounting.caches() as f64,
            free: accounting.get(Part::Free) as f64,
            metadata: accounting.get(Part::Metadata) as f64,
        }
    }
}

impl From<&Total> for Point {
    /// What the process kept of a moment before anybody looked.
    fn from(total: &Total) -> Point {
        Point {
            at_s: total.time_ns as f64 / 1e9,
            live_bytes: total.in_use as f64,
            rss_bytes: None,
            alloc_bytes_per_s: None,
            split: Some(Split {
                in_use: total.in_use.saturating_sub(total.untouched) as f64,
                caches: total.caches as f64,
                free: total.free as f64,
                metadata: total.metadata as f64,
            }),
        }
    }
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
        Point { at_s, live_bytes: at_s, rss_bytes: None, alloc_bytes_per_s: None, split: None }
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
