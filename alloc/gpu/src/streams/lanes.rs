//! The streams that the pool knows, and how far their work is.
//!
//! Each stream has a lane. Its work is cut into epochs: memory freed in stream order carries the number of the epoch
//! that is open. An event that is recorded closes the epoch and stands for everything freed in it, so that a batch of
//! frees of any size costs one event, and none if nobody asks. Events are pooled, and recorded only
//! - when another stream wants memory of an open epoch ([`Lanes::order`]), or looks for memory while that epoch has some
//!   ([`Lanes::ask_others`]), and
//! - by the background work ([`Lanes::close_idle`]), which later asks how far they are ([`Lanes::poll`]).
//!
//! A destroyed stream's lane lives on until its last event is done; then a later stream may have it. Numbers of epochs
//! go on through that, so that what was noted of the old stream stays true.
//!
//! A stream may also be gone without a word, and a driver that is asked for such a handle may end the process. So
//! nothing is asked of a handle in the background: events are recorded when the program names the stream (once a
//! round), or has named it in this round or the last one and another stream wants its memory. What is not reached so is
//! silent, until the whole device has been waited for. That a handle has become another stream's is noticed by the
//! stream's number.
//!
//! The calling thread's default stream (`CU_STREAM_PER_THREAD`) is another one in each thread. Its lane records on the
//! legacy default stream, which waits for it and can be named from every thread.

mod asking;
mod captured;
mod gone;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::device::{Call, Device, DeviceError, Driver, Event, Fault, NOTHING, Progress, Result, Stream};
use crate::streams::{LaneId, Pending, Point};
use gone::LOST_FOR;

/// Rounds of background work after which a stream that nobody has named is not in use: ten seconds, as rounds come
/// usually. Threads name the streams of what they have in caches once a second.
const LATELY: u64 = 500;

/// The event at the end of an epoch.
#[derive(Clone, Copy)]
struct Closed {
    epoch: u64,
    event: Event,
    /// When it was recorded, by the device's clock in nanoseconds.
    at: u64,
}

struct Lane {
    /// What events are recorded on.
    stream: Stream,
    /// Whether it is a stream that may be destroyed, and not one of the default ones.
    has_handle: bool,
    id: u64,
    /// What lay at its handle when the program first named it, if that says something.
    mark: Option<u64>,
    /// The number of the open epoch.
    open: u64,
    /// Whether memory was freed in the open epoch.
    used: bool,
    /// The events of closed epochs, oldest first.
    closed: VecDeque<Closed>,
    /// All epochs up to this one are over, as the host knows.
    done: u64,
    /// For each other lane, the epoch up to which this one has been made to wait.
    waited: HashMap<LaneId, u64>,
    alive: bool,
    /// An epoch up to which the stream waits to be waited for with the whole device,
    /// because no event could be put behind it.
    undrained: Option<u64>,
    /// The round and the time in which the program last named the stream.
    named: (u64, u64),
    /// Whether the stream is being captured, as the program said.
    capturing: bool,
    /// Whether it is among the restless.
    restless: bool,
    /// Whether it had still to do when it was last asked how far it is.
    is_behind: bool,
    /// Frees since the last event that was recorded for their number, and how many such events are still to come until
    /// another stream asks for this one's again.
    freed: u32,
    wanted: u32,
    /// How long its work might be held up at a time, in nanoseconds, and when that was.
    allowed: u64,
    allowed_at: u64,
    /// When the last event was recorded that is known to be over.
    past: u64,
}

