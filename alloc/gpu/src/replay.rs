//! Recorded traces of allocations, on a pool.
//!
//! A trace is text: `+ id size stream` allocates, `- id` frees, one operation a line; lines that begin with `#` say what
//! it is. Sizes are in bytes.

use std::collections::HashMap;

use crate::device::{Device, Stream};
use crate::error::PoolError;
use crate::pool::Pool;

/// One operation. Blocks are numbered from 0 in the order of their first allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Allocate { block: u32, size: u64, stream: u32 },
    Free { block: u32 },
}

/// A recorded program.
#[derive(Clone, Debug)]
pub struct Trace {
    operations: Vec<Operation>,
    blocks: usize,
    streams: usize,
    peak: u64,
}

/// A trace that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {what}")]
pub struct TraceError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl Trace {
    /// Reads a trace.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut trace = Trace { operations: Vec::new(), blocks: 0, streams: 0, peak: 0 };
        let mut live: HashMap<&str, (u32, u64)> = HashMap::new();
        let mut streams: HashMap<&str, u32> = HashMap::new();
        let mut now = 0u64;
        for (at, text) in text.lines().enumerate() {
            let error = |what| TraceError { line: at + 1, what };
            let fields: Vec<_> = text.split_whitespace().collect();
            match fields[..] {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                ["+", id, size, stream] => {
                    let size: u64 = size.parse().map_err(|_| error("the size is not a number"))?;
                    let next = streams.len() as u32;
                    let stream = *streams.entry(stream).or_insert(next);
                    let block = trace.blocks as u32;
                    if live.insert(id, (block, size)).is_some() {
                        return Err(error("the block is allocated already"));
                    }
                    trace.blocks += 1;
                    trace.operations.push(Operation::Allocate { block, size, stream });
                    now = now.checked_add(size).ok_or(error("the sizes are too large"))?;
                    trace.peak = trace.peak.max(now);
                }
                ["-", id] => {
                    let (block, size) = live.remove(id).ok_or(error("the block is not allocated"))?;
                    trace.operations.push(Operation::Free { block });
                    now -= size;
                }
                _ => return Err(error("neither `+ id size stream` nor `- id`")),
            }
        }
        trace.streams = streams.len();
        Ok(trace)
    }

    /// Operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Streams that it names.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// The most bytes, as the program asked for them, that are allocated at once.
    pub fn peak(&self) -> u64 {
        self.peak
    }
}

/// What one pass over a trace did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Operations, the frees at its end included.
    pub operations: u64,
    /// Calls to the driver.
    pub driver_calls: u64,
    /// The most bytes that the pool has held so far.
    pub peak_held: u64,
}

/// A trace on a pool.
pub struct Replay<'a, D: Device> {
    trace: &'a Trace,
    pool: &'a Pool<D>,
    streams: Vec<Stream>,
    live: Vec<(u64, u32)>,
}

impl<'a, D: Device> Replay<'a, D> {
    /// A replay, with a stream of the device for each that the trace names, or fewer: they are then shared.
    ///
    /// # Panics
    /// Without any stream.
    pub fn new(trace: &'a Trace, pool: &'a Pool<D>, streams: Vec<Stream>) -> Replay<'a, D> {
        assert!(!streams.is_empty(), "a replay needs a stream");
        Replay { trace, pool, streams, live: vec![(0, u32::MAX); trace.blocks] }
    }

    fn stream(&self, number: u32) -> Stream {
        self.streams[number as usize % self.streams.len()]
    }

    /// Runs the trace once, and frees at its end what is still allocated.
    pub fn pass(&mut self) -> Result<Pass, PoolError> {
        let calls = self.pool.stats().driver_calls;
        let mut operations = self.trace.operations.len() as u64;
        for operation in &self.trace.operations {
            match *operation {
                Operation::Allocate { block, size, stream } => {
                    let address = self.pool.allocate(size, self.stream(stream))?;
                    self.live[block as usize] = (address, stream);
                }
                Operation::Free { block } => self.free(block as usize)?,
            }
        }
        for block in 0..self.live.len() {
            if self.live[block].1 != u32::MAX {
                self.free(block)?;
                operations += 1;
            }
        }
        let stats = self.pool.stats();
        Ok(Pass { operations, driver_calls: stats.driver_calls - calls, peak_held: stats.peak_held })
    }

    fn free(&mut self, block: usize) -> Result<(), PoolError> {
        let (address, stream) = std::mem::replace(&mut self.live[block], (0, u32::MAX));
        self.pool.free(address, self.stream(stream))
    }
}
