//! How far other streams are, where one looks for memory: which of them have freed some, and what they are past.
//!
//! The event that tells is recorded behind all that its stream has to do. While streams are at work, events are
//! recorded every few frees, so that what was freed is known to be over soon after it is, and not when all is that the
//! stream has been given since; as long as somebody asks for them.

use super::{Lane, Lanes, Point};
use crate::device::Device;
use crate::streams::LaneId;

/// Events of a lane that are not known to be over, with which no other one is recorded to ask how far it is.
const EVENTS_UNDER_WAY: usize = 16;

/// Frees behind which an event is recorded while streams are at work.
const FREES_TO_AN_EVENT: u32 = 16;

/// Time of whose share a lane's work may be held up at once, in nanoseconds, as it may be in the beginning.
const MOST_SAVED: u64 = 1_000_000_000;

/// Time for which streams count as at work after one was behind, in nanoseconds: in a moment when none is, what waits
/// for nothing would merge with what is freed next, and wait for that.
const AT_WORK_FOR: u64 = 100_000_000;

/// Such events until another stream has to ask again.
const EVENTS_AHEAD: u32 = 64;

impl<D: Device> Lanes<D> {
    /// Whether memory was freed on other lanes that is not known to be everyone's yet.
    #[inline]
    pub fn are_others_restless(&self, lane: LaneId) -> bool {
        match self.restless[..] {
            [] => false,
            [one] => one != lane,
            _ => true,
        }
    }

    /// Asks how far other lanes are on which memory was freed lately, so many of them at most, behind events that are
    /// recorded now where there are none. Returns how many were asked, and those that have come further than was known.
    pub fn ask_others(&mut self, taker: LaneId, most: usize) -> (usize, Vec<LaneId>) {
        let (mut asked, mut further) = (0, Vec::new());
        let mut restless = std::mem::take(&mut self.restless);
        restless.retain(|&lane| {
            if lane == taker || asked == most {
                return true;
            }
            asked += 1;
            let done = self.lane(lane).done;
            self.poll(lane);
            if self.lane(lane).used && self.lane(lane).closed.len() < EVENTS_UNDER_WAY && self.may_record(lane) {
                // If it fails now, there will be another occasion.
                let _ = self.record(lane);
            }
            self.poll(lane);
            let state = self.lane_mut(lane);
            state.wanted = EVENTS_AHEAD;
            if state.done > done {
                further.push(lane);
            }
            state.restless = state.alive && (state.used || !state.closed.is_empty());
            // One that has ended is asked no more, and would be behind for ever.
            state.is_behind = state.restless && !state.closed.is_empty();
            state.restless
        });
        if self.lane(taker).is_behind {
            self.poll(taker);
            let state = self.lane_mut(taker);
            state.is_behind = !state.closed.is_empty();
        }
        let now = self.driver.device().now();
        if self.lanes.iter().any(|lane| lane.is_behind) {
            self.behind_until = now + AT_WORK_FOR;
        }
        self.at_work = self.in_use > 1 && now < self.behind_until;
        self.note_apart();
        // Those that were not asked come first the next time.
        let stayed = asked.min(restless.len());
        restless.rotate_left(stayed);
        self.restless = restless;
        (asked, further)
    }

    /// Whether a stream had still to do lately, when others were asked.
    #[inline]
    pub fn are_at_work(&self) -> bool {
        self.at_work
    }

    /// Whether what a stream frees should not be merged with what others have freed: streams are at work, or the
    /// program makes some and destroys them without a word, by what it did lately.
    #[inline]
    pub fn keep_apart(&self) -> bool {
        self.keep_apart
    }

    pub(super) fn note_apart(&mut self) {
        self.keep_apart = self.at_work || self.lost_lately;
    }

    /// Counts a free while streams are at work, and records an event if it is time to.
    #[inline(never)]
    pub(super) fn count_free(&mut self, lane: LaneId) {
        let state = self.lane_mut(lane);
        state.freed += 1;
        if state.freed >= FREES_TO_AN_EVENT && state.wanted > 0 && self.captures == 0 && self.may_record(lane) {
            let state = self.lane_mut(lane);
            state.freed = 0;
            state.wanted -= 1;
            // If it fails now, there will be another occasion.
            let _ = self.record(lane);
        }
    }

