//! What free memory has to wait for: for each stream that used it, a point in that stream's work.

/// A stream's place in the table of [lanes](crate::streams).
pub type LaneId = u32;

/// A point in the work of a lane: everything that was given to the stream before the epoch with this number was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub lane: LaneId,
    pub epoch: u64,
}

/// In the place of a lane: there is no point.
const NONE: LaneId = LaneId::MAX;
const NOTHING: Point = Point { lane: NONE, epoch: 0 };

/// At most one point for each lane. Almost always there is none or one, which is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    first: Point,
    /// `None` where there is none.
    more: Option<Box<More>>,
}

/// Points beside the first. In a box, so that a tile has one word for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More(Vec<Point>);

impl Default for Pending {
    #[inline]
    fn default() -> Pending {
        Pending::at(NOTHING)
    }
}

impl Pending {
    /// One point.
    #[inline]
    pub fn at(point: Point) -> Pending {
        Pending { first: point, more: None }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.lane == NONE
    }

    #[inline]
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let first = (!self.is_empty()).then_some(self.first);
        first.into_iter().chain(self.more.iter().flat_map(|more| more.0.iter().copied()))
    }

    /// Whether it waits for more than one lane.
    #[inline]
    pub fn is_of_several(&self) -> bool {
        self.more.is_some()
    }

    /// A number for the first lane that it waits for, one above the lane's own; 0 for none.
    #[inline]
    pub fn lanes_number(&self) -> u32 {
        self.first.lane.wrapping_add(1)
    }

    /// Waits for this, too.
    #[inline]
    pub fn add(&mut self, point: Point) {
        if self.is_empty() {
            self.first = point;
        } else if self.first.lane == point.lane {
            self.first.epoch = self.first.epoch.max(point.epoch);
        } else {
            self.add_beside(point);
        }
    }

    #[inline(never)]
    fn add_beside(&mut self, point: Point) {
        let more = &mut self.more.get_or_insert_default().0;
        match more.iter_mut().find(|known| known.lane == point.lane) {
            Some(known) => known.epoch = known.epoch.max(point.epoch),
            None => more.push(point),
        }
    }

    /// Waits for all that the other waits for.
    #[inline]
    pub fn join(&mut self, other: &Pending) {
        if !other.is_empty() {
            self.add(other.first);
        }
        if let Some(more) = &other.more {
            self.join_more(more);
        }
    }

    #[inline(never)]
    fn join_more(&mut self, more: &More) {
        more.0.iter().for_each(|point| self.add(*point));
    }

    /// The same, and the other waits for nothing any more.
    #[inline]
    pub fn join_from(&mut self, other: &mut Pending) {
        self.join(other);
        other.first = NOTHING;
        if other.more.is_some() {
            other.forget_more();
        }
    }

    #[inline(never)]
    fn forget_more(&mut self) {
        self.more = None;
    }

    /// Forgets what need not be waited for any more.
    pub fn retain(&mut self, keep: impl Fn(Point) -> bool) {
        let mut more = self.more.take();
        if let Some(more) = &mut more {
            more.0.retain(|point| keep(*point));
        }
        if !self.is_empty() && !keep(self.first) {
            let next = more.as_mut().and_then(|more| more.0.pop());
            self.first = next.unwrap_or(NOTHING);
        }
        self.more = more.filter(|more| !more.0.is_empty());
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
        assert!(pending.is_of_several());
        pending.retain(|point| point.lane == 2);
        assert_eq!((pending.is_of_several(), pending.lanes_number()), (false, 3));
        pending.retain(|_| false);
        assert!(pending.is_empty());
    }
}
