//! Streams that the program destroyed without a word.
//!
//! The pool touches a stream that the program has named lately, to put an event behind what was freed on it. It asks
//! the driver first whether the handle is still that stream's. But a driver that is asked for a stream that is gone need
//! not answer: that of CUDA 13.0 follows a pointer in freed memory. So the pool looks first whether what lies at the
//! handle is what lay there when the program named it.

use super::{LaneId, Lanes};
use crate::device::Device;

/// Nanoseconds for which a program that lost a stream is taken to lose others.
pub(super) const LOST_FOR: u64 = 10_000_000_000;

/// Numbers of streams taken for gone that are kept.
const KEPT: usize = 64;

impl<D: Device> Lanes<D> {
    /// Whether the stream of a lane is gone, as far as its handle says.
    pub(super) fn is_gone(&self, lane: LaneId) -> bool {
        let state = self.lane(lane);
        let now = || self.driver.device().at_handle(state.stream);
        !self.marks_change && state.mark.is_some_and(|mark| now().is_some_and(|now| now != mark))
    }

    /// Notes that the stream of a lane is taken for gone.
    pub(super) fn note_gone(&mut self, lane: LaneId) {
        if self.taken_for_gone.len() == KEPT {
            self.taken_for_gone.pop_front();
        }
        self.taken_for_gone.push_back(self.lane(lane).id);
    }

    /// The program has named a stream of this number.
    pub(super) fn is_there_after_all(&mut self, id: u64) {
        self.marks_change |= self.taken_for_gone.contains(&id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{KEPT, Lanes};
    use crate::device::{Call, Driver, Simulated, Violation};

    #[test]
    fn the_driver_is_not_asked_for_a_stream_that_is_gone() {
        for looks in [true, false] {
            let device = Arc::new(Simulated::new(64 << 20));
            let mut lanes = Lanes::new(Arc::new(Driver::new(device.clone())));
            lanes.marks_change = !looks;
            let stream = device.non_blocking_stream();
            let lane = lanes.find(stream).unwrap();
            device.destroy_stream(stream);
            assert!(lanes.record(lane).is_err());
            assert!(!lanes.is_alive(lane) && device.calls(Call::Record) == 0);
            let asked = [Violation::Handle(stream.0)];
            assert_eq!(device.violations(), if looks { &[][..] } else { &asked[..] });
        }
    }

    #[test]
    fn what_lies_at_handles_says_nothing_once_it_has_said_the_wrong_thing() {
        let device = Arc::new(Simulated::new(64 << 20));
        let mut lanes = Lanes::new(Arc::new(Driver::new(device.clone())));
        let streams = [(); 3 * KEPT].map(|()| device.non_blocking_stream());
        let found = streams.map(|stream| lanes.find(stream).unwrap());
        for lane in found {
            lanes.lane_mut(lane).mark = Some(u64::MAX);
            assert!(lanes.record(lane).is_err());
        }
        assert_eq!(lanes.taken_for_gone.len(), KEPT);
        let again = streams.map(|stream| lanes.find(stream).unwrap());
        for lane in again {
            lanes.lane_mut(lane).mark = Some(u64::MAX);
            assert!(lanes.record(lane).is_ok(), "that stream was there after all");
        }
    }
}
