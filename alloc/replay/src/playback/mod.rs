//! A trace on any placement policy, and what a pass of it did.
//!
//! Replaying costs little beside what is measured: operations are 16 bytes each, in a row, and live blocks have dense
//! numbers, so that their table is as large as the most that are live at once.
//! [`Trace::loop_cost`](crate::Trace::loop_cost) says how little.

mod latencies;
mod policy;

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use poolscope_gpu::Stream;

use crate::trace::{FREE, Operation, Trace};
pub use latencies::Latencies;
pub(crate) use policy::Result as PolicyResult;
pub use policy::{Policy, PolicyError, PolicyStats};

impl Trace {
    /// What a pass costs without a policy: the loop, the table of live blocks, and the two readings of the clock. It is
    /// part of every figure.
    pub fn loop_cost(&self) -> LoopCost {
        let mut playback = Playback::new(self, vec![Stream::LEGACY]);
        let times = (0..9).map(|_| playback.run(&Nothing).map_or(Duration::MAX, |pass| pass.time));
        LoopCost { time: times.min().unwrap_or_default(), operations: self.operations() }
    }
}

/// The cost of a replay's own loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopCost {
    /// The quickest of several passes.
    pub time: Duration,
    /// Operations of a pass.
    pub operations: u64,
}

impl LoopCost {
    /// Nanoseconds for an operation.
    pub fn per_operation(self) -> f64 {
        self.time.as_nanos() as f64 / self.operations.max(1) as f64
    }
}

/// No policy: an address is whatever number was asked for.
struct Nothing;

impl Policy for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    #[inline]
    fn allocate(&self, size: u64, _: Stream) -> Result<u64, PolicyError> {
        Ok(black_box(size))
    }

    #[inline]
    fn free(&self, address: u64, _: Stream) -> Result<(), PolicyError> {
        black_box(address);
        Ok(())
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats::default()
    }

    fn release(&self) -> Result<(), PolicyError> {
        Ok(())
    }
}

/// What one pass over a trace did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Operations, the frees at its end included.
    pub operations: u64,
    /// By the host's clock.
    pub time: Duration,
    /// Calls to the driver.
    pub driver_calls: u64,
    /// The most bytes that the policy has held so far.
    pub peak_reserved: u64,
}

impl Pass {
    /// Nanoseconds for an operation.
    pub fn per_operation(&self) -> f64 {
        self.time.as_nanos() as f64 / self.operations.max(1) as f64
    }

    /// Calls to the driver for a thousand operations.
    pub fn calls_per_thousand(&self) -> f64 {
        self.driver_calls as f64 * 1000.0 / self.operations.max(1) as f64
    }

    /// The part of the most that was held that the program never asked for: `1 - peak live / peak reserved`.
    pub fn fragmentation(&self, trace: &Trace) -> f64 {
        1.0 - trace.peak() as f64 / self.peak_reserved.max(1) as f64
    }
}

/// An operation that the policy could not do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line} of the trace: {error}")]
pub struct ReplayError {
    /// The operation's line, counted from 1; the last one for what is freed at the end.
    pub line: usize,
    /// What the policy says.
    pub error: PolicyError,
}

/// A trace, and the blocks of a pass over it.
pub struct Playback<'a> {
    trace: &'a Trace,
    streams: Vec<Stream>,
    live: Vec<u64>,
}

impl<'a> Playback<'a> {
    /// A playback, with a stream of the device for each that the trace names, or fewer: they are then shared.
    ///
    /// # Panics
    /// Without any stream.
    pub fn new(trace: &'a Trace, streams: Vec<Stream>) -> Playback<'a> {
        assert!(!streams.is_empty(), "a replay needs a stream");
        let given = streams.len();
        let streams = (0..trace.streams.max(1)).map(|at| streams[at % given]).collect();
        Playback { trace, streams, live: vec![0; trace.slots] }
    }

    /// Runs the trace once, and frees at its end what is still allocated. Where the policy fails, all is freed, too.
    pub fn run<P: Policy + ?Sized>(&mut self, policy: &P) -> Result<Pass, ReplayError> {
        self.run_with(policy, |playback, operation| playback.step(policy, operation))
    }

    /// The same, and notes how long each operation takes by a clock of nanoseconds.
    pub fn run_timed<P: Policy + ?Sized>(
        &mut self,
        policy: &P,
        clock: &dyn Fn() -> u64,
        latencies: &mut Latencies,
    ) -> Result<Pass, ReplayError> {
        self.run_with(policy, |playback, operation| {
            let begun = clock();
            let done = playback.step(policy, operation);
            latencies.add(clock().saturating_sub(begun));
            done
        })
    }

    #[inline]
    fn run_with<P: Policy + ?Sized>(
        &mut self,
        policy: &P,
        mut step: impl FnMut(&mut Self, &Operation) -> Result<(), PolicyError>,
    ) -> Result<Pass, ReplayError> {
        let calls = policy.stats().driver_calls;
        let trace = self.trace;
        let start = Instant::now();
        for (at, operation) in trace.operations.iter().enumerate() {
            if let Err(error) = step(self, operation) {
                return Err(self.give_up(policy, at, error));
            }
        }
        for operation in &trace.left {
            if let Err(error) = step(self, operation) {
                let line = trace.lines.last().map_or(0, |line| *line as usize);
                return Err(ReplayError { line, error });
            }
        }
        let time = start.elapsed();
        let stats = policy.stats();
        Ok(Pass {
            operations: self.trace.operations(),
            time,
            driver_calls: stats.driver_calls - calls,
            peak_reserved: stats.peak_reserved,
        })
    }

    #[inline]
    fn step<P: Policy + ?Sized>(&mut self, policy: &P, operation: &Operation) -> Result<(), PolicyError> {
        let stream = self.streams[operation.stream as usize];
        let block = &mut self.live[operation.slot as usize];
        if operation.size >= FREE {
            return policy.free_sized(*block, operation.size - FREE, stream);
        }
        *block = policy.allocate(operation.size, stream)?;
        Ok(())
    }

    /// Frees what the operations before a failed one have left.
    #[cold]
    fn give_up<P: Policy + ?Sized>(&mut self, policy: &P, failed: usize, error: PolicyError) -> ReplayError {
        let mut live: HashMap<u32, &Operation> = HashMap::new();
        for operation in &self.trace.operations[..failed] {
            if operation.size >= FREE {
                live.remove(&operation.slot);
            } else {
                live.insert(operation.slot, operation);
            }
        }
        for (slot, block) in live {
            // The first error is the one to report.
            let _ = policy.free_sized(self.live[slot as usize], block.size, self.streams[block.stream as usize]);
        }
        ReplayError { line: self.trace.lines[failed] as usize, error }
    }
}

/// A trace on one policy.
pub struct Replay<'a, P: Policy + ?Sized> {
    playback: Playback<'a>,
    policy: &'a P,
}

impl<'a, P: Policy + ?Sized> Replay<'a, P> {
    /// A replay; for its streams see [`Playback::new`].
    ///
    /// # Panics
    /// Without any stream.
    pub fn new(trace: &'a Trace, policy: &'a P, streams: Vec<Stream>) -> Replay<'a, P> {
        Replay { playback: Playback::new(trace, streams), policy }
    }

    /// Runs the trace once, and frees at its end what is still allocated.
    pub fn pass(&mut self) -> Result<Pass, ReplayError> {
        self.policy.pass(&mut self.playback)
    }
}
