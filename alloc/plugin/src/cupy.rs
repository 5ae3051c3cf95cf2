//! CuPy: the pair of functions for `cupy.cuda.CFunctionAllocator(param, malloc, free, owner)`.
//!
//! CuPy does not say which stream an allocation is for. `param` is that stream, for all that comes through one
//! allocator; 0 is the legacy default stream, which is CuPy's own. A program that works on other streams uses one
//! allocator for each, or passes the current stream itself (`samples/python/cupy_pool.py` does both).

use std::ffi::{c_int, c_void};
use std::ptr;

use poolscope_gpu::Stream;

use crate::devices::{device, device_among_peers};
use crate::refusal::{Refusal, keep, value};

/// `malloc`. CuPy takes null for a good block: who makes the allocator has to look (`samples/python/cupy_pool.py`
/// does).
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_cupy_malloc(param: *mut c_void, size: usize, ordinal: c_int) -> *mut c_void {
    let allocate = || Ok(device_among_peers(ordinal)?.pool.allocate(size as u64, Stream(param as u64))?);
    value(allocate()).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

/// `free`. A refusal can't be told to CuPy, so it is printed.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_cupy_free(param: *mut c_void, block: *mut c_void, ordinal: c_int) {
    let free = || -> Result<(), Refusal> { Ok(device(ordinal)?.pool.free(block as u64, Stream(param as u64))?) };
    if !block.is_null()
        && let Err(refusal) = free()
    {
        keep(&refusal);
        eprintln!("poolscope: device {ordinal}: {refusal}");
    }
}
