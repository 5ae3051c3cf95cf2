//! What a program's CPython is known by: the type of its strings, by which the search for leaks knows those that CPython
//! never frees, and what says which of its functions it is running.
//!
//! The dynamic linker writes the address of `PyUnicode_Type` when it loads this library, or 0 where neither the program
//! nor a library that it begins with has it. The rest is looked up by name where there is one.

use core::ffi::{c_int, c_void};
use core::mem::transmute;

use poolscope_cpu as pool;

use crate::symbol::find;

core::arch::global_asm!(
    ".pushsection .data.rel.ro.poolscope_string_type,\"aw\",@progbits",
    ".balign 8",
    ".weak PyUnicode_Type",
    ".globl poolscope_string_type",
    ".hidden poolscope_string_type",
    ".type poolscope_string_type,@object",
    ".size poolscope_string_type,8",
    "poolscope_string_type: .quad PyUnicode_Type",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "poolscope_string_type"]
    static STRING_TYPE: usize;
}

/// Tells the pool.
pub fn begin() {
    // SAFETY: a word that is written before any code of the library runs, and never again.
    let string_type = unsafe { STRING_TYPE };
    pool::leaks::set_string_type(string_type);
    if string_type != 0 {
        begin_calls();
    }
}

#[cold]
#[inline(never)]
fn begin_calls() {
    if let Some(symbols) = symbols() {
        // SAFETY: they are those of the first CPython that the loader has, which the program or a library that it began
        // with is, or needs.
        unsafe { pool::interpreter::begin_python(symbols) };
    }
}

/// None if one of them is missing.
fn symbols() -> Option<pool::interpreter::Python> {
    let evaluate = find(c"_PyEval_EvalFrameDefault")?;
    let is_finalizing = find(c"Py_IsFinalizing").or_else(|| find(c"_Py_IsFinalizing"))?;
    let address = |name| find(name).map(|address| address as usize);
    // SAFETY: CPython's functions, of the types that its headers give them.
    unsafe {
        Some(pool::interpreter::Python {
            version: transmute::<*mut c_void, unsafe extern "C" fn() -> *const core::ffi::c_char>(find(
                c"Py_GetVersion",
            )?),
            thread_state: transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_void>(find(
                c"PyGILState_GetThisThreadState",
            )?),
            is_finalizing: transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(is_finalizing),
            types: [address(c"PyType_Type")?, address(c"PyCode_Type")?, address(c"PyFrame_Type")?],
            evaluate: (evaluate as usize, evaluate as usize + size(evaluate)?),
        })
    }
}

/// Bytes of a function by its symbol. Only glibc says that.
fn size(function: *mut c_void) -> Option<usize> {
    /// The symbol is asked for.
    const RTLD_DL_SYMENT: c_int = 1;
    type Dladdr1 = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info, *mut *const libc::Elf64_Sym, c_int) -> c_int;
    // SAFETY: glibc's function, of the type that its header gives it.
    let dladdr1 = unsafe { transmute::<*mut c_void, Dladdr1>(find(c"dladdr1")?) };
    let mut symbol: *const libc::Elf64_Sym = core::ptr::null();
    // SAFETY: zeroes are a value of it; both places are written to, and the symbol lies in the loader's tables.
    unsafe {
        let mut info: libc::Dl_info = core::mem::zeroed();
        let found = dladdr1(function, &raw mut info, &raw mut symbol, RTLD_DL_SYMENT) != 0;
        let symbol = symbol.as_ref().filter(|_| found && info.dli_saddr == function)?;
        usize::try_from(symbol.st_size).ok().filter(|size| *size > 0)
    }
}
