//! What a pool says when it can't.

use crate::config::ConfigError;
use crate::device::{DeviceError, Stream};

/// Why a call to the pool failed. A call that fails has changed nothing that the program has.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoolError {
    /// There is no memory for the request, and none could be made free.
    #[error(
        "no {request} bytes of device memory: blocks have {used} bytes of the {held} that the pool holds, {free} are free, \
         the largest free piece has {largest_free}; the device says: {cause}"
    )]
    OutOfMemory {
        /// Bytes that were asked for.
        request: u64,
        /// Bytes in blocks.
        used: u64,
        /// Bytes that the pool has from the device.
        held: u64,
        /// Bytes of them that are free.
        free: u64,
        /// Bytes of the largest free piece.
        largest_free: u64,
        /// What the device said last.
        cause: DeviceError,
    },
    /// The address is no block's.
    #[error("{0:#x} is not the address of a block of this pool")]
    NotABlock(u64),
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
