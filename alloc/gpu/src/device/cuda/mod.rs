//! A CUDA device, by the driver's interface.
//!
//! The driver is loaded when the first device is opened; a machine without one, with an old one or with the linker's
//! stub of one gets a message that says so ([`CudaError`]). The context is the device's primary one, which PyTorch,
//! CuPy and the runtime use, too: addresses and streams are theirs.
//!
//! A call makes the context current for its own time, if another one is: a program that uses several devices finds its
//! own as it was. While a stream of any thread is captured, the driver ends the capture at calls that it takes for
//! unsafe; the pool's are not, since none of them is on that stream, and they say so
//! (`cuThreadExchangeStreamCaptureMode`). What would become part of the capture, an event on the stream or a wait of
//! it, is refused here instead, and so is the question for the stream's number.

mod found;
mod functions;
mod sharing;
mod streams;

use std::ffi::{c_uint, c_ulonglong};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemoryPool, CUstream,
};

use crate::device::{
    AsyncPool, Call, Device, DeviceError, Event, Fault, GRANULE, MemoryInfo, NOTHING, Piece, Progress, Properties,
    Result, Stream,
};
pub use found::{CudaDevice, CudaError};
use functions::{Code, Functions, functions};

const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: every device reads and writes it, at the host's address.
const HOST_PORTABLE_MAPPED: c_uint = 3;
const CAPTURE_RELAXED: c_uint = 2;
const OUT_OF_MEMORY: Code = 2;
const PEER_ACCESS_ALREADY_ENABLED: Code = 704;
const NOT_READY: Code = 600;
// Attributes of the driver's own pool.
const RELEASE_THRESHOLD: c_uint = 4;
const RESERVED: c_uint = 5;
const RESERVED_HIGH: c_uint = 6;
const USED: c_uint = 7;

fn allocation_properties(device: CUdevice) -> CUmemAllocationProp {
    // SAFETY: it is a structure of C; zeros are valid in each of its fields, and mean "nothing asked for".
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
    properties
}

/// A device.
pub struct Cuda {
    functions: &'static Functions,
    about: CudaDevice,
    device: CUdevice,
    context: CUcontext,
    /// Who may use the memory that is mapped: the device itself, and those that were let in.
    readers: Mutex<Vec<CUdevice>>,
    plain_only: bool,
    started: Instant,
}

// SAFETY: the context is a handle that every thread may use; the driver locks it.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

/// The time in which the device's context is current and the calling thread's calls end no capture.
struct Entered<'a> {
    functions: &'a Functions,
    pushed: bool,
    mode: c_uint,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // SAFETY: what is undone here was done in `Cuda::enter`, by this thread.
        unsafe {
            (self.functions.cuThreadExchangeStreamCaptureMode)(&mut self.mode);
            if self.pushed {
                let mut popped = ptr::null_mut();
                (self.functions.cuCtxPopCurrent_v2)(&mut popped);
            }
        }
    }
}

fn handle(stream: Stream) -> CUstream {
    let Stream(handle) = if stream == Stream::NULL { Stream::LEGACY } else { stream };
    handle as usize as CUstream
}

fn fault(code: Code) -> Fault {
    match code {
        OUT_OF_MEMORY => Fault::OutOfMemory,
        1 => Fault::Invalid("a value"),
        // A stream that was destroyed.
        400 | 709 => Fault::Invalid("no such event or stream"),
        801 => Fault::Unsupported,
        900..=908 => Fault::Capturing,
        code => Fault::Driver(code),
    }
}

fn check(call: Call, code: Code) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(DeviceError { call, fault: fault(code) }) }
}

fn unsupported(call: Call) -> DeviceError {
    DeviceError { call, fault: Fault::Unsupported }
}

impl Cuda {
    /// The devices that the driver sees.
    pub fn devices() -> std::result::Result<Vec<CudaDevice>, CudaError> {
        let functions = functions()?;
        (0..functions.count()?).map(|ordinal| CudaDevice::look_at(functions, ordinal).map(|(_, about)| about)).collect()
    }

