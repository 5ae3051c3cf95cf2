//! A device that is not there: on it every test runs anywhere, and a pool's mistake is found instead of survived.
//!
//! It has a virtual clock that each call moves on by what the call costs on an H200, streams whose work takes as long
//! as it says, events, a memory limit, granules and address ranges, graphs, and calls that fail when a test wants it.
//! The same program does the same on every machine.
//!
//! **The access checker.** Tests tell it which blocks the pool gave to the program ([`Simulated::lend`]) and took back,
//! and every [`Kernel`] says what it reads and writes. What is wrong goes to a list ([`Simulated::violations`]):
//! memory that two blocks have at once, also under two addresses; work on memory that is not mapped or not lent; two
//! accesses to the same memory, one of them a write, of which neither is ordered before the other by a stream, an
//! event or a wait of the host; unmapping under work that may still run; and calls that a capture forbids. Order is
//! decided by who waited for whom, not by the clock: a reuse that came too early is found even where it did no harm.
//!
//! It does not model how fast work runs, nor branches within a captured graph: its work runs one after the other.

mod calls;
mod driver_pool;
mod faults;
mod memory;
mod order;
mod prices;
mod sharing;
mod streams;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::device::{Call, DeviceError, Fault, Result, Stream};
use driver_pool::DriverPool;
use faults::Faults;
use memory::Memory;
use sharing::Shared;
use streams::Streams;

/// A range that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where it starts.
    pub address: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whether it is written.
    pub write: bool,
}

/// Work for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Nanoseconds that it takes.
    pub duration: u64,
    /// What it reads and writes.
    pub accesses: Vec<Access>,
}

impl Kernel {
    /// A kernel that writes one range.
    pub fn writing(address: u64, bytes: u64, duration: u64) -> Kernel {
        Kernel { duration, accesses: vec![Access { address, bytes, write: true }] }
    }

    /// A kernel that reads one range.
    pub fn reading(address: u64, bytes: u64, duration: u64) -> Kernel {
        Kernel { duration, accesses: vec![Access { address, bytes, write: false }] }
    }
}

/// What went wrong. Addresses are those of the blocks or accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Work on memory that nothing is mapped at.
    #[error("work on {0:#x}, which is not mapped")]
    Unmapped(u64),
    /// Work on memory that the program does not have.
    #[error("work on {0:#x}, which is in no block of the program's")]
    NotLent(u64),
    /// Two accesses to the same memory, not ordered.
    #[error("work on {later:#x} is not ordered after work on {earlier:#x}, the same memory")]
    Race {
        /// The access that came first.
        earlier: u64,
        /// The one that should have waited.
        later: u64,
    },
    /// A block was given out that shares memory with another one.
    #[error("block {given:#x} has memory of block {holder:#x}, or none")]
    LentTwice {
        /// The new one.
        given: u64,
        /// The one that had it.
        holder: u64,
    },
    /// A block was taken back that the program did not have.
    #[error("{0:#x} was taken back, and is no block")]
    NotABlock(u64),
    /// Memory was unmapped while work on it was not known to be over, or while the program had it.
    #[error("{0:#x} was unmapped under work or under a block")]
    UnmappedInUse(u64),
    /// A call that is not allowed while a graph is being captured.
    #[error("{0} during a capture")]
    Captured(Call),
    /// A capturing stream was to wait for an event of no capture.
    #[error("a capturing stream waits for an event from outside")]
    WaitInCapture,
    /// An event or stream that does not exist.
    #[error("no event or stream {0:#x}")]
    Handle(u64),
}

#[derive(Debug)]
struct State {
    clock: u64,
    memory: Memory,
    streams: Streams,
    driver_pool: DriverPool,
    faults: Faults,
    calls: HashMap<Call, u64>,
    violations: Vec<Violation>,
    graphs: Vec<Vec<Kernel>>,
    virtual_memory: bool,
    /// Devices that were let in, by their numbers.
    peers: Vec<u64>,
    shared: Shared,
}

/// The simulated device.
pub struct Simulated {
    state: Mutex<State>,
    /// Tells it from the others of the process.
    number: u64,
    /// When it began, if its clock goes on with the real time.
    began: Option<Instant>,
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fmt(f)
    }
}

/// A captured graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph(usize);

