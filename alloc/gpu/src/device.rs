//! What the pool asks of a device: addresses, granules, streams, events.
//!
//! The trait is the part of CUDA's driver interface that a pool needs, call by call, so that the real side is a thin
//! layer and the simulated one ([`crate::Simulated`]) can charge, count and fail each call. All methods take `&self` and
//! may be called from any thread.

use std::fmt;

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

/// Physical memory of one granule, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule(pub u64);

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

/// The calls of the interface, for prices, counters, injected failures and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Device::memory_info`].
    MemoryInfo,
    /// [`Device::reserve`].
    Reserve,
    /// [`Device::unreserve`].
    Unreserve,
    /// [`Device::create`].
    Create,
    /// [`Device::release`].
    Release,
    /// [`Device::map`].
    Map,
    /// [`Device::unmap`].
    Unmap,
    /// [`Device::set_access`].
    SetAccess,
    /// [`Device::allocate`].
    Allocate,
    /// [`Device::free`].
    Free,
    /// [`Device::allocate_host`].
    AllocateHost,
    /// [`Device::free_host`].
    FreeHost,
    /// [`Device::enable_peer`].
    EnablePeer,
    /// [`Device::stream_id`].
    StreamId,
    /// [`Device::capturing`].
    Capturing,
    /// [`Device::create_event`].
    CreateEvent,
    /// [`Device::destroy_event`].
    DestroyEvent,
    /// [`Device::record`].
    Record,
    /// [`Device::query`].
    Query,
    /// [`Device::synchronize`].
    Synchronize,
    /// [`Device::wait`].
    Wait,
    /// [`Device::synchronize_all`].
    SynchronizeAll,
    /// [`Device::allocate_async`].
    AllocateAsync,
    /// [`Device::free_async`].
    FreeAsync,
    /// [`Device::async_pool`].
    AsyncPool,
    /// [`Device::keep_async`].
    KeepAsync,
    /// [`Device::trim_async`].
    TrimAsync,
}

impl Call {
    /// All of them, in the order of their declaration.
    pub const ALL: [Call; 27] = [
        Call::MemoryInfo,
        Call::Reserve,
        Call::Unreserve,
        Call::Create,
        Call::Release,
        Call::Map,
        Call::Unmap,
        Call::SetAccess,
        Call::Allocate,
        Call::Free,
        Call::AllocateHost,
        Call::FreeHost,
        Call::EnablePeer,
        Call::StreamId,
        Call::Capturing,
        Call::CreateEvent,
        Call::DestroyEvent,
        Call::Record,
        Call::Query,
        Call::Synchronize,
        Call::Wait,
        Call::SynchronizeAll,
        Call::AllocateAsync,
        Call::FreeAsync,
        Call::AsyncPool,
        Call::KeepAsync,
        Call::TrimAsync,
    ];

