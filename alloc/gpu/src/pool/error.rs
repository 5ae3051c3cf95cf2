//! What a pool says when it can't.

use std::fmt;

use super::Step;
use crate::device::{DeviceError, Fault, Stream};
use crate::settings::ConfigError;

/// Why a call to the pool failed. A call that fails has changed nothing that the program has.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoolError {
    /// There is no memory for the request, and none could be made free.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// The address is no block's.
    #[error("{0:#x} is not the address of a block of this pool")]
    NotABlock(u64),
    /// Where the pool is [hardened](crate::Config::hardened): the block was freed before.
    #[error(
        "double free of {address:#x}: it was freed on stream {:#x} and waits in quarantine; drop an address \
         where its block is freed",
        .stream.0
    )]
    DoubleFree {
        /// The block.
        address: u64,
        /// The stream that it was freed on.
        stream: Stream,
    },
    /// Where the pool is [hardened](crate::Config::hardened): the driver has no such stream.
    #[error(
        "{address:#x} is not freed: stream {:#x} is gone or never was; free it on one that comes after its last work",
        .stream.0
    )]
    NoStream {
        /// The block.
        address: u64,
        /// What was named.
        stream: Stream,
    },
    /// The stream is not being captured, or it is already.
    #[error("stream {:#x} {is}", .stream.0)]
    Capture {
        /// Which.
        stream: Stream,
        /// What is wrong.
        is: &'static str,
    },
    /// A setting makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A call to the driver failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl PoolError {
    /// What the device said, if there was no memory and more can be tried.
    pub(crate) fn is_short_of_memory(&self) -> Option<DeviceError> {
        match self {
            PoolError::Device(error) if matches!(error.fault, Fault::OutOfMemory | Fault::Limit) => Some(*error),
            _ => None,
        }
    }
}

/// Blocks that have something in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// What: the size up to which, in bytes, or the stream's handle.
    pub of: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The whole picture when there was no memory. Bytes throughout.
#[derive(Clone, Debug, PartialEq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub request: u64,
    /// On which stream.
    pub stream: Stream,
    /// In blocks.
    pub used: u64,
    /// What the pool has from the device.
    pub held: u64,
    /// The most that it may have, by its settings; `u64::MAX`: no limit.
    pub limit: u64,
    /// What it has and is free.
    pub free: u64,
    /// What of it waits for work that is not over.
    pub waiting: u64,
    /// The largest piece of it.
    pub largest_hole: u64,
    /// What of it lies in whole granules, which can be put together; the rest is between blocks.
    pub whole_granules: u64,
    /// What the device has in all, and free; 0 where it does not say.
    pub device_memory: u64,
    /// What nobody has of it.
    pub device_free: u64,
    /// Whether a graph was being captured.
    pub capturing: bool,
    /// Blocks by size, those with the most bytes first. Small ones include those in caches.
    pub by_size: Vec<Holding>,
    /// Blocks by stream, those with the most bytes first.
    pub by_stream: Vec<Holding>,
    /// What holds the most by the stacks that allocated it, a line each, as the recorder estimates it.
    pub by_stack: Vec<String>,
    /// The steps that were taken, in their order.
    pub tried: Vec<Step>,
    /// What the device said last.
    pub cause: DeviceError,
}

impl OutOfMemory {
    /// What would have helped, the likeliest first.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        let missing = self.request.saturating_sub(self.whole_granules.max(self.largest_hole));
        if self.capturing {
            advice
                .push("a graph is being captured: nothing can be waited for or given back until that ends".to_owned());
        }
        if self.cause.fault == Fault::Limit {
            let limit = Bytes(self.limit);
            advice.push(format!("memory_limit is {limit}: {} more would do", Bytes(missing)));
        }
        let others = self.device_memory.saturating_sub(self.device_free).saturating_sub(self.held);
        if others > self.device_memory / 50 {
            advice.push(format!(
                "others (this process's context, other pools and processes) have {} of the device's {}",
                Bytes(others),
                Bytes(self.device_memory)
            ));
        }
        if self.waiting > 0 {
            advice.push(format!("{} that are free wait for work: synchronize its streams", Bytes(self.waiting)));
        }
        let pieces = self.free.saturating_sub(self.whole_granules);
        if pieces >= missing && missing > 0 && pieces > 0 {
            advice.push(format!(
                "{} lie free between blocks, in pieces that can't be put together; the largest has {}",
                Bytes(pieces),
                Bytes(self.largest_hole)
            ));
        }
        if missing > 0 && missing <= self.used {
            advice.push(format!("to free {} more would do", Bytes(missing)));
        }
        let exceeds = self.device_memory > 0 && self.request > self.device_memory;
        if exceeds {
            advice.push("no state of the device has room for it: it is more than the device's whole memory".to_owned());
        } else if !self.tried.contains(&Step::PinnedHost) {
            advice.push("pinned_fallback would have served it from locked host memory".to_owned());
        }
        advice
    }
}

/// Bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0 >= *unit) {
            Some((unit, name)) if self.0.is_multiple_of(*unit) => write!(f, "{} {name}", self.0 / unit),
            Some((unit, name)) => write!(f, "{:.1} {name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "no {} ({} bytes) of device memory for stream {:#x}: {}",
            Bytes(self.request),
            self.request,
            self.stream.0,
            self.cause
        )?;
        writeln!(
            f,
            "  the pool holds {}: {} in blocks, {} free ({} of it in whole granules, {} waiting for work; \
             the largest hole is {})",
            Bytes(self.held),
            Bytes(self.used),
            Bytes(self.free),
            Bytes(self.whole_granules),
            Bytes(self.waiting),
            Bytes(self.largest_hole)
        )?;
        if self.device_memory > 0 {
            writeln!(f, "  the device has {}, {} free", Bytes(self.device_memory), Bytes(self.device_free))?;
        }
        let blocks = |count: u64| if count == 1 { "1 block".to_owned() } else { format!("{count} blocks") };
        for holding in self.by_size.iter().take(5) {
            let Holding { of, blocks: count, bytes } = *holding;
            writeln!(f, "  held by size: {} in {} of up to {}", Bytes(bytes), blocks(count), Bytes(of))?;
        }
        for holding in self.by_stream.iter().take(5) {
            let Holding { of, blocks: count, bytes } = *holding;
            writeln!(f, "  held by stream: {} in {} of stream {of:#x}", Bytes(bytes), blocks(count))?;
        }
        for stack in &self.by_stack {
            writeln!(f, "  held by stack: {stack}")?;
        }
        let tried: Vec<_> = self.tried.iter().map(|step| step.name()).collect();
        match tried[..] {
            [] => writeln!(f, "  tried: nothing, since no step could make so much room")?,
            _ => writeln!(f, "  tried: {}", tried.join(", "))?,
        }
        for advice in self.advice() {
            writeln!(f, "  help: {advice}")?;
        }
        Ok(())
    }
}
