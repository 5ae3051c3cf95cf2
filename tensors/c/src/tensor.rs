//! A guard as C has it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use poolscope_tensors::{Code, Refusal, Stream, Tensor};

use crate::refusal::answer_code;

/// A tensor, and what the owner says of it as text.
pub struct poolscope_tensor {
    guard: Tensor,
    entry: CString,
}

impl poolscope_tensor {
    /// One for C, which gives it back by `poolscope_tensor_release`.
    pub fn boxed(guard: Tensor) -> *mut poolscope_tensor {
        let entry = CString::new(guard.entry().to_string()).unwrap_or_default();
        Box::into_raw(Box::new(poolscope_tensor { guard, entry }))
    }

    /// The guard behind a pointer.
    ///
    /// # Safety
    /// A tensor that was not released, or null.
    pub unsafe fn guard<'a>(tensor: *const poolscope_tensor) -> Result<&'a Tensor, Refusal> {
        // SAFETY: the caller's promise.
        let tensor = unsafe { tensor.as_ref() };
        tensor.map(|tensor| &tensor.guard).ok_or_else(|| Refusal::new(Code::BadField, "tensor: it is NULL".into()))
    }
}

/// Where it lies.
///
/// # Safety
/// A tensor that was not released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_address(tensor: *const poolscope_tensor) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { tensor.as_ref() }.map_or(0, |tensor| tensor.guard.address())
}

/// Its bytes.
///
/// # Safety
/// A tensor that was not released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_bytes(tensor: *const poolscope_tensor) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { tensor.as_ref() }.map_or(0, |tensor| tensor.guard.bytes())
}

/// What the owner says of it.
///
/// # Safety
/// A tensor that was not released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_entry(tensor: *const poolscope_tensor) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { tensor.as_ref() }.map_or(ptr::null(), |tensor| tensor.entry.as_ptr())
}

/// Reads from it.
///
/// # Safety
/// A tensor that was not released, and memory of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_read(
    tensor: *const poolscope_tensor,
    offset: u64,
    to: *mut c_void,
    bytes: usize,
) -> c_int {
    answer_code(|| {
        // SAFETY: the caller's promises.
        let guard = unsafe { poolscope_tensor::guard(tensor) }?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        guard.read(offset, unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes) })
    })
}

/// Writes into it.
///
/// # Safety
/// A tensor that was not released, and memory of so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_write(
    tensor: *const poolscope_tensor,
    offset: u64,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    answer_code(|| {
        // SAFETY: the caller's promises.
        let guard = unsafe { poolscope_tensor::guard(tensor) }?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        guard.write(offset, unsafe { std::slice::from_raw_parts(from.cast(), bytes) })
    })
}

/// Says that work of a stream uses it.
///
/// # Safety
/// A tensor that was not released, or null, which no other thread uses now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_record_stream(tensor: *mut poolscope_tensor, stream: u64) -> c_int {
    answer_code(|| {
        // SAFETY: the caller's promise.
        let tensor = unsafe { tensor.as_mut() };
        let tensor = tensor.ok_or_else(|| Refusal::new(Code::BadField, "tensor: it is NULL".into()))?;
        tensor.guard.record_stream(Stream(stream));
        Ok(())
    })
}

/// Finishes it behind the work of a stream.
///
/// # Safety
/// A tensor that was not released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_commit_on(tensor: *const poolscope_tensor, stream: u64) -> c_int {
    // SAFETY: the caller's promise.
    answer_code(|| unsafe { poolscope_tensor::guard(tensor) }?.commit_draft_on(Stream(stream)))
}

/// Gives it back.
///
/// # Safety
/// A tensor that was not released, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensor_release(tensor: *mut poolscope_tensor) {
    if !tensor.is_null() {
        // SAFETY: `boxed` made it so, and the caller gives it up.
        drop(unsafe { Box::from_raw(tensor) });
    }
}