    /// How long a lane's work would be held up if it came after a point, in nanoseconds: until that is over, without
    /// the time that the lane needs for what it has to do already. Streams do their work about as fast as it is given
    /// to them, and are past the last event that is known to be over. `None` where it is not known, or can't be.
    pub fn hold_up(&self, taker: LaneId, point: Point) -> Option<u64> {
        if self.is_ordered(taker, point) {
            return Some(0);
        }
        let closed = &self.lane(point.lane).closed;
        let event = closed.iter().find(|closed| closed.epoch >= point.epoch)?;
        let left = event.at.saturating_sub(self.lane(point.lane).past);
        let own = self.lane(taker).closed.front().map_or(0, |own| self.driver.device().now().saturating_sub(own.at));
        self.can_order(taker, point).then(|| left.saturating_sub(own))
    }

    /// How long a lane's work may be held up now, in nanoseconds: its share of the time, less what it was held up
    /// already.
    pub fn may_be_held_up(&self, lane: LaneId) -> u64 {
        let Lane { allowed, allowed_at, .. } = *self.lane(lane);
        let since = self.driver.device().now().saturating_sub(allowed_at);
        allowed
            .saturating_add((since as f64 * self.wait_share) as u64)
            .min((MOST_SAVED as f64 * self.wait_share) as u64)
    }

    /// Counts that a lane's work comes after a point from now on.
    pub(super) fn count_hold_up(&mut self, lane: LaneId, point: Point) {
        let (now, time) = (self.driver.device().now(), self.hold_up(lane, point).unwrap_or(0));
        let left = self.may_be_held_up(lane).saturating_sub(time);
        self.held_up += time;
        let state = self.lane_mut(lane);
        (state.allowed, state.allowed_at) = (left, now);
    }

    /// Nanoseconds for which streams were held up by each other's work, as far as could be told.
    pub fn held_up(&self) -> u64 {
        self.held_up
    }

    /// Whether a lane's work may not be held up for all of its time.
    pub fn are_waits_bounded(&self) -> bool {
        self.wait_share < 1.0
    }

    /// Sets for what part of its time a lane's work may be held up.
    pub fn set_wait_share(&mut self, share: f64) {
        self.wait_share = share;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{AT_WORK_FOR, Lanes};
    use crate::device::{Driver, Kernel, Simulated};

    /// Three streams that use a pool, of which the first has so much work before memory that was freed on it.
    fn one_of_three_at_work(work: u64) -> (Arc<Simulated>, Lanes<Simulated>, [u32; 3]) {
        let device = Arc::new(Simulated::new(64 << 20));
        let mut lanes = Lanes::new(Arc::new(Driver::new(device.clone())));
        let streams = [(); 3].map(|()| device.non_blocking_stream());
        let found = streams.map(|stream| lanes.find(stream).unwrap());
        device.launch(streams[0], Kernel { duration: work, accesses: Vec::new() });
        lanes.now(found[0]);
        (device, lanes, found)
    }

    #[test]
    fn streams_are_at_work_until_none_was_behind_for_a_while() {
        let (device, mut lanes, [busy, taker, _]) = one_of_three_at_work(AT_WORK_FOR / 2);
        assert_eq!(lanes.ask_others(taker, 8), (1, vec![]));
        assert!(lanes.are_at_work());
        device.advance(AT_WORK_FOR / 2);
        assert_eq!(lanes.ask_others(taker, 8), (1, vec![busy]), "it has come past what was freed");
        assert!(lanes.are_at_work(), "it was behind a moment ago");
        device.advance(AT_WORK_FOR);
        lanes.ask_others(taker, 8);
        assert!(!lanes.are_at_work());
    }

    #[test]
    fn a_stream_that_ends_with_work_under_way_is_not_behind_for_ever() {
        let (device, mut lanes, [ending, taker, _]) = one_of_three_at_work(10 * AT_WORK_FOR);
        lanes.ask_others(taker, 8);
        lanes.retire(ending).unwrap();
        assert!(lanes.are_at_work());
        // Its work is not over, but nobody will ask for it again.
        lanes.ask_others(taker, 8);
        device.advance(AT_WORK_FOR);
        assert_eq!(lanes.ask_others(taker, 8), (0, vec![]));
        assert!(!lanes.are_at_work());
    }
}
