//! How refusals and texts cross the border to C.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use poolscope_tensors::{Code, Refusal};
use serde_json::{Map, Value};

/// A refusal that C can read.
pub struct Said {
    pub words: CString,
    pub code: CString,
}

thread_local! {
    static LAST: RefCell<Option<Said>> = const { RefCell::new(None) };
}

fn say(refusal: &Refusal) {
    let c = |text: &str| CString::new(text.replace('\0', "?")).unwrap_or_default();
    LAST.set(Some(Said { words: c(&refusal.words), code: c(refusal.code.text()) }));
}

/// Something of the calling thread's last refusal.
pub fn last<T>(look: impl FnOnce(&Said) -> T) -> Option<T> {
    LAST.with_borrow(|last| last.as_ref().map(look))
}

/// The pointer that something gives, or null and a refusal.
pub fn answer<T>(work: impl FnOnce() -> Result<*mut T, Refusal>) -> *mut T {
    work().unwrap_or_else(|refusal| {
        say(&refusal);
        ptr::null_mut()
    })
}

/// 0, or -1 and a refusal.
pub fn answer_code(work: impl FnOnce() -> Result<(), Refusal>) -> c_int {
    work().map_or_else(
        |refusal| {
            say(&refusal);
            -1
        },
        |()| 0,
    )
}

/// A text of C's.
///
/// # Safety
/// It ends with a zero, and lives as long as the result is used; or it is null.
pub unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Err(Refusal::new(Code::BadField, format!("{name}: it is NULL")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Refusal::new(Code::BadField, format!("{name}: it is not UTF-8")))
}

/// A JSON object of C's; null is an empty one.
///
/// # Safety
/// As for [`text`].
pub unsafe fn object(name: &str, from: *const c_char) -> Result<Map<String, Value>, Refusal> {
    if from.is_null() {
        return Ok(Map::new());
    }
    // SAFETY: the caller's promise.
    let json = unsafe { text(name, from) }?;
    serde_json::from_str(json).map_err(|error| Refusal::new(Code::BadJson, format!("{name} is no object: {error}")))
}

/// Bytes in an allocation for [`free`]: their count lies before them.
pub fn bytes_of(bytes: &[u8]) -> *mut c_void {
    let words = bytes.len().div_ceil(8) + 1;
    let mut all: Box<[u64]> = vec![0; words].into();
    all[0] = words as u64;
    let start = Box::into_raw(all).cast::<u64>();
    // SAFETY: the allocation is one word longer than the bytes need.
    unsafe {
        let data = start.add(1);
        ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len());
        data.cast()
    }
}

/// Frees such an allocation.
///
/// # Safety
/// [`bytes_of`] returned it, and nobody uses it any more; or it is null.
pub unsafe fn free(data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: the caller's promise: the count of words lies before the data.
    unsafe {
        let start = data.cast::<u64>().sub(1);
        let words = *start as usize;
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(start, words)));
    }
}