impl State {
    /// Counts and charges a call, unless it is to fail.
    fn begin(&mut self, call: Call, bytes: u64) -> Result<()> {
        *self.calls.entry(call).or_default() += 1;
        self.clock += prices::price(call, bytes);
        self.faults.strike(call).map_or(Ok(()), |fault| Err(DeviceError { call, fault }))
    }

    /// A call that no capture allows.
    fn begin_outside_capture(&mut self, call: Call, bytes: u64) -> Result<()> {
        self.begin(call, bytes)?;
        if self.streams.invalidate_captures() {
            self.violations.push(Violation::Captured(call));
            return Err(DeviceError { call, fault: Fault::Capturing });
        }
        Ok(())
    }

    fn run(&mut self, at: usize, kernel: &Kernel) {
        let seen = self.streams.work(at, kernel.duration, self.clock);
        for access in &kernel.accesses {
            if !self.memory.is_accessible(access.address, access.bytes) {
                self.violations.push(Violation::Unmapped(access.address));
                continue;
            }
            if !self.memory.is_lent(access.address, access.bytes) {
                self.violations.push(Violation::NotLent(access.address));
            }
            if let Some(earlier) = self.memory.touch(access, at, &seen, &self.streams.host) {
                self.violations.push(Violation::Race { earlier, later: access.address });
            }
        }
    }
}

impl Simulated {
    /// A device with so much memory, in bytes.
    pub fn new(memory: u64) -> Simulated {
        let state = State {
            clock: 0,
            memory: Memory::new(memory),
            streams: Streams::new(),
            driver_pool: DriverPool::default(),
            faults: Faults::default(),
            calls: HashMap::new(),
            violations: Vec::new(),
            graphs: Vec::new(),
            virtual_memory: true,
            peers: Vec::new(),
            shared: Shared::default(),
        };
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Simulated { state: Mutex::new(state), number: NUMBERS.fetch_add(1, Ordering::Relaxed), began: None }
    }

    /// One that stands in for a real device in a program: its clock goes on with the real time, too, so that a pool on
    /// it has a thread of its own; its addresses are apart from those of devices with other ordinals; and its locked
    /// host memory can be read and written.
    pub fn in_process(memory: u64, ordinal: u32) -> Simulated {
        let device = Simulated { began: Some(Instant::now()), ..Simulated::new(memory) };
        device.state().memory.be_in_process(ordinal);
        device
    }

    /// One whose driver has no virtual memory: no ranges, no granules, plain memory alone.
    pub fn without_virtual_memory(memory: u64) -> Simulated {
        let device = Simulated::new(memory);
        device.state().virtual_memory = false;
        device
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(began) = self.began {
            state.clock = state.clock.max(began.elapsed().as_nanos() as u64);
        }
        let now = state.clock;
        state.shared.write_due_words(now);
        state
    }

    /// A stream that waits for the legacy default stream, and the other way round.
    pub fn stream(&self) -> Stream {
        self.state().streams.create(true)
    }

    /// A stream that has nothing to do with the legacy default stream.
    pub fn non_blocking_stream(&self) -> Stream {
        self.state().streams.create(false)
    }

    /// Destroys a stream. Its work goes on.
    pub fn destroy_stream(&self, stream: Stream) {
        let mut state = self.state();
        if !state.streams.destroy(stream) {
            state.violations.push(Violation::Handle(stream.0));
        }
    }

    /// Destroys a stream, whose work goes on, and makes a non-blocking one that happens to have the same handle.
    pub fn replace_stream(&self, stream: Stream) {
        let mut state = self.state();
        if !state.streams.replace(stream) {
            state.violations.push(Violation::Handle(stream.0));
        }
    }

    /// Gives a stream work, or, while it is captured, its graph.
    pub fn launch(&self, stream: Stream, kernel: Kernel) {
        let mut state = self.state();
        let Ok(at) = state.streams.find(stream) else {
            state.violations.push(Violation::Handle(stream.0));
            return;
        };
        match state.streams.capture_of(at) {
            Some(capture) => state.streams.captured(capture, kernel),
            None => state.run(at, &kernel),
        }
    }

    /// Lets time pass, in nanoseconds.
    pub fn advance(&self, time: u64) {
        self.state().clock += time;
    }

