//! libpoolscope_tensors.so: `poolscope_tensors.h` on the Rust client.

#![allow(non_camel_case_types, reason = "the header's names")]

mod refusal;
mod tensor;
#[cfg(test)]
mod tests;

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::time::Duration;

use poolscope_tensors::{Code, NewTensor, Refusal, Store, StoreOptions, Stream};
use refusal::{answer, answer_code, bytes_of, object, text};
use serde_json::json;
use tensor::poolscope_tensor;

/// What the file says of itself to those that look into it without running it: between zeros, so that `strings` has it
/// on a line of its own. It knows nothing of segments.
#[used]
static NOTE: [u8; NOTE_TEXT.len()] = {
    let mut note = [0; NOTE_TEXT.len()];
    note.copy_from_slice(NOTE_TEXT.as_bytes());
    note
};
const NOTE_TEXT: &str = concat!(
    "\0@(#)libpoolscope_tensors.so ",
    env!("CARGO_PKG_VERSION"),
    " commit ",
    env!("POOLSCOPE_BUILT_FROM"),
    "\0"
);

/// A store.
pub struct poolscope_store(Store);

/// # Safety
/// A store that was opened and not closed, or null.
unsafe fn opened<'a>(store: *const poolscope_store) -> Result<&'a Store, Refusal> {
    // SAFETY: the caller's promise.
    let store = unsafe { store.as_ref() };
    store.map(|store| &store.0).ok_or_else(|| Refusal::new(Code::BadField, "store: it is NULL".into()))
}

/// Opens a store.
///
/// # Safety
/// `socket` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_open(socket: *const c_char) -> *mut poolscope_store {
    // SAFETY: the caller's promise.
    unsafe { open_within(socket, StoreOptions::default()) }
}

/// Opens a store that waits no longer than so.
///
/// # Safety
/// `socket` is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_open_within(socket: *const c_char, seconds: f64) -> *mut poolscope_store {
    match Duration::try_from_secs_f64(seconds) {
        // SAFETY: the caller's promise.
        Ok(patience) if !patience.is_zero() => unsafe {
            open_within(socket, StoreOptions { patience, ..StoreOptions::default() })
        },
        _ => answer(|| Err(Refusal::new(Code::BadField, format!("seconds: {seconds} is no time to wait")))),
    }
}

/// # Safety
/// `socket` is null or a text that ends with a zero.
unsafe fn open_within(socket: *const c_char, mut options: StoreOptions) -> *mut poolscope_store {
    answer(|| {
        if !socket.is_null() {
            // SAFETY: the caller's promise.
            options.socket = PathBuf::from(unsafe { text("socket", socket) }?);
        }
        Store::open(options).map(|store| Box::into_raw(Box::new(poolscope_store(store))))
    })
}

/// Closes a store.
///
/// # Safety
/// A store that was opened and not closed, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_close(store: *mut poolscope_store) {
    if !store.is_null() {
        // SAFETY: `poolscope_tensors_open` made it so, and the caller gives it up.
        drop(unsafe { Box::from_raw(store) });
    }
}

/// A tensor by name.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_get(
    store: *const poolscope_store,
    name: *const c_char,
    expect: *const c_char,
) -> *mut poolscope_tensor {
    answer(|| {
        // SAFETY: the caller's promises.
        let (store, name, expect) = unsafe { (opened(store)?, text("name", name)?, object("expect", expect)?) };
        store.get_expecting(name, &expect).map(poolscope_tensor::boxed)
    })
}

/// A tensor by name, for the work of a stream.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_get_on(
    store: *const poolscope_store,
    name: *const c_char,
    expect: *const c_char,
    stream: u64,
) -> *mut poolscope_tensor {
    answer(|| {
        // SAFETY: the caller's promises.
        let (store, name, expect) = unsafe { (opened(store)?, text("name", name)?, object("expect", expect)?) };
        store.get_for(name, &expect, Some(Stream(stream))).map(poolscope_tensor::boxed)
    })
}

/// Tensors by the beginning of their names.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_get_many(
    store: *const poolscope_store,
    prefix: *const c_char,
    count: *mut usize,
) -> *mut *mut poolscope_tensor {
    answer(|| {
        // SAFETY: the caller's promises.
        let tensors = unsafe { opened(store)?.get_many(text("prefix", prefix)?) }?;
        let pointers: Vec<usize> = tensors.into_iter().map(|tensor| poolscope_tensor::boxed(tensor) as usize).collect();
        // SAFETY: the caller's promise.
        unsafe { count.write(pointers.len()) };
        let bytes: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()).collect();
        Ok(bytes_of(&bytes).cast())
    })
}

