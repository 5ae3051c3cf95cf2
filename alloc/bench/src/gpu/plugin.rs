//! The pool behind `poolscope_gpu.h`. A process has one for its whole life: between rows it gives back all it has, and
//! the most that it has held is that of all rows, so that it is not shown.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use poolscope_bench::Result;
use poolscope_gpu::{Call, DeviceError, Fault, Stream};
use poolscope_replay::{Policy, PolicyError, PolicyStats};

use crate::loader::Library;

/// The library, used on one device.
#[derive(Clone, Copy)]
pub struct Plugin {
    device: c_int,
    allocate: unsafe extern "C" fn(c_int, usize, *mut c_void) -> *mut c_void,
    free: unsafe extern "C" fn(c_int, *mut c_void, *mut c_void) -> c_int,
    stream_ends: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    release: unsafe extern "C" fn(c_int) -> usize,
    error: unsafe extern "C" fn() -> *const c_char,
}

impl Plugin {
    pub fn load(file: &Path, ordinal: u32) -> Result<Plugin> {
        if !file.exists() {
            return Err(format!("there is no {}", file.display()));
        }
        let library = Library::open(file, false)?;
        // SAFETY: the types are those of poolscope_gpu.h.
        unsafe {
            Ok(Plugin {
                device: ordinal as c_int,
                allocate: library.function(c"poolscope_gpu_alloc")?,
                free: library.function(c"poolscope_gpu_free")?,
                stream_ends: library.function(c"poolscope_gpu_stream_ends")?,
                release: library.function(c"poolscope_gpu_release_all")?,
                error: library.function(c"poolscope_gpu_error")?,
            })
        }
    }

    #[cold]
    fn failed(&self, call: Call) -> PolicyError {
        // SAFETY: null, or a text of the calling thread's, printed before its next call.
        let text = unsafe {
            let text = (self.error)();
            if text.is_null() { c"no reason given" } else { CStr::from_ptr(text) }
        };
        eprintln!("poolscope-c: {}", text.to_string_lossy());
        PolicyError::Device(DeviceError { call, fault: Fault::OutOfMemory })
    }
}

/// Ending a row gives back what its blocks took.
impl Drop for Row {
    fn drop(&mut self) {
        // SAFETY: the device is one that the library knows.
        unsafe { (self.0.release)(self.0.device) };
    }
}

/// The pool for one row.
pub struct Row(pub Plugin);

impl Policy for Row {
    fn name(&self) -> &'static str {
        "poolscope-c"
    }

    #[inline]
    fn allocate(&self, size: u64, stream: Stream) -> std::result::Result<u64, PolicyError> {
        // SAFETY: the stream is the driver's.
        let block = unsafe { (self.0.allocate)(self.0.device, size as usize, stream.0 as *mut c_void) };
        if block.is_null() { Err(self.0.failed(Call::Allocate)) } else { Ok(block as u64) }
    }

    #[inline]
    fn free(&self, address: u64, stream: Stream) -> std::result::Result<(), PolicyError> {
        // SAFETY: the block is one that `allocate` gave out.
        match unsafe { (self.0.free)(self.0.device, address as *mut c_void, stream.0 as *mut c_void) } {
            0 => Ok(()),
            _ => Err(self.0.failed(Call::Free)),
        }
    }

    fn stats(&self) -> PolicyStats {
        PolicyStats::default()
    }

    /// The pool goes on to the next row, and would take the streams of this one for others that use it, too.
    fn stream_ends(&self, stream: Stream) -> bool {
        // SAFETY: the stream is the driver's, and still there.
        unsafe { (self.0.stream_ends)(self.0.device, stream.0 as *mut c_void) == 0 }
    }

    fn release(&self) -> std::result::Result<(), PolicyError> {
        Ok(())
    }
}
