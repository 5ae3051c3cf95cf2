//! Symbols of the program and of the libraries that it has.

use core::ffi::{CStr, c_void};

/// Where the loader has a symbol, if it has it.
pub fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks a name up.
    Some(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }).filter(|address| !address.is_null())
}
