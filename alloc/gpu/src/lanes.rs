//! The streams that the pool knows, and how far their work is.
//!
//! Each stream has a lane. Its work is cut into epochs: memory freed in stream order carries the number of the epoch that
//! is open. An event that is recorded closes the epoch and stands for everything freed in it, so that a batch of frees of
//! any size costs one event, and none if nobody asks. Events are pooled, and recorded only
//! - when another stream wants memory of an open epoch ([`Lanes::order`]), and
//! - by the background work ([`Lanes::close`]), which later asks how far they are ([`Lanes::poll`]).
//!
//! A destroyed stream's lane lives on until its last event is done; then a later stream may have it. Numbers of epochs go on
//! through that, so that what was noted of the old stream stays true.
//!
//! A stream may also be gone without a word. That is noticed when an event can't be recorded on it, or when its handle is found to
//! be another stream's; its lane is then lost until the whole device has been waited for.
//!
//! The calling thread's default stream (`CU_STREAM_PER_THREAD`) is another one in each thread. Its lane records on the
//! legacy default stream, which waits for it and can be named from every thread.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::device::{Call, Device, DeviceError, Event, Fault, Progress, Result, Stream};
use crate::driver::Driver;
use crate::pending::{LaneId, Pending, Point};

struct Lane {
    /// What events are recorded on.
    stream: Stream,
    /// Whether that is the stream itself, and not another one that waits for it.
    has_handle: bool,
    id: u64,
    /// The number of the open epoch.
    open: u64,
    /// Whether memory was freed in the open epoch.
    used: bool,
    /// The events of closed epochs, oldest first.
    closed: VecDeque<(u64, Event)>,
    /// All epochs up to this one are over, as the host knows.
    done: u64,
    /// For each other lane, the epoch up to which this one has been made to wait.
    waited: HashMap<LaneId, u64>,
    alive: bool,
    /// The last epoch of a stream that was destroyed without a word: no event is behind it.
    lost: Option<u64>,
    /// Whether the stream is being captured, as the program said.
    capturing: bool,
}