    /// The version of CUDA that the driver is for, as `1000 * major + 10 * minor`.
    pub fn driver_version() -> std::result::Result<u32, CudaError> {
        let mut version = 0;
        // SAFETY: it writes one number.
        match unsafe { (functions()?.cuDriverGetVersion)(&mut version) } {
            0 => Ok(version as u32),
            code => Err(CudaError::Start(code)),
        }
    }

    /// Opens a device by its number, from 0, and keeps its primary context for as long as this lives.
    pub fn open(ordinal: u32) -> std::result::Result<Cuda, CudaError> {
        let functions = functions()?;
        let devices = functions.count()?;
        if ordinal >= devices {
            return Err(if devices == 0 { CudaError::NoDevice } else { CudaError::NoSuchDevice { ordinal, devices } });
        }
        let (device, about) = CudaDevice::look_at(functions, ordinal)?;
        let mut context = ptr::null_mut();
        // SAFETY: it writes the handle; `drop` gives it back.
        let code = unsafe { (functions.cuDevicePrimaryCtxRetain)(&mut context, device) };
        if code != 0 {
            return Err(CudaError::Open { ordinal, function: "cuDevicePrimaryCtxRetain", code });
        }
        Ok(Cuda {
            functions,
            about,
            device,
            context,
            readers: Mutex::new(vec![device]),
            plain_only: false,
            started: Instant::now(),
        })
    }

    /// The same device, used as one that has no virtual memory.
    pub fn without_virtual_memory(mut self) -> Cuda {
        self.plain_only = true;
        self
    }

    /// What the device is.
    pub fn about(&self) -> &CudaDevice {
        &self.about
    }

    /// The primary context (`CUcontext`), for a program that calls the driver itself.
    pub fn context(&self) -> usize {
        self.context as usize
    }

    fn enter(&self, call: Call) -> Result<Entered<'_>> {
        let functions = self.functions;
        let mut entered = Entered { functions, pushed: false, mode: CAPTURE_RELAXED };
        let mut current = ptr::null_mut();
        // SAFETY: the functions write handles and modes of this thread; the context lives as long as `self`. `entered`
        // undoes what was done, in the other order.
        unsafe {
            let known = (functions.cuCtxGetCurrent)(&mut current) == 0;
            let pushed = !known || current != self.context;
            if pushed && let Err(error) = check(call, (functions.cuCtxPushCurrent_v2)(self.context)) {
                std::mem::forget(entered);
                return Err(error);
            }
            entered.pushed = pushed;
            (functions.cuThreadExchangeStreamCaptureMode)(&mut entered.mode);
        }
        Ok(entered)
    }

    /// Whether work of the stream would become part of a capture.
    fn is_capturing(&self, stream: Stream) -> bool {
        let mut status = 0;
        // SAFETY: it writes one number. The legacy stream answers with an error while a stream that waits for it is
        // captured.
        let code = unsafe { (self.functions.cuStreamIsCapturing)(handle(stream), &mut status) };
        (900..=908).contains(&code) || (code == 0 && status != 0)
    }

    fn default_pool(&self, call: Call) -> Result<CUmemoryPool> {
        let function = self.functions.cuDeviceGetDefaultMemPool.ok_or(unsupported(call))?;
        let mut pool = ptr::null_mut();
        // SAFETY: it writes the handle.
        check(call, unsafe { function(&mut pool, self.device) })?;
        Ok(pool)
    }

    fn set_pool_attribute(&self, call: Call, attribute: c_uint, mut value: u64) -> Result<()> {
        let pool = self.default_pool(call)?;
        let function = self.functions.cuMemPoolSetAttribute.ok_or(unsupported(call))?;
        let _entered = self.enter(call)?;
        // SAFETY: the attributes that are set here are numbers of 64 bits.
        check(call, unsafe { function(pool, attribute, (&raw mut value).cast()) })
    }

    fn readers(&self) -> Vec<CUmemAccessDesc> {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let access = |id: &CUdevice| CUmemAccessDesc {
            location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: *id },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        readers.iter().map(access).collect()
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: the context was retained in `open`. At the end of the process the driver may be gone: it says so.
        unsafe {
            (self.functions.cuDevicePrimaryCtxRelease_v2)(self.device);
        }
    }
}

