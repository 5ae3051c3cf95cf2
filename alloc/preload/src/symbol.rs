//! Symbols of the program and of the libraries that it began with.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;

use poolscope_cpu::interpreter::Symbol;

/// Where the loader has a symbol, if it has it, and its bytes where it says them.
pub fn find(name: &CStr) -> Option<Symbol> {
    let address = address(name)?;
    Some(Symbol { address: address as usize, size: size(address).unwrap_or(0) })
}

/// The address alone.
pub fn address(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks a name up.
    Some(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }).filter(|address| !address.is_null())
}

/// Bytes of what begins at an address. Only glibc says that.
fn size(start: *mut c_void) -> Option<usize> {
    /// The symbol is asked for.
    const RTLD_DL_SYMENT: c_int = 1;
    type Dladdr1 = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *const libc::Elf64_Sym, c_int) -> c_int;
    // SAFETY: glibc's function, of the type that its header gives it.
    let dladdr1 = unsafe { transmute::<*mut c_void, Dladdr1>(address(c"dladdr1")?) };
    let mut symbol: *const libc::Elf64_Sym = core::ptr::null();
    // SAFETY: zeroes are a value of it; both places are written to, and the symbol lies in the loader's tables.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = dladdr1(start, &raw mut info, &raw mut symbol, RTLD_DL_SYMENT) != 0;
        let symbol = symbol.as_ref().filter(|_| found && info.dli_saddr == start)?;
        usize::try_from(symbol.st_size).ok()
    }
}