    /// The driver's function.
    pub fn name(self) -> &'static str {
        match self {
            Call::MemoryInfo => "cuMemGetInfo",
            Call::Reserve => "cuMemAddressReserve",
            Call::Unreserve => "cuMemAddressFree",
            Call::Create => "cuMemCreate",
            Call::Release => "cuMemRelease",
            Call::Map => "cuMemMap",
            Call::Unmap => "cuMemUnmap",
            Call::SetAccess => "cuMemSetAccess",
            Call::Allocate => "cuMemAlloc",
            Call::Free => "cuMemFree",
            Call::AllocateHost => "cuMemHostAlloc",
            Call::FreeHost => "cuMemFreeHost",
            Call::EnablePeer => "cuCtxEnablePeerAccess",
            Call::StreamId => "cuStreamGetId",
            Call::Capturing => "cuStreamIsCapturing",
            Call::CreateEvent => "cuEventCreate",
            Call::DestroyEvent => "cuEventDestroy",
            Call::Record => "cuEventRecord",
            Call::Query => "cuEventQuery",
            Call::Synchronize => "cuEventSynchronize",
            Call::Wait => "cuStreamWaitEvent",
            Call::SynchronizeAll => "cuCtxSynchronize",
            Call::AllocateAsync => "cuMemAllocAsync",
            Call::FreeAsync => "cuMemFreeAsync",
            Call::AsyncPool => "cuMemPoolGetAttribute",
            Call::KeepAsync => "cuMemPoolSetAttribute",
            Call::TrimAsync => "cuMemPoolTrimTo",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
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

/// A device.
///
/// A call that returns an error has changed nothing.
pub trait Device: Send + Sync + 'static {
    /// What it is. Not a call to the driver.
    fn properties(&self) -> Properties;

    /// Whether its time passes only where a test says so. A pool on it has no thread of its own: background work is the test's.
    fn is_simulated(&self) -> bool {
        false
    }

    /// Nanoseconds of a clock that only goes forward. Not a call to the driver.
    fn now(&self) -> u64;

    /// What is left of its memory.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Reserves a range of addresses, a multiple of [`GRANULE`] long and aligned to it, with nothing behind it.
    fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Gives a reserved range back, in which nothing is mapped.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<()>;

    /// Creates the physical memory of a granule, mapped nowhere.
    fn create(&self) -> Result<Granule>;

    /// Gives up a granule; its memory is free when it is mapped nowhere any more.
    fn release(&self, granule: Granule) -> Result<()>;

    /// Maps a granule at an address in a reserved range, at which nothing is mapped. A granule may be mapped at several.
    fn map(&self, address: u64, granule: Granule) -> Result<()>;

    /// Takes the mappings of a range away, each granule of which is mapped. The caller sees to it that no work that
    /// uses these addresses is still under way.
    fn unmap(&self, address: u64, bytes: u64) -> Result<()>;

    /// Makes a mapped range readable and writable, for the device and for those that [`enable_peer`](Self::enable_peer) let in.
    fn set_access(&self, address: u64, bytes: u64) -> Result<()>;

    /// Plain memory, aligned to 256 bytes.
    fn allocate(&self, bytes: u64) -> Result<u64>;

    /// Frees plain memory. It waits for all work of the device.
    fn free(&self, address: u64) -> Result<()>;

    /// Memory of the host, locked in place, which the device reads and writes at the same address. Aligned to 256 bytes.
    fn allocate_host(&self, bytes: u64) -> Result<u64>;

    /// Frees what [`allocate_host`](Self::allocate_host) gave. It waits for all work of the device.
    fn free_host(&self, address: u64) -> Result<()>;

    /// Lets another device read and write this one's memory: plain memory from now on, mapped ranges from their next
    /// [`set_access`](Self::set_access).
    fn enable_peer(&self, peer: &Self) -> Result<()>
    where
        Self: Sized;

    /// A number that no other stream of the process has or had; the same for all handles of one stream.
    fn stream_id(&self, stream: Stream) -> Result<u64>;

    /// Whether the stream's work is being captured into a graph.
    fn capturing(&self, stream: Stream) -> Result<bool>;

    /// Makes an event, without timing.
    fn create_event(&self) -> Result<Event>;

    /// Gives an event back, recorded or not.
    fn destroy_event(&self, event: Event) -> Result<()>;

    /// Puts an event behind all work that the stream has now.
    fn record(&self, event: Event, stream: Stream) -> Result<()>;

    /// Whether the work before the event's last record is done.
    fn query(&self, event: Event) -> Result<Progress>;

    /// Waits, on the host, for the work before the event's last record.
    fn synchronize(&self, event: Event) -> Result<()>;

    /// Waits, on the host, for all work of the device.
    fn synchronize_all(&self) -> Result<()>;

    /// Lets the stream's later work wait for the work before the event's last record.
    fn wait(&self, stream: Stream, event: Event) -> Result<()>;

    /// A block of the driver's own pool (`cudaMallocAsync`), in the order of a stream.
    fn allocate_async(&self, bytes: u64, stream: Stream) -> Result<u64> {
        let _ = (bytes, stream);
        Err(DeviceError { call: Call::AllocateAsync, fault: Fault::Unsupported })
    }

    /// Gives a block back to the driver's own pool, in the order of a stream.
    fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        let _ = (address, stream);
        Err(DeviceError { call: Call::FreeAsync, fault: Fault::Unsupported })
    }

    /// What the driver's own pool holds.
    fn async_pool(&self) -> Result<AsyncPool> {
        Err(DeviceError { call: Call::AsyncPool, fault: Fault::Unsupported })
    }

    /// Lets the driver's own pool keep so many bytes when the host waits for a stream (its release threshold, at first 0).
    fn keep_async(&self, bytes: u64) -> Result<()> {
        let _ = bytes;
        Err(DeviceError { call: Call::KeepAsync, fault: Fault::Unsupported })
    }

    /// Gives back what the driver's own pool holds and does not use, down to so many bytes, and begins
    /// [`AsyncPool::peak_reserved`] anew.
    fn trim_async(&self, keep: u64) -> Result<()> {
        let _ = keep;
        Err(DeviceError { call: Call::TrimAsync, fault: Fault::Unsupported })
    }
}
