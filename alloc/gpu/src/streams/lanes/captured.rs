//! Lanes of streams that are captured, and streams that the driver says no number of meanwhile.

use super::{Lane, LaneId, Lanes};
use crate::device::{Device, Stream};

/// What is in the numbers that the pool gives to streams whose own it does not know yet. The driver counts from 1.
const UNNUMBERED: u64 = 1 << 63;

impl Lane {
    pub(super) fn is_unnumbered(&self) -> bool {
        self.id & UNNUMBERED != 0
    }
}

impl<D: Device> Lanes<D> {
    /// A lane for a stream that is first met while it is captured. The driver does not say its number then, and ends the
    /// capture if it is asked.
    pub fn begin_captured(&mut self, stream: Stream) -> LaneId {
        self.unnumbered += 1;
        self.begin(stream, UNNUMBERED | self.unnumbered)
    }

    /// The capture of a lane's stream is over: the driver says its number now, or when the stream is next named.
    pub fn end_captured(&mut self, lane: LaneId) {
        if self.lane(lane).is_unnumbered()
            && let Ok(id) = self.driver.stream_id(self.lane(lane).stream)
        {
            self.number(lane, id);
        }
    }

    /// The number of a lane's stream, which was not known.
    pub(super) fn number(&mut self, lane: LaneId, id: u64) {
        let before = std::mem::replace(&mut self.lane_mut(lane).id, id);
        self.by_id.remove(&before);
        self.by_id.insert(id, lane);
    }

    /// Whether a graph is being captured.
    pub fn is_any_capturing(&self) -> bool {
        self.captures > 0
    }

    /// Notes that a stream's work is captured from now on, or no longer.
    pub fn set_capturing(&mut self, lane: LaneId, capturing: bool) {
        let state = self.lane_mut(lane);
        if state.capturing != capturing {
            state.capturing = capturing;
            self.captures = if capturing { self.captures + 1 } else { self.captures - 1 };
        }
    }

    /// Whether a lane is captured.
    pub fn is_capturing(&self, lane: LaneId) -> bool {
        self.lane(lane).capturing
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Lanes;
    use crate::device::{Driver, Simulated};

    #[test]
    fn a_stream_that_was_met_in_a_capture_has_its_lane_afterwards_whoever_asks_first() {
        for asks_when_it_ends in [true, false] {
            let device = Arc::new(Simulated::new(64 << 20));
            let mut lanes = Lanes::new(Arc::new(Driver::new(device.clone())));
            let [stream, other] = [(); 2].map(|()| device.non_blocking_stream());
            device.begin_capture(stream);
            assert!(lanes.find(stream).is_err(), "the driver says no number");
            let lane = lanes.begin_captured(stream);
            lanes.set_capturing(lane, true);
            assert_ne!(lanes.find(other), Ok(lane));
            assert!(device.end_capture(stream).is_some(), "the driver was not asked");
            lanes.set_capturing(lane, false);
            if asks_when_it_ends {
                lanes.end_captured(lane);
            }
            assert_eq!(lanes.find(stream), Ok(lane));
            assert!(lanes.is_alive(lane) && !lanes.lane(lane).is_unnumbered());
        }
    }
}
