//! What the pool asks of a device: addresses, granules, streams, events.
//!
//! The trait is the part of CUDA's driver interface that a pool needs, call by call, so that the real side is a thin
//! layer and the simulated one ([`crate::Simulated`]) can charge, count and fail each call. All methods take `&self`
//! and may be called from any thread.

mod calls;
mod cuda;
mod driver;
mod pinned;
mod simulated;

pub use calls::{Call, Device, Sharing};
pub use cuda::{Cuda, CudaDevice, CudaError};
pub use driver::Driver;
pub use pinned::Pinned;
pub use simulated::{Access, Graph, Kernel, Simulated, Violation};

/// What lies at the handle of a stream ([`Device::at_handle`]) where nothing can be read.
pub const NOTHING: u64 = 0;

/// Bytes in a granule: the unit in which physical memory is created and mapped.
///
/// It is what `cuMemGetAllocationGranularity` says on every device since Volta.
pub const GRANULE: u64 = 2 << 20;

/// A stream, as the driver names it (`CUstream`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

impl Stream {
    /// The null handle: the legacy default stream, unless a program was compiled for per-thread ones.
    pub const NULL: Stream = Stream(0);
    /// The legacy default stream (`CU_STREAM_LEGACY`). It and every blocking stream wait for each other.
    pub const LEGACY: Stream = Stream(1);
    /// The calling thread's own default stream (`CU_STREAM_PER_THREAD`): one handle, another stream in every thread.
    pub const PER_THREAD: Stream = Stream(2);
}

/// An event, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Physical memory that was created in one piece, a multiple of a granule long.
///
/// The driver charges for pieces, whatever their length; but a piece is mapped, unmapped and given up as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// As the driver names it.
    pub handle: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// Physical memory that can be exported to other processes, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slab(pub u64);

/// Whether the work before an event is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of it, or the event was never recorded.
    Done,
    /// Not yet.
    Pending,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// As the driver gives it.
    pub name: String,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Whether ranges can be reserved and granules mapped.
    pub virtual_memory: bool,
}

/// What is left of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes nobody holds.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What the driver's own pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncPool {
    /// Bytes that it has from the device (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`).
    pub reserved: u64,
    /// The most that it had since it was last trimmed (`CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`).
    pub peak_reserved: u64,
    /// Bytes in blocks (`CU_MEMPOOL_ATTR_USED_MEM_CURRENT`).
    pub used: u64,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The device's memory, or its addresses, are used up.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// The pool holds as much as its settings allow.
    #[error("the pool's memory_limit is reached")]
    Limit,
    /// The driver refused the arguments.
    #[error("invalid: {0}")]
    Invalid(&'static str),
    /// The call is not allowed while a graph is being captured.
    #[error("not allowed while a graph is captured")]
    Capturing,
    /// The device cannot do it.
    #[error("not supported by this device")]
    Unsupported,
    /// Any other error, by the driver's number.
    #[error("the driver's error {0}{name}", name = error_name(*.0))]
    Driver(u32),
}

/// The driver's name of an error, in brackets behind a space; nothing for one that is not in the table.
pub fn error_name(code: u32) -> &'static str {
    match code {
        1 => " (CUDA_ERROR_INVALID_VALUE)",
        2 => " (CUDA_ERROR_OUT_OF_MEMORY)",
        3 => " (CUDA_ERROR_NOT_INITIALIZED)",
        4 => " (CUDA_ERROR_DEINITIALIZED)",
        34 => " (CUDA_ERROR_STUB_LIBRARY)",
        46 => " (CUDA_ERROR_DEVICE_UNAVAILABLE)",
        100 => " (CUDA_ERROR_NO_DEVICE)",
        101 => " (CUDA_ERROR_INVALID_DEVICE)",
        201 => " (CUDA_ERROR_INVALID_CONTEXT)",
        205 => " (CUDA_ERROR_MAP_FAILED)",
        206 => " (CUDA_ERROR_UNMAP_FAILED)",
        208 => " (CUDA_ERROR_ALREADY_MAPPED)",
        211 => " (CUDA_ERROR_NOT_MAPPED)",
        214 => " (CUDA_ERROR_ECC_UNCORRECTABLE)",
        217 => " (CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)",
        304 => " (CUDA_ERROR_OPERATING_SYSTEM)",
        400 => " (CUDA_ERROR_INVALID_HANDLE)",
        700 => " (CUDA_ERROR_ILLEGAL_ADDRESS)",
        702 => " (CUDA_ERROR_LAUNCH_TIMEOUT)",
        709 => " (CUDA_ERROR_CONTEXT_IS_DESTROYED)",
        719 => " (CUDA_ERROR_LAUNCH_FAILED)",
        800 => " (CUDA_ERROR_NOT_PERMITTED)",
        801 => " (CUDA_ERROR_NOT_SUPPORTED)",
        802 => " (CUDA_ERROR_SYSTEM_NOT_READY)",
        803 => " (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
        999 => " (CUDA_ERROR_UNKNOWN)",
        _ => "",
    }
}

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {fault}")]
pub struct DeviceError {
    /// Which.
    pub call: Call,
    /// Why.
    pub fault: Fault,
}

/// What a call returns.
pub type Result<T> = std::result::Result<T, DeviceError>;
