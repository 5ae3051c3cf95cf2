//! The driver's own functions, with nothing between: streams for all contestants, and two of these themselves.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use poolscope_bench::Result;
use poolscope_gpu::{Call, DeviceError, Fault, Stream};
use poolscope_replay::{Policy, PolicyError, PolicyStats};

use crate::loader::Library;

type Code = c_uint;

/// The driver, with the primary context of a device.
#[derive(Clone, Copy)]
pub struct Driver {
    context: *mut c_void,
    set_current: unsafe extern "C" fn(*mut c_void) -> Code,
    create_stream: unsafe extern "C" fn(*mut *mut c_void, c_uint) -> Code,
    destroy_stream: unsafe extern "C" fn(*mut c_void) -> Code,
    synchronize: unsafe extern "C" fn() -> Code,
    malloc: unsafe extern "C" fn(*mut u64, usize) -> Code,
    free: unsafe extern "C" fn(u64) -> Code,
    malloc_async: unsafe extern "C" fn(*mut u64, usize, *mut c_void) -> Code,
    free_async: unsafe extern "C" fn(u64, *mut c_void) -> Code,
    pool: *mut c_void,
    get_attribute: unsafe extern "C" fn(*mut c_void, c_uint, *mut c_void) -> Code,
    set_attribute: unsafe extern "C" fn(*mut c_void, c_uint, *mut c_void) -> Code,
    trim: unsafe extern "C" fn(*mut c_void, usize) -> Code,
}

// SAFETY: a context, a pool and functions, which every thread may use; the driver locks what it has to.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

const RELEASE_THRESHOLD: c_uint = 4;
const RESERVED: c_uint = 5;
const RESERVED_HIGH: c_uint = 6;
const NON_BLOCKING: c_uint = 1;

fn check(what: &str, code: Code) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(format!("{what}: the driver's error {code}")) }
}

impl Driver {
    /// Opens the device; its context is the calling thread's from then on.
    pub fn open(ordinal: u32) -> Result<Driver> {
        let library = Library::open(Path::new("libcuda.so.1"), false)?;
        let (mut device, mut context, mut pool) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: the types are those of cuda.h; each function writes to what it is given, which outlives the call.
        let driver = unsafe {
            let init: unsafe extern "C" fn(c_uint) -> Code = library.function(c"cuInit")?;
            let get: unsafe extern "C" fn(*mut c_int, c_int) -> Code = library.function(c"cuDeviceGet")?;
            let retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> Code =
                library.function(c"cuDevicePrimaryCtxRetain")?;
            let default_pool: unsafe extern "C" fn(*mut *mut c_void, c_int) -> Code =
                library.function(c"cuDeviceGetDefaultMemPool")?;
            check("cuInit", init(0))?;
            check("cuDeviceGet", get(&mut device, ordinal as c_int))?;
            check("cuDevicePrimaryCtxRetain", retain(&mut context, device))?;
            check("cuDeviceGetDefaultMemPool", default_pool(&mut pool, device))?;
            Driver {
                context,
                pool,
                set_current: library.function(c"cuCtxSetCurrent")?,
                create_stream: library.function(c"cuStreamCreate")?,
                destroy_stream: library.function(c"cuStreamDestroy_v2")?,
                synchronize: library.function(c"cuCtxSynchronize")?,
                malloc: library.function(c"cuMemAlloc_v2")?,
                free: library.function(c"cuMemFree_v2")?,
                malloc_async: library.function(c"cuMemAllocAsync")?,
                free_async: library.function(c"cuMemFreeAsync")?,
                get_attribute: library.function(c"cuMemPoolGetAttribute")?,
                set_attribute: library.function(c"cuMemPoolSetAttribute")?,
                trim: library.function(c"cuMemPoolTrimTo")?,
            }
        };
        driver.attach();
        Ok(driver)
    }

    /// Makes the context the calling thread's.
    pub fn attach(&self) {
        // SAFETY: the context is kept for the whole process.
        unsafe { (self.set_current)(self.context) };
    }

    /// A new stream that has nothing to do with the legacy default stream.
    pub fn stream(&self) -> Result<Stream> {
        let mut stream = ptr::null_mut();
        // SAFETY: it writes the handle.
        check("cuStreamCreate", unsafe { (self.create_stream)(&mut stream, NON_BLOCKING) })?;
        Ok(Stream(stream as u64))
    }