/// The table of lanes of a device.
pub struct Lanes<D> {
    driver: Arc<Driver<D>>,
    lanes: Vec<Lane>,
    by_id: HashMap<u64, LaneId>,
    vacant: Vec<LaneId>,
    spare: Vec<Event>,
    captures: usize,
    /// Streams that were first met while they were captured, so far.
    unnumbered: u64,
    /// The numbers of the streams that were lately taken for gone by what lies at their handles, and whether one of them
    /// was there after all: then that says nothing.
    taken_for_gone: VecDeque<u64>,
    marks_change: bool,
    /// The lane at which the next look at all of them begins.
    next: usize,
    /// Rounds of background work so far.
    round: u64,
    /// Streams that were found to be gone since somebody asked.
    newly_lost: Vec<LaneId>,
    times_lost: u64,
    /// Until when that counts as lately, by the device's clock, and whether it does, as of the latest round.
    lost_until: u64,
    lost_lately: bool,
    /// Whether streams are at work, or some were lost lately.
    keep_apart: bool,
    /// Lanes on which memory was freed since they were last known to have come past all that was.
    restless: Vec<LaneId>,
    /// Whether one of several streams was behind lately, and until when that counts, by the device's clock.
    at_work: bool,
    behind_until: u64,
    /// The part of its time for which a stream at work may be held up by another one.
    wait_share: f64,
    /// How many streams use the pool.
    in_use: usize,
    /// Times that a stream was made to wait for another one, and nanoseconds for which it was held up by that.
    waits: u64,
    held_up: u64,
}

/// Whether this names a default stream, which can't be destroyed.
fn is_default(stream: Stream) -> bool {
    matches!(stream, Stream::NULL | Stream::LEGACY | Stream::PER_THREAD)
}

impl<D: Device> Lanes<D> {
    pub fn new(driver: Arc<Driver<D>>) -> Lanes<D> {
        Lanes {
            driver,
            lanes: Vec::new(),
            by_id: HashMap::new(),
            vacant: Vec::new(),
            spare: Vec::new(),
            captures: 0,
            unnumbered: 0,
            taken_for_gone: VecDeque::new(),
            marks_change: false,
            next: 0,
            round: 0,
            newly_lost: Vec::new(),
            times_lost: 0,
            lost_until: 0,
            lost_lately: false,
            keep_apart: false,
            restless: Vec::new(),
            at_work: false,
            behind_until: 0,
            wait_share: 0.0,
            in_use: 0,
            waits: 0,
            held_up: 0,
        }
    }

    fn lane(&self, id: LaneId) -> &Lane {
        &self.lanes[id as usize]
    }

    fn lane_mut(&mut self, id: LaneId) -> &mut Lane {
        &mut self.lanes[id as usize]
    }

    /// The lane of a stream, a new one if the stream is.
    pub fn find(&mut self, stream: Stream) -> Result<LaneId> {
        let id = self.driver.stream_id(stream)?;
        self.is_there_after_all(id);
        if let Some(&lane) = self.by_id.get(&id) {
            return Ok(lane);
        }
        let met_in_capture =
            self.lanes.iter().position(|lane| lane.alive && lane.is_unnumbered() && lane.stream == stream);
        if let Some(lane) = met_in_capture {
            self.number(lane as LaneId, id);
            return Ok(lane as LaneId);
        }
        Ok(self.begin(stream, id))
    }

    fn begin(&mut self, stream: Stream, id: u64) -> LaneId {
        let (round, now) = (self.round, self.driver.device().now());
        let has_handle = !is_default(stream);
        let mark = self.driver.device().at_handle(stream).filter(|word| *word != NOTHING);
        let recorded_on = if stream == Stream::PER_THREAD { Stream::LEGACY } else { stream };
        let lane = match self.vacant.pop() {
            Some(lane) => {
                let old = self.lane_mut(lane);
                (old.stream, old.has_handle, old.id, old.alive) = (recorded_on, has_handle, id, true);
                old.mark = mark;
                old.waited.clear();
                old.named = (round, now);
                lane
            }
            None => {
                let lane = Lane {
                    stream: recorded_on,
                    has_handle,
                    id,
                    mark,
                    open: 1,
                    used: false,
                    closed: VecDeque::new(),
                    done: 0,
                    waited: HashMap::new(),
                    alive: true,
                    undrained: None,
                    named: (round, now),
                    capturing: false,
                    restless: false,
                    is_behind: false,
                    freed: 0,
                    wanted: 0,
                    allowed: u64::MAX,
                    allowed_at: now,
                    past: now,
                };
                self.lanes.push(lane);
                (self.lanes.len() - 1) as LaneId
            }
        };
        self.by_id.insert(id, lane);
        self.count_again();
        lane
    }

