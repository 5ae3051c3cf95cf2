//! Streams that lag, events, and graphs.

use std::collections::{HashMap, HashSet};
use std::thread::{self, ThreadId};

use super::order::Order;
use super::{Kernel, Violation};
use crate::device::{Event, Fault, Progress, Stream};

/// The legacy default stream's place among the streams.
const LEGACY: usize = 0;

#[derive(Debug)]
struct StreamState {
    /// What its next work comes after, itself included.
    seen: Order,
    /// When its last work is done.
    ready: u64,
    /// Whether it and the legacy default stream wait for each other.
    blocking: bool,
    alive: bool,
    capture: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct EventState {
    seen: Order,
    done: u64,
    capture: Option<u64>,
}

#[derive(Debug, Default)]
struct Capture {
    kernels: Vec<Kernel>,
    invalid: bool,
    over: bool,
}

/// The streams, events and graphs of a device.
#[derive(Debug)]
pub struct Streams {
    streams: Vec<StreamState>,
    handles: HashMap<u64, usize>,
    /// Handles of streams that were destroyed.
    gone: HashSet<u64>,
    of_threads: HashMap<ThreadId, usize>,
    events: HashMap<u64, EventState>,
    captures: HashMap<u64, Capture>,
    next: u64,
    /// For how long streams with nothing else to do had to wait for other ones, in nanoseconds.
    pub waited: u64,
    /// What the host knows to be over, because it has asked.
    pub host: Order,
}

const NO_STREAM: Fault = Fault::Invalid("no such stream");
const NO_EVENT: Fault = Fault::Invalid("no such event");

impl Streams {
    pub fn new() -> Streams {
        let mut streams = Streams {
            streams: Vec::new(),
            handles: HashMap::new(),
            gone: HashSet::new(),
            of_threads: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            next: 16,
            waited: 0,
            host: Order::default(),
        };
        streams.push(true);
        streams
    }

    fn push(&mut self, blocking: bool) -> usize {
        let seen = Order::default();
        self.streams.push(StreamState { seen, ready: 0, blocking, alive: true, capture: None });
        self.streams.len() - 1
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn create(&mut self, blocking: bool) -> Stream {
        let handle = self.number();
        let at = self.push(blocking);
        self.handles.insert(handle, at);
        Stream(handle)
    }

    /// Destroys a stream and makes another one of the same handle.
    pub fn replace(&mut self, stream: Stream) -> bool {
        let found = self.destroy(stream);
        let at = self.push(false);
        self.handles.insert(stream.0, at);
        self.gone.remove(&stream.0);
        found
    }

    pub fn destroy(&mut self, stream: Stream) -> bool {
        let Some(at) = self.handles.remove(&stream.0) else { return false };
        self.streams[at].alive = false;
        self.gone.insert(stream.0);
        true
    }

    /// Whether a handle was that of a stream which was destroyed.
    pub fn is_gone(&self, stream: Stream) -> bool {
        self.gone.contains(&stream.0)
    }

    /// Where a handle's stream is.
    pub fn find(&mut self, stream: Stream) -> Result<usize, Fault> {
        match stream {
            Stream::NULL | Stream::LEGACY => Ok(LEGACY),
            Stream::PER_THREAD => {
                let thread = thread::current().id();
                if let Some(&at) = self.of_threads.get(&thread) {
                    return Ok(at);
                }
                let at = self.push(true);
                self.of_threads.insert(thread, at);
                Ok(at)
            }
            Stream(handle) => self.handles.get(&handle).copied().ok_or(NO_STREAM),
        }
    }

    /// The legacy default stream comes after all blocking streams, and they after it.
    fn join_default(&mut self, at: usize) {
        if at == LEGACY {
            for other in 1..self.streams.len() {
                if self.streams[other].blocking {
                    let (seen, ready) = (self.streams[other].seen.clone(), self.streams[other].ready);
                    self.streams[LEGACY].seen.join(&seen);
                    self.streams[LEGACY].ready = self.streams[LEGACY].ready.max(ready);
                }
            }
        } else if self.streams[at].blocking {
            let (seen, ready) = (self.streams[LEGACY].seen.clone(), self.streams[LEGACY].ready);
            self.streams[at].seen.join(&seen);
            self.streams[at].ready = self.streams[at].ready.max(ready);
        }
    }

    /// Gives a stream work that takes `duration`; returns what the work knows to be over, its own number included.
    pub fn work(&mut self, at: usize, duration: u64, now: u64) -> Order {
        self.join_default(at);
        let stream = &mut self.streams[at];
        stream.seen.join(&self.host);
        let number = stream.seen.of(at) + 1;
        stream.seen.set(at, number);
        stream.ready = stream.ready.max(now) + duration;
        stream.seen.clone()
    }

    /// All work that a stream has now, and when it is done.
    pub fn point(&mut self, at: usize) -> (Order, u64) {
        self.join_default(at);
        let mut seen = self.streams[at].seen.clone();
        seen.join(&self.host);
        (seen, self.streams[at].ready)
    }

    /// Lets a stream's later work come after a point in that of another one.
    pub fn follow(&mut self, at: usize, (seen, ready): &(Order, u64), now: u64) {
        let stream = &mut self.streams[at];
        stream.seen.join(seen);
        self.waited += ready.saturating_sub(stream.ready.max(now));
        stream.ready = stream.ready.max(*ready);
    }

    /// When a stream has nothing to do any more.
    pub fn ready(&self, at: usize) -> u64 {
        self.streams[at].ready
    }

    pub fn capture_of(&self, at: usize) -> Option<u64> {
        self.streams[at].capture
    }

    pub fn capture_begin(&mut self, at: usize) {
        let id = self.number();
        self.captures.insert(id, Capture::default());
        self.streams[at].capture = Some(id);
    }

    /// Ends a capture; `None` if something illegal was done during it.
    pub fn capture_end(&mut self, at: usize) -> Option<Vec<Kernel>> {
        let id = self.streams[at].capture?;
        for stream in &mut self.streams {
            stream.capture = stream.capture.filter(|capture| *capture != id);
        }
        let capture = self.captures.get_mut(&id)?;
        capture.over = true;
        (!capture.invalid).then(|| std::mem::take(&mut capture.kernels))
    }

    pub fn captured(&mut self, id: u64, kernel: Kernel) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.kernels.push(kernel);
        }
    }

