//! The pool's settings for C: by name, as text.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;

use poolscope_cpu::settings::{self, SettingError};

use crate::buffer::Buffer;

/// Changes a setting while the program runs: `name` as in the environment without its prefix and in small letters
/// (`thread_cache`), `value` as in the environment. 0, or `ENOENT` for a name that there is not, `EINVAL` for a value
/// that the setting does not take, `EPERM` for a setting that only counts at the start.
///
/// # Safety
/// Both are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_set(name: *const c_char, value: *const c_char) -> c_int {
    if name.is_null() || value.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let (name, value) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(value)) };
    match settings::set(name.to_bytes(), value) {
        Ok(()) => 0,
        Err(SettingError::Unknown) => libc::ENOENT,
        Err(SettingError::NotValid(_)) => libc::EINVAL,
        Err(SettingError::TooLate(_)) => libc::EPERM,
    }
}

/// Writes a setting's value in force, as the environment would have it, into `buffer` as far as it fits, with a zero
/// byte at the end. Returns the bytes that the whole takes, without that one; 0 for a name that there is not.
///
/// # Safety
/// `name` is a string. `buffer` has room for `size` bytes; it may be null if `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poolscope_get(name: *const c_char, buffer: *mut c_char, size: usize) -> usize {
    // SAFETY: the caller's promise.
    let mut out = unsafe { Buffer::new(buffer, size) };
    if !name.is_null()
        // SAFETY: the caller's promise.
        && let Ok(value) = settings::get(unsafe { CStr::from_ptr(name) }.to_bytes())
    {
        // A buffer takes everything.
        let _ = write!(out, "{value}");
    }
    out.end()
}