    /// Where a lane's work is now. The caller frees memory there. A stream that is gone has come to its last event.
    pub fn now(&mut self, lane: LaneId) -> Point {
        let state = self.lane_mut(lane);
        if !state.alive {
            return Point { lane, epoch: state.open - 1 };
        }
        state.used = true;
        let epoch = state.open;
        if !std::mem::replace(&mut state.restless, true) {
            self.restless.push(lane);
        }
        if self.at_work {
            self.count_free(lane);
        }
        Point { lane, epoch }
    }

    /// Whether the host knows that all work before a point is over.
    pub fn is_done(&self, point: Point) -> bool {
        point.epoch <= self.lane(point.lane).done
    }

    /// Whether a lane's next work comes after a point without further doing.
    pub fn is_ordered(&self, taker: LaneId, point: Point) -> bool {
        let waited = || self.lane(taker).waited.get(&point.lane).is_some_and(|&epoch| epoch >= point.epoch);
        taker == point.lane || self.is_done(point) || waited()
    }

    /// Whether a lane's next work can be made to come after a point. While a stream is captured, no event can be put
    /// behind what was freed on it lately.
    pub fn can_order(&self, taker: LaneId, point: Point) -> bool {
        let can_wait = !self.lane(taker).capturing && (self.has_event(point) || self.may_record(point.lane));
        can_wait || self.is_ordered(taker, point)
    }

    /// Whether there is an event behind a point.
    fn has_event(&self, point: Point) -> bool {
        self.lane(point.lane).closed.back().is_some_and(|closed| closed.epoch >= point.epoch)
    }

    /// Whether an event may be recorded on a lane's stream, which is another one than the caller's. A handle may be
    /// used as long as the stream exists, and only the program knows that: it must have named it lately.
    fn may_record(&self, lane: LaneId) -> bool {
        let state = self.lane(lane);
        state.alive && !state.capturing && (!state.has_handle || state.named.0 + 1 >= self.round)
    }

    /// Notes that the program names a stream, which exists therefore: the event of the open epoch is recorded now, if
    /// memory was freed in it and the last event was in another round.
    pub fn touch(&mut self, lane: LaneId) {
        let (round, now) = (self.round, self.driver.device().now());
        let before = std::mem::replace(&mut self.lane_mut(lane).named, (round, now));
        if before.0 != round {
            self.count_again();
        }
        if before.0 != round && self.lane(lane).used && !self.lane(lane).capturing {
            // If it fails now, there will be another occasion.
            let _ = self.record(lane);
        }
    }

    /// Records an event behind all that was freed on a lane.
    fn record(&mut self, lane: LaneId) -> Result<()> {
        if self.lane(lane).capturing {
            // The event would become part of the graph.
            return Err(DeviceError { call: Call::Record, fault: Fault::Capturing });
        }
        self.check_handle(lane)?;
        let event = match self.spare.pop() {
            Some(event) => event,
            None => self.driver.create_event()?,
        };
        if let Err(error) = self.driver.record(event, self.lane(lane).stream) {
            self.spare.push(event);
            if matches!(error.fault, Fault::Invalid(_)) {
                self.mark_lost(lane);
            }
            return Err(error);
        }
        let at = self.driver.device().now();
        let state = self.lane_mut(lane);
        state.closed.push_back(Closed { epoch: state.open, event, at });
        state.open += 1;
        state.used = false;
        // It is behind what was undrained, too.
        state.undrained = None;
        Ok(())
    }

