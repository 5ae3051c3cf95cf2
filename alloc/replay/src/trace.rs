//! Recorded traces of allocations.
//!
//! A trace is text, plain or packed by gzip: `+ id size stream` allocates, `- id` frees, one operation a line; lines
//! that begin with `#` say what it is. Sizes are in bytes. An id may be used again once it was freed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;
use std::hash::Hash;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// Beside a size: the block is freed.
pub(crate) const FREE: u64 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) size: u64,
    /// The block's number among the live ones.
    pub(crate) slot: u32,
    /// Of the block's allocation, also where it is freed.
    pub(crate) stream: u32,
}

/// A recorded program.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) operations: Vec<Operation>,
    /// Where each stands in the file.
    pub(crate) lines: Vec<u32>,
    pub(crate) slots: usize,
    /// Blocks that it never frees.
    pub(crate) left: Vec<Operation>,
    pub(crate) streams: usize,
    peak: u64,
}

/// A trace that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line that is none of a trace's.
    #[error("line {line} of the trace: {what}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// The file can't be read, or not be unpacked.
    #[error("the trace {path} can't be read: {what}")]
    File {
        /// Which.
        path: String,
        /// What the system says.
        what: String,
    },
}

impl Trace {
    /// Reads a file, unpacking it if it is packed.
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
        let path = path.as_ref();
        let failed =
            |what: std::io::Error| TraceError::File { path: path.display().to_string(), what: what.to_string() };
        let mut bytes = std::fs::read(path).map_err(failed)?;
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).map_err(failed)?;
            bytes = unpacked;
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Trace::parse(text),
            Err(error) => {
                let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
                Err(TraceError::Line { line, what: "it is no text; is the file a trace?".to_owned() })
            }
        }
    }

    /// Reads a trace.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut builder = TraceBuilder::default();
        let mut streams: HashMap<&str, u32> = HashMap::new();
        for (at, text) in text.lines().enumerate() {
            let error = |what: String| TraceError::Line { line: at + 1, what };
            builder.line = at as u32 + 1;
            let mut words = text.split_whitespace();
            let fields = [words.next(), words.next(), words.next(), words.next(), words.next()];
            match fields {
                [None, ..] => continue,
                [Some(first), ..] if first.starts_with('#') => continue,
                [Some("+"), Some(id), Some(size), Some(stream), None] => {
                    let size = size.parse().map_err(|_| error("the size is no number of bytes".to_owned()))?;
                    let next = streams.len() as u32;
                    let stream = *streams.entry(stream).or_insert(next);
                    builder.allocate(id, size, stream).map_err(error)?;
                }
                [Some("-"), Some(id), None, ..] => builder.free(id).map_err(error)?,
                _ => return Err(error("neither `+ id size stream` nor `- id`".to_owned())),
            }
        }
        Ok(builder.finish())
    }

    /// Operations, as recorded.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Operations of a pass: those recorded, and the frees of what is left at the end.
    pub fn operations(&self) -> u64 {
        (self.operations.len() + self.left.len()) as u64
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

/// Puts a trace together, operation by operation.
#[derive(Debug)]
pub struct TraceBuilder<Id> {
    trace: Trace,
    live: HashMap<Id, Operation>,
    vacant: Vec<u32>,
    now: u64,
    /// The line that the next operation stands on; without a text, how many there were.
    line: u32,
}

impl<Id> Default for TraceBuilder<Id> {
    fn default() -> Self {
        let trace =
            Trace { operations: Vec::new(), lines: Vec::new(), slots: 0, left: Vec::new(), streams: 0, peak: 0 };
        TraceBuilder { trace, live: HashMap::new(), vacant: Vec::new(), now: 0, line: 0 }
    }
}

impl<Id: Eq + Hash + Display> TraceBuilder<Id> {
    /// A block is allocated, on the stream with a number: streams are numbered from 0 without gaps.
    /// Says what is wrong if it can't be.
    pub fn allocate(&mut self, id: Id, size: u64, stream: u32) -> Result<(), String> {
        if size >= FREE {
            return Err("the size is no number of bytes".to_owned());
        }
        let trace = &mut self.trace;
        let slot = self.vacant.pop().unwrap_or_else(|| {
            trace.slots += 1;
            trace.slots as u32 - 1
        });
        let operation = Operation { size, slot, stream };
        match self.live.entry(id) {
            Entry::Occupied(entry) => return Err(format!("block {} is allocated already", entry.key())),
            Entry::Vacant(entry) => entry.insert(operation),
        };
        self.now = self.now.checked_add(size).ok_or("the sizes are too large")?;
        trace.peak = trace.peak.max(self.now);
        trace.streams = trace.streams.max(stream as usize + 1);
        self.push(operation);
        Ok(())
    }

    /// A block is freed.
    pub fn free(&mut self, id: Id) -> Result<(), String> {
        let Some(block) = self.live.remove(&id) else { return Err(format!("block {id} is not allocated")) };
        self.push(Operation { size: block.size | FREE, ..block });
        self.vacant.push(block.slot);
        self.now -= block.size;
        Ok(())
    }

    fn push(&mut self, operation: Operation) {
        self.trace.operations.push(operation);
        self.trace.lines.push(self.line.max(self.trace.lines.len() as u32 + 1));
    }

    /// The trace.
    pub fn finish(self) -> Trace {
        let mut trace = self.trace;
        trace.left = self.live.into_values().map(|block| Operation { size: block.size | FREE, ..block }).collect();
        trace.left.sort_by_key(|block| block.slot);
        trace
    }
}