/// # Safety
/// Texts that end with a zero, and so many numbers.
unsafe fn new_tensor<'a>(
    name: *const c_char,
    dtype: *const c_char,
    (shape, rank): (*const u64, usize),
    device: u32,
    meta: *const c_char,
) -> Result<NewTensor<'a>, Refusal> {
    // SAFETY: the caller's promises.
    unsafe {
        let shape = if rank == 0 { &[] } else { std::slice::from_raw_parts(shape, rank) };
        let new = NewTensor::new(text("name", name)?, text("dtype", dtype)?, shape);
        Ok(NewTensor { device, meta: object("meta", meta)?, ..new })
    }
}

/// A new tensor.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_create(
    store: *const poolscope_store,
    name: *const c_char,
    dtype: *const c_char,
    shape: *const u64,
    rank: usize,
    device: u32,
    meta: *const c_char,
) -> *mut poolscope_tensor {
    answer(|| {
        // SAFETY: the caller's promises.
        let (store, new) = unsafe { (opened(store)?, new_tensor(name, dtype, (shape, rank), device, meta)?) };
        Ok(poolscope_tensor::boxed(store.create(&new)?.into_draft()))
    })
}

/// Finishes a new tensor.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_commit(
    store: *const poolscope_store,
    tensor: *const poolscope_tensor,
) -> c_int {
    answer_code(|| {
        // SAFETY: the caller's promises.
        let (store, tensor) = unsafe { (opened(store)?, poolscope_tensor::guard(tensor)?) };
        store.request(&json!({"op": "commit", "generations": [tensor.generation()]})).map(drop)
    })
}

/// Names memory of this process.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the header's")]
pub unsafe extern "C" fn poolscope_tensors_publish(
    store: *const poolscope_store,
    name: *const c_char,
    dtype: *const c_char,
    shape: *const u64,
    rank: usize,
    device: u32,
    gpu_uuid: *const c_char,
    address: u64,
    meta: *const c_char,
) -> c_int {
    answer_code(|| {
        // SAFETY: the caller's promises.
        let (store, new, uuid) = unsafe {
            (opened(store)?, new_tensor(name, dtype, (shape, rank), device, meta)?, text("gpu_uuid", gpu_uuid)?)
        };
        store.publish(&new, uuid, address)
    })
}

/// Any request.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_request(
    store: *const poolscope_store,
    request: *const c_char,
) -> *mut c_char {
    answer(|| {
        // SAFETY: the caller's promises.
        let (store, request) = unsafe { (opened(store)?, text("request", request)?) };
        let request = serde_json::from_str(request)
            .map_err(|error| Refusal::new(Code::BadJson, format!("the request is not JSON: {error}")))?;
        Ok(text_of(store.request(&request)?.to_string()))
    })
}

fn text_of(text: String) -> *mut c_char {
    let text = CString::new(text).unwrap_or_default();
    bytes_of(text.as_bytes_with_nul()).cast()
}

/// Frees what was returned.
///
/// # Safety
/// An array or text of these functions, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_free(allocated: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { refusal::free(allocated) };
}

/// A device's identifier.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_tensors_gpu_uuid(ordinal: u32) -> *mut c_char {
    answer(|| poolscope_tensors::gpu_uuid(ordinal).map(text_of))
}

/// A device's number.
///
/// # Safety
/// A text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_tensors_ordinal(gpu_uuid: *const c_char) -> c_int {
    let mut found = -1;
    answer_code(|| {
        // SAFETY: the caller's promise.
        found = poolscope_tensors::ordinal(unsafe { text("gpu_uuid", gpu_uuid) }?)? as c_int;
        Ok(())
    });
    found
}

/// The last refusal's words.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_tensors_error() -> *const c_char {
    refusal::last(|last| last.words.as_ptr()).unwrap_or(ptr::null())
}

/// The last refusal's code.
#[unsafe(no_mangle)]
pub extern "C" fn poolscope_tensors_error_code() -> *const c_char {
    refusal::last(|last| last.code.as_ptr()).unwrap_or(ptr::null())
}
