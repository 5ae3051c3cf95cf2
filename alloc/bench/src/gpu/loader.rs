//! Libraries that are loaded at run time.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use poolscope_bench::Result;

/// A library that stays loaded.
#[derive(Clone, Copy)]
pub struct Library(*mut c_void);

impl Library {
    /// Loads a library, with all that it needs, for others to see if `global`.
    pub fn open(path: &Path, global: bool) -> Result<Library> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte".to_owned())?;
        let flags = libc::RTLD_NOW | if global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
        // SAFETY: the name ends in time; what the library does when it is loaded is its own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if handle.is_null() { Err(error()) } else { Ok(Library(handle)) }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is the type of a function pointer, and that of the function of this name.
    pub unsafe fn function<F: Copy>(self, name: &CStr) -> Result<F> {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: the handle is that of a loaded library.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() {
            return Err(error());
        }
        // SAFETY: a function pointer is as large as an address, which is checked above;
        // the caller says that it is this one.
        Ok(unsafe { std::mem::transmute_copy(&symbol) })
    }
}

fn error() -> String {
    // SAFETY: the text is valid until the thread's next call of these functions, and is copied here.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "no reason given".to_owned() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}
