//! What a pool of device memory has given out by its counter, over time.

use super::{SHORTEST_NS, Slope};
use crate::model::history;
use crate::model::memory::Place;

/// Readings of a device's counter from which on its slope is told, and those that are kept at most: a program that
/// takes much and gives it back in each of its steps needs many.
const DEVICE_READINGS: std::ops::RangeInclusive<usize> = 16..=128;

/// What a pool of device memory had given out, in the order of time.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) place: Place,
    past: Vec<(u64, f64)>,
    /// The least time between two of them.
    spacing_ns: u64,
}

impl Counted {
    pub(super) fn new(place: Place) -> Counted {
        Counted { place, past: Vec::new(), spacing_ns: 0 }
    }

    /// Takes a reading, and leaves out those that were before the window.
    pub(super) fn take(&mut self, now_ns: u64, from_ns: u64, bytes: u64) {
        self.past.retain(|&(time, _)| time >= from_ns);
        if self.past.last().is_some_and(|&(last, _)| now_ns < last.saturating_add(self.spacing_ns)) {
            return;
        }
        if self.past.len() == *DEVICE_READINGS.end() {
            self.past = self.past.iter().copied().step_by(2).collect();
            let span = now_ns.saturating_sub(self.past[0].0);
            self.spacing_ns = span / self.past.len() as u64;
        }
        self.past.push((now_ns, bytes as f64));
    }

    pub(super) fn slope(&self) -> Slope {
        let (Some(first), Some(last)) = (self.past.first(), self.past.last()) else { return Slope::default() };
        let (span, steps) = (last.0 - first.0, self.past.len() - 1);
        if self.past.len() < *DEVICE_READINGS.start() || span < SHORTEST_NS {
            return Slope::default();
        }
        let moment = |at: usize| first.0 + (span as f64 * at as f64 / steps as f64) as u64;
        let bytes: Vec<f64> = (0..=steps).map(|at| between(&self.past, moment(at))).collect();
        history::trend_of(&bytes, span)
    }
}

/// A figure at a moment, on the line between the figures before it and behind it.
fn between(known: &[(u64, f64)], time: u64) -> f64 {
    let after = known.partition_point(|&(at, _)| at < time).clamp(1, known.len() - 1);
    let ((from, first), (to, second)) = (known[after - 1], known[after]);
    let part = time.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64;
    first + (second - first) * part.min(1.0)
}