// SAFETY of the calls below, in all of them: the context is current, what a function writes to is on this stack, and
// handles and addresses are those that the driver gave out; the pool gives each back once,
// which `Device` asks of its callers.
impl Device for Cuda {
    fn properties(&self) -> Properties {
        Properties {
            name: self.about.name.clone(),
            memory: self.about.memory,
            virtual_memory: self.about.virtual_memory && !self.plain_only,
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// A handle is the address of a pointer to what the driver has of the stream, in memory from `malloc` (CUDA 13.0).
    /// Where it is free or not there, that is read without a fault.
    fn at_handle(&self, stream: Stream) -> Option<u64> {
        if matches!(stream, Stream::NULL | Stream::LEGACY | Stream::PER_THREAD) {
            return None;
        }
        let mut word = 0u64;
        let to = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<u64>() };
        let from = libc::iovec { iov_base: handle(stream).cast(), iov_len: size_of::<u64>() };
        // SAFETY: the kernel writes at most one word, and says so where there is none to read.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
        let is_not_there = read < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
        match word {
            _ if is_not_there => Some(NOTHING),
            NOTHING => None,
            word => Some(word),
        }
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let _entered = self.enter(Call::MemoryInfo)?;
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: see above.
        check(Call::MemoryInfo, unsafe { (self.functions.cuMemGetInfo_v2)(&mut free, &mut total) })?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    fn reserve(&self, bytes: u64) -> Result<u64> {
        let function = self.functions.cuMemAddressReserve.ok_or(unsupported(Call::Reserve))?;
        let _entered = self.enter(Call::Reserve)?;
        let mut address = 0;
        // SAFETY: see above.
        check(Call::Reserve, unsafe { function(&mut address, bytes as usize, GRANULE as usize, 0, 0) })?;
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        let function = self.functions.cuMemAddressFree.ok_or(unsupported(Call::Unreserve))?;
        let _entered = self.enter(Call::Unreserve)?;
        // SAFETY: see above.
        check(Call::Unreserve, unsafe { function(address, bytes as usize) })
    }

    fn create(&self, bytes: u64) -> Result<Piece> {
        let function = self.functions.cuMemCreate.ok_or(unsupported(Call::Create))?;
        let _entered = self.enter(Call::Create)?;
        let mut handle = 0;
        let properties = allocation_properties(self.device);
        // SAFETY: see above.
        check(Call::Create, unsafe { function(&mut handle, bytes as usize, &properties, 0) })?;
        Ok(Piece { handle, bytes })
    }

    fn release(&self, piece: Piece) -> Result<()> {
        let function = self.functions.cuMemRelease.ok_or(unsupported(Call::Release))?;
        let _entered = self.enter(Call::Release)?;
        // SAFETY: see above.
        check(Call::Release, unsafe { function(piece.handle) })
    }

    fn map(&self, address: u64, piece: Piece) -> Result<()> {
        let function = self.functions.cuMemMap.ok_or(unsupported(Call::Map))?;
        let _entered = self.enter(Call::Map)?;
        // SAFETY: see above.
        check(Call::Map, unsafe { function(address, piece.bytes as usize, 0, piece.handle, 0) })
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        let function = self.functions.cuMemUnmap.ok_or(unsupported(Call::Unmap))?;
        let _entered = self.enter(Call::Unmap)?;
        // SAFETY: see above.
        check(Call::Unmap, unsafe { function(address, bytes as usize) })
    }

    fn set_access(&self, address: u64, bytes: u64) -> Result<()> {
        let function = self.functions.cuMemSetAccess.ok_or(unsupported(Call::SetAccess))?;
        let _entered = self.enter(Call::SetAccess)?;
        let readers = self.readers();
        // SAFETY: see above.
        check(Call::SetAccess, unsafe { function(address, bytes as usize, readers.as_ptr(), readers.len()) })
    }

    fn enable_peer(&self, peer: &Cuda) -> Result<()> {
        let mut can = 0;
        // SAFETY: see above.
        unsafe {
            let code = (self.functions.cuDeviceCanAccessPeer)(&mut can, peer.device, self.device);
            check(Call::EnablePeer, code)?;
            if can == 0 {
                return Err(unsupported(Call::EnablePeer));
            }
            // Plain memory is open to a whole context, by this call; what is mapped, range by range.
            let _entered = peer.enter(Call::EnablePeer)?;
            match (self.functions.cuCtxEnablePeerAccess)(self.context, 0) {
                PEER_ACCESS_ALREADY_ENABLED => {}
                code => check(Call::EnablePeer, code)?,
            }
        }
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if !readers.contains(&peer.device) {
            readers.push(peer.device);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        let _entered = self.enter(Call::Allocate)?;
        let mut address = 0;
        // SAFETY: see above.
        check(Call::Allocate, unsafe { (self.functions.cuMemAlloc_v2)(&mut address, bytes.max(1) as usize) })?;
        Ok(address)
    }

    fn free(&self, address: u64) -> Result<()> {
        let _entered = self.enter(Call::Free)?;
        // SAFETY: see above.
        check(Call::Free, unsafe { (self.functions.cuMemFree_v2)(address) })
    }

    fn allocate_host(&self, bytes: u64) -> Result<u64> {
        let _entered = self.enter(Call::AllocateHost)?;
        let mut address = ptr::null_mut();
        let bytes = bytes.max(1) as usize;
        // SAFETY: see above.
        let code = unsafe { (self.functions.cuMemHostAlloc)(&mut address, bytes, HOST_PORTABLE_MAPPED) };
        check(Call::AllocateHost, code)?;
        Ok(address as u64)
    }

    fn free_host(&self, address: u64) -> Result<()> {
        let _entered = self.enter(Call::FreeHost)?;
        // SAFETY: see above.
        check(Call::FreeHost, unsafe { (self.functions.cuMemFreeHost)(address as usize as *mut _) })
    }

    fn stream_id(&self, stream: Stream) -> Result<u64> {
        let Some(function) = self.functions.cuStreamGetId else { return Ok(handle(stream) as u64) };
        let _entered = self.enter(Call::StreamId)?;
        if self.is_capturing(stream) {
            return Err(DeviceError { call: Call::StreamId, fault: Fault::Capturing });
        }
        let mut id: c_ulonglong = 0;
        // SAFETY: see above; the stream is the caller's, who says that it exists.
        check(Call::StreamId, unsafe { function(handle(stream), &mut id) })?;
        Ok(id)
    }

    fn capturing(&self, stream: Stream) -> Result<bool> {
        let _entered = self.enter(Call::Capturing)?;
        Ok(self.is_capturing(stream))
    }

    fn create_event(&self) -> Result<Event> {
        let _entered = self.enter(Call::CreateEvent)?;
        let mut event: CUevent = ptr::null_mut();
        // SAFETY: see above.
        check(Call::CreateEvent, unsafe { (self.functions.cuEventCreate)(&mut event, EVENT_DISABLE_TIMING) })?;
        Ok(Event(event as u64))
    }

    fn destroy_event(&self, event: Event) -> Result<()> {
        let _entered = self.enter(Call::DestroyEvent)?;
        // SAFETY: see above.
        check(Call::DestroyEvent, unsafe { (self.functions.cuEventDestroy_v2)(event.0 as usize as CUevent) })
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        let _entered = self.enter(Call::Record)?;
        if self.is_capturing(stream) {
            return Err(DeviceError { call: Call::Record, fault: Fault::Capturing });
        }
        // SAFETY: see above.
        check(Call::Record, unsafe { (self.functions.cuEventRecord)(event.0 as usize as CUevent, handle(stream)) })
    }

    fn query(&self, event: Event) -> Result<Progress> {
        let _entered = self.enter(Call::Query)?;
        // SAFETY: see above.
        match unsafe { (self.functions.cuEventQuery)(event.0 as usize as CUevent) } {
            NOT_READY => Ok(Progress::Pending),
            code => check(Call::Query, code).map(|()| Progress::Done),
        }
    }

    fn synchronize(&self, event: Event) -> Result<()> {
        let _entered = self.enter(Call::Synchronize)?;
        // SAFETY: see above.
        check(Call::Synchronize, unsafe { (self.functions.cuEventSynchronize)(event.0 as usize as CUevent) })
    }

    fn synchronize_all(&self) -> Result<()> {
        let _entered = self.enter(Call::SynchronizeAll)?;
        // SAFETY: it takes nothing; the context is current.
        check(Call::SynchronizeAll, unsafe { (self.functions.cuCtxSynchronize)() })
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        let _entered = self.enter(Call::Wait)?;
        if self.is_capturing(stream) {
            return Err(DeviceError { call: Call::Wait, fault: Fault::Capturing });
        }
        // SAFETY: see above.
        let code = unsafe { (self.functions.cuStreamWaitEvent)(handle(stream), event.0 as usize as CUevent, 0) };
        check(Call::Wait, code)
    }

    fn allocate_async(&self, bytes: u64, stream: Stream) -> Result<u64> {
        let function = self.functions.cuMemAllocAsync.ok_or(unsupported(Call::AllocateAsync))?;
        let _entered = self.enter(Call::AllocateAsync)?;
        let mut address = 0;
        // SAFETY: see above.
        check(Call::AllocateAsync, unsafe { function(&mut address, bytes.max(1) as usize, handle(stream)) })?;
        Ok(address)
    }

    fn free_async(&self, address: u64, stream: Stream) -> Result<()> {
        let function = self.functions.cuMemFreeAsync.ok_or(unsupported(Call::FreeAsync))?;
        let _entered = self.enter(Call::FreeAsync)?;
        // SAFETY: see above.
        check(Call::FreeAsync, unsafe { function(address, handle(stream)) })
    }

    fn async_pool(&self) -> Result<AsyncPool> {
        let (pool, call) = (self.default_pool(Call::AsyncPool)?, Call::AsyncPool);
        let function = self.functions.cuMemPoolGetAttribute.ok_or(unsupported(call))?;
        let _entered = self.enter(call)?;
        let get = |attribute| {
            let mut value = 0u64;
            // SAFETY: see above; these attributes are numbers of 64 bits.
            check(call, unsafe { function(pool, attribute, (&raw mut value).cast()) })?;
            Ok(value)
        };
        Ok(AsyncPool { reserved: get(RESERVED)?, peak_reserved: get(RESERVED_HIGH)?, used: get(USED)? })
    }

    fn keep_async(&self, bytes: u64) -> Result<()> {
        self.set_pool_attribute(Call::KeepAsync, RELEASE_THRESHOLD, bytes)
    }

    fn trim_async(&self, keep: u64) -> Result<()> {
        let (pool, call) = (self.default_pool(Call::TrimAsync)?, Call::TrimAsync);
        let function = self.functions.cuMemPoolTrimTo.ok_or(unsupported(call))?;
        {
            let _entered = self.enter(call)?;
            // SAFETY: see above.
            check(call, unsafe { function(pool, keep as usize) })?;
        }
        // The only value that may be set; it begins the count anew.
        self.set_pool_attribute(call, RESERVED_HIGH, 0)
    }
}