    /// Destroys a stream that nobody names any more.
    pub fn destroy(&self, stream: Stream) {
        // SAFETY: it is one that `stream` made.
        unsafe { (self.destroy_stream)(stream.0 as *mut c_void) };
    }

    /// Waits for all work.
    pub fn synchronize(&self) {
        // SAFETY: it takes nothing.
        unsafe { (self.synchronize)() };
    }

    fn attribute(&self, attribute: c_uint) -> u64 {
        let mut value = 0u64;
        // SAFETY: these attributes are numbers of 64 bits.
        unsafe { (self.get_attribute)(self.pool, attribute, (&raw mut value).cast()) };
        value
    }
}

fn failed(call: Call, code: Code) -> PolicyError {
    let fault = if code == 2 { Fault::OutOfMemory } else { Fault::Driver(code) };
    PolicyError::Device(DeviceError { call, fault })
}

/// `cuMemAlloc` and `cuMemFree`.
pub struct Malloc(pub Driver);

impl Policy for Malloc {
    fn name(&self) -> &'static str {
        "cudaMalloc"
    }

    #[inline]
    fn allocate(&self, size: u64, _: Stream) -> std::result::Result<u64, PolicyError> {
        let mut address = 0;
        // SAFETY: it writes the address.
        match unsafe { (self.0.malloc)(&mut address, size.max(1) as usize) } {
            0 => Ok(address),
            code => Err(failed(Call::Allocate, code)),
        }
    }

    #[inline]
    fn free(&self, address: u64, _: Stream) -> std::result::Result<(), PolicyError> {
        // SAFETY: the address is one that `allocate` gave out.
        match unsafe { (self.0.free)(address) } {
            0 => Ok(()),
            code => Err(failed(Call::Free, code)),
        }
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats::default()
    }

    fn release(&self) -> std::result::Result<(), PolicyError> {
        Ok(())
    }
}

/// `cuMemAllocAsync` and `cuMemFreeAsync`, from the default pool.
pub struct MallocAsync(Driver);

impl MallocAsync {
    /// Begins with an empty pool, which keeps what it gets.
    pub fn new(driver: Driver) -> MallocAsync {
        let pool = MallocAsync(driver);
        pool.set(0);
        let mut keep = u64::MAX;
        // SAFETY: the attribute is a number of 64 bits.
        unsafe { (driver.set_attribute)(driver.pool, RELEASE_THRESHOLD, (&raw mut keep).cast()) };
        pool
    }

    fn set(&self, keep: usize) {
        self.0.synchronize();
        let mut zero = 0u64;
        // SAFETY: the pool is the device's default one; the attribute is a number of 64 bits, and takes 0 only.
        unsafe {
            (self.0.trim)(self.0.pool, keep);
            (self.0.set_attribute)(self.0.pool, RESERVED_HIGH, (&raw mut zero).cast());
        }
    }
}

impl Drop for MallocAsync {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Policy for MallocAsync {
    fn name(&self) -> &'static str {
        "cudaMallocAsync"
    }

    #[inline]
    fn allocate(&self, size: u64, stream: Stream) -> std::result::Result<u64, PolicyError> {
        let mut address = 0;
        // SAFETY: it writes the address; the stream is one that the driver gave out.
        match unsafe { (self.0.malloc_async)(&mut address, size.max(1) as usize, stream.0 as *mut c_void) } {
            0 => Ok(address),
            code => Err(failed(Call::AllocateAsync, code)),
        }
    }

    #[inline]
    fn free(&self, address: u64, stream: Stream) -> std::result::Result<(), PolicyError> {
        // SAFETY: the address is one that `allocate` gave out.
        match unsafe { (self.0.free_async)(address, stream.0 as *mut c_void) } {
            0 => Ok(()),
            code => Err(failed(Call::FreeAsync, code)),
        }
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats {
            reserved: self.0.attribute(RESERVED),
            peak_reserved: self.0.attribute(RESERVED_HIGH),
            ..PolicyStats::default()
        }
    }

    fn release(&self) -> std::result::Result<(), PolicyError> {
        self.set(0);
        Ok(())
    }
}