    /// Whether a graph is being captured. If so, the caller did what is not allowed then, and the graph is lost.
    pub fn invalidate_captures(&mut self) -> bool {
        let open = self.captures.values_mut().filter(|capture| !capture.over);
        open.map(|capture| capture.invalid = true).count() > 0
    }

    pub fn event_create(&mut self) -> Event {
        let id = self.number();
        self.events.insert(id, EventState::default());
        Event(id)
    }

    pub fn event_destroy(&mut self, event: Event) -> Result<(), Fault> {
        self.events.remove(&event.0).map(|_| ()).ok_or(NO_EVENT)
    }

    pub fn record(&mut self, event: Event, at: usize) -> Result<(), Fault> {
        if !self.events.contains_key(&event.0) {
            return Err(NO_EVENT);
        }
        self.join_default(at);
        let stream = &self.streams[at];
        let state = EventState { seen: stream.seen.clone(), done: stream.ready, capture: stream.capture };
        self.events.insert(event.0, state);
        Ok(())
    }

    pub fn wait(&mut self, at: usize, event: Event, now: u64) -> Result<(), Violation> {
        let Some(state) = self.events.get(&event.0).cloned() else { return Err(Violation::Handle(event.0)) };
        match (self.streams[at].capture, state.capture) {
            (Some(_), None) => {
                self.invalidate_captures();
                return Err(Violation::WaitInCapture);
            }
            (None, Some(id)) => self.streams[at].capture = Some(id),
            _ => {}
        }
        self.follow(at, &(state.seen, state.done), now);
        Ok(())
    }

    pub fn query(&mut self, event: Event, now: u64) -> Result<Progress, Fault> {
        let state = self.events.get(&event.0).ok_or(NO_EVENT)?;
        if state.capture.is_some() {
            return Err(Fault::Capturing);
        }
        if state.done > now {
            return Ok(Progress::Pending);
        }
        self.host.join(&state.seen);
        Ok(Progress::Done)
    }

    /// When the work before an event is done; the host knows it from then on.
    pub fn synchronize(&mut self, event: Event) -> Result<u64, Fault> {
        let state = self.events.get(&event.0).ok_or(NO_EVENT)?;
        self.host.join(&state.seen);
        Ok(state.done)
    }

    /// Waits for everything; returns when it is done.
    pub fn synchronize_all(&mut self) -> u64 {
        for stream in &self.streams {
            self.host.join(&stream.seen);
        }
        self.streams.iter().map(|stream| stream.ready).max().unwrap_or(0)
    }
}
