//! `poolscope_data_ptr`: owned buffers, for C.

use core::ffi::{c_int, c_void};

use poolscope_cpu::data_ptr::{Deleter, HostError, RawDataPtr};

/// Makes a buffer of the host pool: 0, `EINVAL` or `ENOMEM`, and errno is kept.
///
/// # Safety
/// `out` may be written to. What it holds is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_data_ptr_alloc(size: usize, align: usize, out: *mut RawDataPtr) -> c_int {
    let (made, error) = match RawDataPtr::host(size, align) {
        Ok(made) => (made, 0),
        Err(HostError::Alignment) => (RawDataPtr::EMPTY, libc::EINVAL),
        Err(HostError::NoMemory) => (RawDataPtr::EMPTY, libc::ENOMEM),
    };
    // SAFETY: the caller's promise.
    unsafe { out.write(made) };
    error
}

/// Makes a buffer of memory from elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_data_ptr_wrap(
    data: *mut u8,
    length: usize,
    context: *mut c_void,
    deleter: Option<Deleter>,
    device_kind: i32,
    device_index: i32,
) -> RawDataPtr {
    RawDataPtr { data, length, context, deleter, device_kind, device_index }
}

/// Takes a buffer out of its place, which is empty then.
///
/// # Safety
/// `from` holds a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_data_ptr_move(from: *mut RawDataPtr) -> RawDataPtr {
    // SAFETY: the caller's promise.
    unsafe { (*from).take() }
}

/// Calls the deleter, if there is one. The place is empty before the deleter runs.
///
/// # Safety
/// `buffer` is null or holds a buffer of the caller's, whose memory nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_data_ptr_free(buffer: *mut RawDataPtr) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(buffer) = buffer.as_mut() {
            buffer.take().delete();
        }
    }
}
