//! What a policy is: a way to place blocks.

use poolscope_gpu::{DeviceError, PoolError, Stream};

use super::{Pass, Playback, ReplayError};

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
        "{policy} has no {request} bytes: of the {reserved} that it holds, blocks have {in_use}; \
         the device says: {cause}"
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
pub(crate) type Result<T> = std::result::Result<T, PolicyError>;

/// A way to place blocks.
pub trait Policy: Send + Sync {
    /// The name by which [`build`](crate::policies::build) makes it.
    fn name(&self) -> &'static str;

    /// A block of at least so many bytes, aligned to 256, for work given to the stream from now on.
    /// Returns its address.
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

    /// Says that a stream is about to be destroyed, to a policy that lives longer. Returns whether it listens.
    fn stream_ends(&self, stream: Stream) -> bool {
        let _ = stream;
        false
    }

    /// Gives back to the device what is free, after the work on it.
    fn release(&self) -> Result<()>;

    /// Runs a trace once. Every policy has the loop compiled for itself: its calls may be inlined,
    /// also behind `dyn Policy`.
    fn pass(&self, playback: &mut Playback<'_>) -> std::result::Result<Pass, ReplayError> {
        playback.run(self)
    }
}