    /// Looks whether the handle is still the lane's stream: an event on another one would say nothing of its work.
    fn check_handle(&mut self, lane: LaneId) -> Result<()> {
        let state = self.lane(lane);
        if !state.has_handle {
            return Ok(());
        }
        let gone = DeviceError { call: Call::StreamId, fault: Fault::Invalid("the stream is gone") };
        if self.is_gone(lane) {
            self.note_gone(lane);
            self.mark_lost(lane);
            return Err(gone);
        }
        match self.driver.stream_id(state.stream) {
            Ok(id) if id == self.lane(lane).id => Ok(()),
            Ok(id) if self.lane(lane).is_unnumbered() => {
                self.number(lane, id);
                Ok(())
            }
            Ok(_) | Err(DeviceError { fault: Fault::Invalid(_), .. }) => {
                self.mark_lost(lane);
                Err(gone)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a stream is there, as far as its handle and the driver say.
    pub fn is_there(&self, stream: Stream) -> bool {
        is_default(stream)
            || self.driver.device().at_handle(stream) != Some(NOTHING)
                && !matches!(self.driver.stream_id(stream), Err(DeviceError { fault: Fault::Invalid(_), .. }))
    }

    /// Sees to it that work given to `stream`, the stream of `taker`, from now on comes after all of these points.
    pub fn order(&mut self, taker: LaneId, stream: Stream, pending: &Pending) -> Result<()> {
        for point in pending.points() {
            if self.is_ordered(taker, point) {
                continue;
            }
            if self.lane(taker).capturing {
                return Err(DeviceError { call: Call::Wait, fault: Fault::Capturing });
            }
            if !self.has_event(point) {
                if !self.may_record(point.lane) {
                    return Err(DeviceError { call: Call::Record, fault: Fault::Invalid("a stream not named lately") });
                }
                self.record(point.lane)?;
            }
            let closed = self.lane(point.lane).closed.iter().find(|closed| closed.epoch >= point.epoch).copied();
            if let Some(Closed { epoch, event, .. }) = closed {
                self.count_hold_up(taker, point);
                self.driver.wait(stream, event)?;
                self.waits += 1;
                self.lane_mut(taker).waited.insert(point.lane, epoch);
            }
        }
        Ok(())
    }

    /// Asks how far the work of a lane is. While a graph is captured it asks nothing: that would end the capture.
    pub fn poll(&mut self, lane: LaneId) {
        while self.captures == 0
            && let Some(Closed { epoch, event, at }) = self.lane(lane).closed.front().copied()
            && self.driver.query(event) == Ok(Progress::Done)
        {
            let state = self.lane_mut(lane);
            state.closed.pop_front();
            state.done = state.done.max(epoch);
            state.past = at;
            self.spare.push(event);
        }
        let state = self.lane(lane);
        if !state.alive
            && state.undrained.is_none()
            && state.closed.is_empty()
            && !state.used
            && !self.vacant.contains(&lane)
        {
            self.vacant.push(lane);
        }
    }

    /// Asks how far all lanes are, with at most so many calls, and records events on the default streams and, in a call
    /// of the program's, on those that it has named lately. Returns how many calls were made.
    pub fn refresh(&mut self, budget: u64, with_handles: bool) -> u64 {
        let start = self.driver.calls();
        let count = self.lanes.len();
        let first = if count == 0 { 0 } else { self.next % count };
        for at in 0..count {
            let lane = ((first + at) % count) as LaneId;
            if self.driver.calls() - start >= budget {
                self.next = lane as usize;
                break;
            }
            let may_record = !self.lane(lane).has_handle || (with_handles && self.may_record(lane));
            if self.lane(lane).used && may_record {
                // An event that can't be recorded now is recorded at the next opportunity.
                let _ = self.record(lane);
            }
            self.poll(lane);
        }
        self.driver.calls() - start
    }

    /// Waits on the host until all work behind freed memory is over. Returns whether it is.
    pub fn synchronize(&mut self) -> bool {
        if self.captures > 0 {
            return false;
        }
        for lane in 0..self.lanes.len() as LaneId {
            self.close_without_event(lane);
        }
        let waits = |lane: &Lane| lane.undrained.is_some() || !lane.closed.is_empty();
        if !self.lanes.iter().any(waits) {
            return true;
        }
        let undrained = self.undrained();
        if self.driver.synchronize_all().is_err() {
            return false;
        }
        self.confirm_drained(&undrained);
        self.lanes.iter_mut().for_each(|lane| lane.is_behind = false);
        self.at_work = false;
        self.note_apart();
        for lane in 0..self.lanes.len() as LaneId {
            let state = self.lane_mut(lane);
            let closed: Vec<_> = state.closed.drain(..).collect();
            state.done = state.done.max(closed.last().map_or(0, |closed| closed.epoch));
            self.spare.extend(closed.into_iter().map(|closed| closed.event));
            self.poll(lane);
        }
        true
    }

    /// Hands a stream over that is about to be destroyed: its last event is recorded now.
    ///
    /// Small blocks that were freed on it have no points of their own: this event is behind them, too.
    pub fn retire(&mut self, lane: LaneId) -> Result<()> {
        self.record(lane)?;
        let state = self.lane_mut(lane);
        state.alive = false;
        let id = state.id;
        self.by_id.remove(&id);
        self.poll(lane);
        self.count_again();
        Ok(())
    }

    /// The stream of a lane, as it was first named.
    pub fn stream_of(&self, lane: LaneId) -> Stream {
        self.lane(lane).stream
    }

    /// Notes that a stream is gone, and that nobody said so before. Its work goes on: what was used on it waits until
    /// the device is known to have done all its work.
    pub fn mark_lost(&mut self, lane: LaneId) {
        if !self.lane(lane).alive {
            return;
        }
        self.lane_mut(lane).used = true;
        self.close_without_event(lane);
        let state = self.lane_mut(lane);
        state.alive = false;
        let id = state.id;
        self.by_id.remove(&id);
        self.newly_lost.push(lane);
        self.times_lost += 1;
        self.lost_until = self.driver.device().now() + LOST_FOR;
        self.lost_lately = true;
        self.count_again();
    }

    /// How many streams use the pool: those that live and were named lately.
    #[inline]
    pub fn count(&self) -> usize {
        self.in_use
    }

    fn count_again(&mut self) {
        let is_used = |lane: &&Lane| lane.alive && lane.named.0 + LATELY >= self.round;
        self.in_use = self.lanes.iter().filter(is_used).count();
        self.at_work &= self.in_use > 1;
        self.note_apart();
    }

    /// How often a stream was made to wait for another one.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// How often a stream was found to be gone.
    pub fn times_lost(&self) -> u64 {
        self.times_lost
    }

    /// Ends the open epoch without an event.
    fn close_without_event(&mut self, lane: LaneId) {
        let state = self.lane_mut(lane);
        if std::mem::take(&mut state.used) {
            state.undrained = Some(state.open);
            state.open += 1;
        }
    }

    /// Ends the epochs of streams that the program has not named for a while: it may have destroyed them without a
    /// word, and nothing is asked of their handles.
    pub fn close_idle(&mut self, now: u64, delay: u64) {
        for lane in 0..self.lanes.len() as LaneId {
            let state = self.lane(lane);
            if state.used && state.has_handle && !state.capturing && state.named.1.saturating_add(delay) <= now {
                self.close_without_event(lane);
            }
        }
    }

    /// The lanes that wait for the whole device, and up to which epoch.
    pub fn undrained(&self) -> Vec<(LaneId, u64)> {
        let undrained = self.lanes.iter().enumerate().filter_map(|(at, lane)| Some((at as LaneId, lane.undrained?)));
        undrained.collect()
    }

    /// Notes that the device has done all that it had to do when these lanes were undrained.
    pub fn confirm_drained(&mut self, undrained: &[(LaneId, u64)]) {
        for &(lane, epoch) in undrained {
            let state = self.lane_mut(lane);
            state.done = state.done.max(epoch);
            if state.undrained.is_some_and(|undrained| undrained <= epoch) {
                state.undrained = None;
            }
            let over = state.closed.iter().take_while(|closed| closed.epoch <= epoch).count();
            let events: Vec<_> = state.closed.drain(..over).map(|closed| closed.event).collect();
            self.spare.extend(events);
            self.poll(lane);
        }
    }

    /// Begins another round of background work.
    pub fn next_round(&mut self) {
        self.round += 1;
        self.lost_lately &= self.driver.device().now() < self.lost_until;
        self.count_again();
    }

    /// The streams that were found to be gone since this was last asked.
    pub fn take_newly_lost(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.newly_lost)
    }

    /// Whether the stream of a lane is still there.
    pub fn is_alive(&self, lane: LaneId) -> bool {
        self.lane(lane).alive
    }
}

impl<D: Device> Lanes<D> {
    /// Gives all events back.
    pub fn clear(&mut self) {
        let closed = self.lanes.iter_mut().flat_map(|lane| lane.closed.drain(..)).map(|closed| closed.event);
        for event in closed.chain(self.spare.drain(..)) {
            // The process or the device is ending: there is nobody to tell.
            let _ = self.driver.destroy_event(event);
        }
    }
}