/// The table of lanes of a device.
pub struct Lanes<D> {
    driver: Arc<Driver<D>>,
    lanes: Vec<Lane>,
    by_id: HashMap<u64, LaneId>,
    vacant: Vec<LaneId>,
    spare: Vec<Event>,
    captures: usize,
    /// The lane at which the next look at all of them begins.
    next: usize,
    /// Streams that were found to be gone since somebody asked.
    newly_lost: Vec<LaneId>,
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
            next: 0,
            newly_lost: Vec::new(),
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
        if let Some(&lane) = self.by_id.get(&id) {
            return Ok(lane);
        }
        let has_handle = stream != Stream::PER_THREAD;
        let recorded_on = if has_handle { stream } else { Stream::LEGACY };
        let lane = match self.vacant.pop() {
            Some(lane) => {
                let old = self.lane_mut(lane);
                (old.stream, old.has_handle, old.id, old.alive) = (recorded_on, has_handle, id, true);
                old.waited.clear();
                lane
            }
            None => {
                let lane = Lane {
                    stream: recorded_on,
                    has_handle,
                    id,
                    open: 1,
                    used: false,
                    closed: VecDeque::new(),
                    done: 0,
                    waited: HashMap::new(),
                    alive: true,
                    lost: None,
                    capturing: false,
                };
                self.lanes.push(lane);
                (self.lanes.len() - 1) as LaneId
            }
        };
        self.by_id.insert(id, lane);
        Ok(lane)
    }

    /// Where a lane's work is now. The caller frees memory there. A stream that is gone has come to its last event.
    pub fn now(&mut self, lane: LaneId) -> Point {
        let state = self.lane_mut(lane);
        if !state.alive {
            return Point { lane, epoch: state.open - 1 };
        }
        state.used = true;
        Point { lane, epoch: state.open }
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

    /// Whether a lane's next work can be made to come after a point. While a stream is captured, no event can be put behind
    /// what was freed on it lately.
    pub fn can_order(&self, taker: LaneId, point: Point) -> bool {
        let other = self.lane(point.lane);
        let behind_event = other.lost.is_none_or(|lost| point.epoch < lost);
        let can_wait = behind_event && !self.lane(taker).capturing && (!other.capturing || point.epoch < other.open);
        can_wait || self.is_ordered(taker, point)
    }

    /// Whether a graph is being captured.
    pub fn is_any_capturing(&self) -> bool {
        self.captures > 0
    }

    /// Records the event of the open epoch, if memory was freed in it.
    pub fn close(&mut self, lane: LaneId) -> Result<()> {
        if !self.lane(lane).used {
            return Ok(());
        }
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
                self.lose(lane);
            }
            return Err(error);
        }
        let state = self.lane_mut(lane);
        state.closed.push_back((state.open, event));
        state.open += 1;
        state.used = false;
        Ok(())
    }

    /// Looks whether the handle is still the lane's stream: an event on another one would say nothing of its work.
    fn check_handle(&mut self, lane: LaneId) -> Result<()> {
        let state = self.lane(lane);
        if !state.has_handle {
            return Ok(());
        }
        let gone = DeviceError { call: Call::StreamId, fault: Fault::Invalid("the stream is gone") };
        match self.driver.stream_id(state.stream) {
            Ok(id) if id == self.lane(lane).id => Ok(()),
            Ok(_) | Err(DeviceError { fault: Fault::Invalid(_), .. }) => {
                self.lose(lane);
                Err(gone)
            }
            Err(error) => Err(error),
        }
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
            if self.lane(point.lane).open == point.epoch {
                self.close(point.lane)?;
            }
            let closed = self.lane(point.lane).closed.iter().find(|(epoch, _)| *epoch >= point.epoch).copied();
            if let Some((epoch, event)) = closed {
                self.driver.wait(stream, event)?;
                self.lane_mut(taker).waited.insert(point.lane, epoch);
            } else if self.lane(point.lane).lost.is_some() {
                return Err(DeviceError { call: Call::Wait, fault: Fault::Invalid("the stream is gone") });
            }
        }
        Ok(())
    }

    /// Asks how far the work of a lane is. While a graph is captured it asks nothing: that would end the capture.
    pub fn poll(&mut self, lane: LaneId) {
        while self.captures == 0
            && let Some((epoch, event)) = self.lane(lane).closed.front().copied()
            && self.driver.query(event) == Ok(Progress::Done)
        {
            let state = self.lane_mut(lane);
            state.closed.pop_front();
            state.done = epoch;
            self.spare.push(event);
        }
        let state = self.lane(lane);
        if !state.alive
            && state.lost.is_none()
            && state.closed.is_empty()
            && !state.used
            && !self.vacant.contains(&lane)
        {
            self.vacant.push(lane);
        }
    }

    /// Closes what is open and asks how far all lanes are, with at most so many calls. Returns how many were made.
    pub fn refresh(&mut self, budget: u64) -> u64 {
        let start = self.driver.calls();
        let count = self.lanes.len();
        let first = if count == 0 { 0 } else { self.next % count };
        for at in 0..count {
            let lane = ((first + at) % count) as LaneId;
            if self.driver.calls() - start >= budget {
                self.next = lane as usize;
                break;
            }
            // An event that can't be recorded now is recorded at the next opportunity.
            let _ = self.close(lane);
            self.poll(lane);
        }
        self.driver.calls() - start
    }

    /// Waits on the host until all work behind freed memory is over. Returns whether it is.
    pub fn synchronize(&mut self) -> bool {
        if self.captures > 0 {
            return false;
        }
        let mut all = true;
        for lane in 0..self.lanes.len() as LaneId {
            let _ = self.close(lane);
        }
        let lost = self.lost();
        if !lost.is_empty() && self.driver.synchronize_all().is_ok() {
            self.find_again(&lost);
        }
        all &= self.lost().is_empty();
        for lane in 0..self.lanes.len() as LaneId {
            all &= self.close(lane).is_ok();
            if let Some((_, event)) = self.lane(lane).closed.back().copied() {
                all &= self.driver.synchronize(event).is_ok();
            }
            self.poll(lane);
        }
        all
    }

    /// Hands a stream over that is about to be destroyed: its last event is recorded now.
    ///
    /// Small blocks that were freed on it have no points of their own: this event is behind them, too.
    pub fn retire(&mut self, lane: LaneId) -> Result<()> {
        self.lane_mut(lane).used = true;
        self.close(lane)?;
        let state = self.lane_mut(lane);
        state.alive = false;
        let id = state.id;
        self.by_id.remove(&id);
        self.poll(lane);
        Ok(())
    }

    /// The stream of a lane, as it was first named.
    pub fn stream_of(&self, lane: LaneId) -> Stream {
        self.lane(lane).stream
    }

    /// Notes that a stream is gone, and that nobody said so before. Its work goes on, and nothing can be put behind it: what was
    /// used on it waits until the device is known to have done all its work ([`find_again`](Self::find_again)).
    pub fn lose(&mut self, lane: LaneId) {
        let state = self.lane_mut(lane);
        if !state.alive {
            return;
        }
        (state.alive, state.used, state.lost) = (false, false, Some(state.open));
        state.open += 1;
        let id = state.id;
        self.by_id.remove(&id);
        self.newly_lost.push(lane);
    }

    /// The lanes of streams that are gone and may have work.
    pub fn lost(&self) -> Vec<LaneId> {
        (0..self.lanes.len() as LaneId).filter(|lane| self.lane(*lane).lost.is_some()).collect()
    }

    /// Those that were found to be so since this was last asked.
    pub fn take_newly_lost(&mut self) -> Vec<LaneId> {
        std::mem::take(&mut self.newly_lost)
    }

    /// Notes that the device has done all that it had to do when these lanes were lost already.
    pub fn find_again(&mut self, lanes: &[LaneId]) {
        for &lane in lanes {
            let state = self.lane_mut(lane);
            let Some(epoch) = state.lost.take() else { continue };
            state.done = epoch;
            let events: Vec<_> = state.closed.drain(..).map(|(_, event)| event).collect();
            self.spare.extend(events);
            self.poll(lane);
        }
    }

    /// Whether the stream of a lane is still there.
    pub fn is_alive(&self, lane: LaneId) -> bool {
        self.lane(lane).alive
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

impl<D: Device> Lanes<D> {
    /// Gives all events back.
    pub fn clear(&mut self) {
        let closed = self.lanes.iter_mut().flat_map(|lane| lane.closed.drain(..)).map(|(_, event)| event);
        for event in closed.chain(self.spare.drain(..)) {
            // The process or the device is ending: there is nobody to tell.
            let _ = self.driver.destroy_event(event);
        }
    }
}