    /// Waits for all work; the host knows then that it is over.
    pub fn synchronize_all(&self) {
        let mut state = self.state();
        let done = state.streams.synchronize_all();
        state.clock = state.clock.max(done);
    }

    /// When a stream will have nothing to do any more.
    pub fn idle_at(&self, stream: Stream) -> u64 {
        let mut state = self.state();
        state.streams.find(stream).map_or(0, |at| state.streams.ready(at))
    }

    /// For how long streams that had nothing else to do have waited for other ones, in nanoseconds.
    pub fn waited(&self) -> u64 {
        self.state().streams.waited
    }

    /// Starts to capture a stream's work. Until the end, no thread may call what waits or asks (the global mode).
    pub fn begin_capture(&self, stream: Stream) {
        let mut state = self.state();
        if let Ok(at) = state.streams.find(stream) {
            state.streams.capture_begin(at);
        }
    }

    /// The graph of what was captured; `None` if something was done during it that is not allowed.
    pub fn end_capture(&self, stream: Stream) -> Option<Graph> {
        let mut state = self.state();
        let at = state.streams.find(stream).ok()?;
        let kernels = state.streams.capture_end(at)?;
        state.graphs.push(kernels);
        Some(Graph(state.graphs.len() - 1))
    }

    /// Runs a graph's work on a stream.
    pub fn launch_graph(&self, graph: Graph, stream: Stream) {
        let mut state = self.state();
        let Ok(at) = state.streams.find(stream) else { return };
        for kernel in state.graphs[graph.0].clone() {
            state.run(at, &kernel);
        }
    }

    /// Says that the pool gave the program this block.
    pub fn lend(&self, address: u64, bytes: u64) {
        let mut state = self.state();
        if let Err(holder) = state.memory.lend(address, bytes) {
            state.violations.push(Violation::LentTwice { given: address, holder });
        }
    }

    /// Says that the program gave it back.
    pub fn take_back(&self, address: u64) {
        let mut state = self.state();
        if !state.memory.take_back(address) {
            state.violations.push(Violation::NotABlock(address));
        }
    }

    /// Everything that went wrong so far.
    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// Calls of a kind, failed ones included.
    pub fn calls(&self, call: Call) -> u64 {
        self.state().calls.get(&call).copied().unwrap_or(0)
    }

    /// Calls of all kinds.
    pub fn all_calls(&self) -> u64 {
        self.state().calls.values().sum()
    }

    /// The most bytes that were held at once.
    pub fn peak(&self) -> u64 {
        self.state().memory.peak
    }

    /// The host has so many bytes that can be locked, from now on.
    pub fn set_host_memory(&self, bytes: u64) {
        self.state().memory.host_limit = bytes;
    }

    /// Bytes of locked host memory.
    pub fn host_used(&self) -> u64 {
        self.state().memory.host_used
    }

    /// Whether all devices that were let in may use all of a range.
    pub fn is_open_to_peers(&self, address: u64, bytes: u64) -> bool {
        let state = self.state();
        state.memory.is_open_to(address, bytes, 1 + state.peers.len())
    }

    /// Whether another device was let in, and may use all of a range.
    pub fn is_open_to(&self, peer: &Simulated, address: u64, bytes: u64) -> bool {
        let state = self.state();
        let place = state.peers.iter().position(|it| *it == peer.number);
        place.is_some_and(|place| state.memory.is_open_to(address, bytes, 2 + place))
    }

    /// The `nth` call from now on fails, counted among those of a kind or among all. The next one is 1.
    pub fn fail(&self, call: Option<Call>, nth: u64, fault: Fault) {
        self.state().faults.plan(call, nth, fault);
    }

    /// Every call fails with this probability.
    pub fn fail_at_random(&self, probability: f64, seed: u64) {
        self.state().faults.at_random(probability, seed);
    }

    /// Does something during which no call fails. Failures that are planned stay so.
    pub fn untroubled<R>(&self, work: impl FnOnce(&Simulated) -> R) -> R {
        let faults = std::mem::take(&mut self.state().faults);
        let result = work(self);
        self.state().faults = faults;
        result
    }

    /// No call fails any more.
    pub fn fail_no_more(&self) {
        self.state().faults.clear();
    }
}
