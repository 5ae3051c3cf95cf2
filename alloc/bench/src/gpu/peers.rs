//! Peers that are libraries with the functions of `peers/peer.h`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use poolscope_bench::Result;
use poolscope_gpu::{Call, DeviceError, Fault, Stream};
use poolscope_replay::{Policy, PolicyError, PolicyStats};

use crate::loader::Library;

/// A peer's library.
#[derive(Clone, Copy)]
pub struct Peer {
    name: &'static str,
    open: unsafe extern "C" fn(*const c_char, c_int) -> c_int,
    close: unsafe extern "C" fn(),
    allocate: unsafe extern "C" fn(usize, *mut c_void) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, usize, *mut c_void),
    peak: unsafe extern "C" fn() -> usize,
    error: unsafe extern "C" fn() -> *const c_char,
    version: unsafe extern "C" fn() -> *const c_char,
}

/// Where the machine's PyTorch has its libraries: `TORCH_LIB`, or what its Python says.
fn torch_libraries() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("TORCH_LIB") {
        return Ok(folder.into());
    }
    let find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])";
    let output = std::process::Command::new("python3").args(["-c", find]).output();
    let output = output.map_err(|error| format!("python3 can't be run: {error}"))?;
    if !output.status.success() {
        return Err("the machine's python3 has no torch".to_owned());
    }
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("lib"))
}

impl Peer {
    /// Loads the library that has the peer of this name.
    pub fn load(name: &'static str, file: &Path) -> Result<Peer> {
        if !file.exists() {
            let file = file.display();
            return Err(format!("there is no {file}: it is not packed, and could not be compiled here"));
        }
        if name.starts_with("torch") {
            Library::open(&torch_libraries()?.join("libc10_cuda.so"), true)?;
        }
        let library = Library::open(file, false)?;
        // SAFETY: the types are those of peers/peer.h, which the library was compiled with.
        unsafe {
            Ok(Peer {
                name,
                open: library.function(c"peer_open")?,
                close: library.function(c"peer_close")?,
                allocate: library.function(c"peer_allocate")?,
                free: library.function(c"peer_free")?,
                peak: library.function(c"peer_peak_reserved")?,
                error: library.function(c"peer_error")?,
                version: library.function(c"peer_version")?,
            })
        }
    }

    pub fn version(&self) -> String {
        // SAFETY: a text that lasts as long as the library.
        unsafe { CStr::from_ptr((self.version)()) }.to_string_lossy().into_owned()
    }

    fn error(&self) -> String {
        // SAFETY: a text of the calling thread's, copied before its next call.
        unsafe { CStr::from_ptr((self.error)()) }.to_string_lossy().into_owned()
    }

    /// Opens its allocator, without memory.
    pub fn open(self, ordinal: u32) -> Result<Opened> {
        let name = CString::new(self.name).map_err(|_| "a name with a zero byte".to_owned())?;
        // SAFETY: the name lives through the call; nothing else of the library runs.
        if unsafe { (self.open)(name.as_ptr(), ordinal as c_int) } != 0 {
            return Err(self.error());
        }
        Ok(Opened(self))
    }
}

/// A peer's allocator.
pub struct Opened(Peer);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: no other thread uses it any more: all that did have ended.
        unsafe { (self.0.close)() };
    }
}

impl Opened {
    #[cold]
    fn failed(&self) -> PolicyError {
        eprintln!("{}: {}", self.0.name, self.0.error());
        PolicyError::Device(DeviceError { call: Call::Allocate, fault: Fault::OutOfMemory })
    }
}

impl Policy for Opened {
    fn name(&self) -> &'static str {
        self.0.name
    }

    #[inline]
    fn allocate(&self, size: u64, stream: Stream) -> std::result::Result<u64, PolicyError> {
        // SAFETY: it is open; the stream is the driver's.
        let address = unsafe { (self.0.allocate)(size.max(1) as usize, stream.0 as *mut c_void) };
        if address.is_null() { Err(self.failed()) } else { Ok(address as u64) }
    }

    fn free(&self, _: u64, _: Stream) -> std::result::Result<(), PolicyError> {
        // RMM has to be told the size.
        Err(PolicyError::Device(DeviceError { call: Call::Free, fault: Fault::Unsupported }))
    }

    #[inline]
    fn free_sized(&self, address: u64, size: u64, stream: Stream) -> std::result::Result<(), PolicyError> {
        // SAFETY: the block is one that `allocate` gave out, with this size.
        unsafe { (self.0.free)(address as *mut c_void, size.max(1) as usize, stream.0 as *mut c_void) };
        Ok(())
    }

    fn stats(&self) -> PolicyStats {
        // SAFETY: it is open.
        let peak_reserved = unsafe { (self.0.peak)() } as u64;
        PolicyStats { peak_reserved, ..PolicyStats::default() }
    }

    fn release(&self) -> std::result::Result<(), PolicyError> {
        Ok(())
    }
}
