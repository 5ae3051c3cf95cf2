//! Placement policies side by side: where a block is put, and what is held for it.
//!
//! [`Pool`] is one of them, `tiered`; the others are the textbook's and the peers' ways of doing it, built to be compared on
//! one's own trace. All of them give out memory in the order of streams and may be shared between threads. What the others lack:
//! graphs (they make calls that end a capture), [`Pool::record_stream`], caches of threads, settings. A stream must live as long
//! as a policy that it was used with.

mod arena;
mod bfc;
mod buddy;
mod chunks;
mod driver_async;
mod owners;
mod slab;
mod tiered;
mod trial;

use std::sync::Arc;

use crate::config::Config;
use crate::device::{Device, DeviceError, Stream};
use crate::error::PoolError;
use crate::replay::{Pass, Playback, ReplayError};

pub use arena::Arena;
pub use bfc::Bfc;
pub use buddy::Buddy;
pub use driver_async::DriverAsync;
pub use slab::Slab;
pub use trial::{Trial, TrialPass};

/// What a policy did so far. Bytes are those of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyStats {
    /// What it has from the device.
    pub reserved: u64,
    /// The most that it had.
    pub peak_reserved: u64,
    /// What its blocks take, rounding included.
    pub in_use: u64,
    /// Calls to the driver.
    pub driver_calls: u64,
}

/// Why a policy could not do it. It has changed nothing that the program has.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// There is no memory for the request.
    #[error(
        "{policy} has no {request} bytes: of the {reserved} that it holds, blocks have {in_use}; the device says: {cause}"
    )]
    OutOfMemory {
        /// Its name.
        policy: &'static str,
        /// Bytes that were asked for.
        request: u64,
        /// Bytes that it has from the device.
        reserved: u64,
        /// Bytes of them in blocks.
        in_use: u64,
        /// What the device said last.
        cause: DeviceError,
    },
    /// The address is no block's.
    #[error("{0:#x} is not the address of a block")]
    NotABlock(u64),
    /// The tiered pool's error.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// A call to the driver failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<PoolError> for PolicyError {
    #[cold]
    fn from(error: PoolError) -> PolicyError {
        PolicyError::Pool(Box::new(error))
    }
}

/// What a policy returns.
pub type Result<T> = std::result::Result<T, PolicyError>;

/// A way to place blocks.
pub trait Policy: Send + Sync {
    /// The name by which [`build`] makes it.
    fn name(&self) -> &'static str;

    /// A block of at least so many bytes, aligned to 256, for work given to the stream from now on. Returns its address.
    fn allocate(&self, size: u64, stream: Stream) -> Result<u64>;

    /// Frees a block: work that was given to the stream before may still use it.
    fn free(&self, address: u64, stream: Stream) -> Result<()>;

    /// The same, by who knows the size that was asked for. Allocators of others can need it.
    #[inline]
    fn free_sized(&self, address: u64, size: u64, stream: Stream) -> Result<()> {
        let _ = size;
        self.free(address, stream)
    }

    /// What it did so far.
    fn stats(&self) -> PolicyStats;

    /// Gives back to the device what is free, after the work on it.
    fn release(&self) -> Result<()>;

    /// Runs a trace once. Every policy has the loop compiled for itself: its calls may be inlined, also behind `dyn Policy`.
    fn pass(&self, playback: &mut Playback<'_>) -> std::result::Result<Pass, ReplayError> {
        playback.run(self)
    }
}

/// The names of all policies, the default first.
pub const NAMES: [&str; 6] = ["tiered", "bfc", "buddy", "slab", "arena", "async"];

/// What a policy does, in a line.
pub fn describe(name: &str) -> Option<&'static str> {
    Some(match name {
        "tiered" => {
            "poolscope's pool: size classes with thread caches; best fit over granules mapped where they are needed"
        }
        "bfc" => "TensorFlow's: best fit with coalescing in regions that double",
        "buddy" => "powers of two, split and joined in pairs",
        "slab" => "size classes, each in slabs of its own; large blocks kept by class, as in CUB",
        "arena" => "RMM's: first fit by address; small blocks in superblocks of their stream",
        "async" => "the driver's own pool, cudaMallocAsync",
        _ => return None,
    })
}

/// A policy by its name; settings are the tiered one's. `None` if there is none of that name.
pub fn build<D: Device>(name: &str, device: Arc<D>, config: &Config) -> Option<Result<Box<dyn Policy>>> {
    fn boxed<P: Policy + 'static>(policy: Result<P>) -> Result<Box<dyn Policy>> {
        policy.map(|policy| Box::new(policy) as Box<dyn Policy>)
    }
    Some(match name {
        "tiered" => boxed(crate::Pool::new(device, config.clone()).map_err(PolicyError::from)),
        "bfc" => boxed(Ok(Bfc::new(device))),
        "buddy" => boxed(Ok(Buddy::new(device))),
        "slab" => boxed(Ok(Slab::new(device))),
        "arena" => boxed(Arena::new(device)),
        "async" => boxed(DriverAsync::new(device)),
        _ => return None,
    })
}
