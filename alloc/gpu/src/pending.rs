//! What free memory has to wait for: for each stream that used it, a point in that stream's work.

use std::cmp::Ordering;

/// A stream's place in the table of [lanes](crate::lanes).
pub type LaneId = u32;

/// A point in the work of a lane: everything that was given to the stream before the epoch with this number was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub lane: LaneId,
    pub epoch: u64,
}

/// At most one point for each lane. Almost always there is none or one, which takes no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    first: Option<Point>,
    more: Vec<Point>,
}

impl Pending {
    /// One point.
    pub fn at(point: Point) -> Pending {
        Pending { first: Some(point), more: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.first.iter().chain(&self.more).copied()
    }

    /// The one lane that it waits for; `None` for none and for several.
    pub fn only_lane(&self) -> Option<LaneId> {
        self.first.filter(|_| self.more.is_empty()).map(|point| point.lane)
    }

    /// Waits for this, too.
    pub fn add(&mut self, point: Point) {
        let Some(first) = &mut self.first else {
            self.first = Some(point);
            return;
        };
        let same = |it: &&mut Point| it.lane == point.lane;
        match std::iter::once(first).chain(&mut self.more).find(same) {
            Some(known) if known.epoch.cmp(&point.epoch) == Ordering::Less => known.epoch = point.epoch,
            Some(_) => {}
            None => self.more.push(point),
        }
    }

    /// Waits for all that the other waits for.
    pub fn join(&mut self, other: &Pending) {
        other.points().for_each(|point| self.add(point));
    }

    /// Forgets what need not be waited for any more.
    pub fn retain(&mut self, keep: impl Fn(Point) -> bool) {
        self.more.retain(|point| keep(*point));
        if self.first.is_some_and(|first| !keep(first)) {
            self.first = self.more.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pending, Point};

    #[test]
    fn a_lane_counts_once_with_its_latest_point() {
        let mut pending = Pending::at(Point { lane: 1, epoch: 5 });
        pending.add(Point { lane: 1, epoch: 3 });
        pending.add(Point { lane: 2, epoch: 1 });
        pending.add(Point { lane: 1, epoch: 9 });
        pending.add(Point { lane: 2, epoch: 4 });
        let points: Vec<_> = pending.points().map(|point| (point.lane, point.epoch)).collect();
        assert_eq!(points, [(1, 9), (2, 4)]);
        assert_eq!(pending.only_lane(), None);
        pending.retain(|point| point.lane == 2);
        assert_eq!(pending.only_lane(), Some(2));
        pending.retain(|_| false);
        assert!(pending.is_empty());
    }
}
