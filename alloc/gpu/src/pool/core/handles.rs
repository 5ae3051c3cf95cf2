//! The streams as the program names them: handles and their lanes, and which of them are captured.

use std::collections::HashMap;

use super::super::PoolError;
use super::Core;
use crate::device::{Call, Device, DeviceError, Fault, Stream};
use crate::large::PoolId;
use crate::small::{PAGE, Page};
use crate::streams::LaneId;

/// What is known of the handles that the program has named.
#[derive(Default)]
pub(super) struct Handles {
    /// The lanes by handle, and the round in which the driver was last asked for the handle's stream.
    lanes: HashMap<Stream, (LaneId, u64)>,
    /// Rounds of background work so far.
    round: u64,
    /// The stream that was named last in this round.
    last: Option<(Stream, LaneId)>,
    /// For each lane that is captured, the pool of its graph.
    captures: HashMap<LaneId, PoolId>,
    /// The number of the last graph's pool, from 1; 0 is everybody's.
    last_graph: PoolId,
}

impl Handles {
    /// Begins another round of background work: each handle is asked for anew.
    pub(super) fn next_round(&mut self) {
        self.round += 1;
        self.last = None;
    }

    /// The lane of a handle, if it is captured.
    pub(super) fn captured(&self, stream: Stream) -> Option<LaneId> {
        let (lane, _) = self.lanes.get(&stream)?;
        self.captures.contains_key(lane).then_some(*lane)
    }

    /// Whether any stream is captured.
    #[inline]
    pub(super) fn is_any_captured(&self) -> bool {
        !self.captures.is_empty()
    }
}

impl<D: Device> Core<D> {
    /// The lane of a stream.
    #[inline]
    pub fn lane(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        match self.handles.last {
            Some((last, lane)) if last == stream => Ok(lane),
            _ => self.lane_of_another(stream),
        }
    }

    #[inline(never)]
    fn lane_of_another(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        let known = self.handles.lanes.get(&stream).copied();
        if let Some((lane, round)) = known
            && (round == self.handles.round || self.large.lanes.is_capturing(lane))
        {
            self.handles.last = Some((stream, lane));
            return Ok(lane);
        }
        // Once a round the driver is asked whether the handle is still that stream's; not during its capture.
        let lane = match (self.large.lanes.find(stream), known) {
            (Ok(lane), Some((old, _))) if lane != old => {
                self.large.lanes.mark_lost(old);
                lane
            }
            (Ok(lane), _) => lane,
            (Err(_), Some((old, _))) => old,
            (Err(error), None) => return Err(error.into()),
        };
        self.large.lanes.touch(lane);
        if stream != Stream::PER_THREAD {
            self.handles.lanes.insert(stream, (lane, self.handles.round));
            self.handles.last = Some((stream, lane));
        }
        Ok(lane)
    }

    /// The lane of a stream, if its small blocks come from slabs.
    pub fn small_lane(&mut self, stream: Stream) -> Result<Option<LaneId>, PoolError> {
        let lane = self.lane(stream)?;
        let small = !self.handles.captures.contains_key(&lane) && lane < Page::LANES && self.config.alignment <= PAGE;
        Ok(small.then_some(lane))
    }

    /// Forgets a stream that is about to be destroyed.
    pub fn stream_ends(&mut self, stream: Stream) -> Result<LaneId, PoolError> {
        let lane = self.lane(stream)?;
        self.large.flush_hot();
        self.large.lanes.retire(lane)?;
        self.handles.lanes.retain(|_, (known, _)| *known != lane);
        self.handles.last = None;
        Ok(lane)
    }

    pub fn begin_capture(&mut self, stream: Stream) -> Result<PoolId, PoolError> {
        let lane = match self.lane(stream) {
            Err(PoolError::Device(DeviceError { call: Call::StreamId, fault: Fault::Capturing })) => {
                let lane = self.large.lanes.begin_captured(stream);
                self.handles.lanes.insert(stream, (lane, self.handles.round));
                lane
            }
            lane => lane?,
        };
        if self.handles.captures.contains_key(&lane) {
            return Err(PoolError::Capture { stream, is: "is being captured already" });
        }
        self.handles.last_graph += 1;
        let pool = self.handles.last_graph;
        self.handles.captures.insert(lane, pool);
        self.large.lanes.set_capturing(lane, true);
        Ok(pool)
    }

    pub fn end_capture(&mut self, stream: Stream) -> Result<(), PoolError> {
        let lane = self.lane(stream)?;
        if self.handles.captures.remove(&lane).is_none() {
            return Err(PoolError::Capture { stream, is: "is not being captured" });
        }
        self.large.lanes.set_capturing(lane, false);
        self.large.lanes.end_captured(lane);
        Ok(())
    }

    /// The pool of the graph that a lane is captured for; 0 for none.
    #[inline(never)]
    pub(super) fn pool_of(&self, lane: LaneId) -> PoolId {
        self.handles.captures.get(&lane).copied().unwrap_or(0)
    }

    /// The streams that were found to be gone. Their handles are forgotten.
    pub fn take_newly_lost(&mut self) -> Vec<LaneId> {
        let lost = self.large.lanes.take_newly_lost();
        if !lost.is_empty() {
            self.handles.lanes.retain(|_, (lane, _)| !lost.contains(lane));
            self.handles.last = None;
        }
        lost
    }
}
