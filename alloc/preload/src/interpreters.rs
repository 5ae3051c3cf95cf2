//! Whether the program began with CPython or Ruby: then the pool can say which of their functions run.
//!
//! The dynamic linker writes the address of a symbol of each when it loads this library, or 0 where neither the program
//! nor a library that it begins with has it. The rest is looked up by name where there is one.

use core::ffi::CStr;

use poolscope_cpu as pool;

use crate::symbol::find;

core::arch::global_asm!(
    ".pushsection .data.rel.ro.poolscope_interpreters,\"aw\",@progbits",
    ".balign 8",
    ".weak PyUnicode_Type",
    ".weak rb_profile_frames",
    ".globl poolscope_interpreters",
    ".hidden poolscope_interpreters",
    ".type poolscope_interpreters,@object",
    ".size poolscope_interpreters,16",
    "poolscope_interpreters: .quad PyUnicode_Type",
    ".quad rb_profile_frames",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "poolscope_interpreters"]
    static ADDRESSES: [usize; 2];
}

/// Tells the pool.
pub fn begin() {
    // SAFETY: words that are written before any code of the library runs, and never again.
    let addresses = unsafe { ADDRESSES };
    if addresses == [0; 2] {
        // SAFETY: nothing is found.
        unsafe { pool::interpreter::tell(None) };
    } else {
        look_up();
    }
}

#[cold]
#[inline(never)]
fn look_up() {
    // SAFETY: what is found is of the first CPython and the first Ruby that the loader has, which the program or a
    // library that it began with is, or needs.
    unsafe { pool::interpreter::tell(Some(&find)) };
    if pool::interpreter::has_only_its_own_allocator() && pool::settings::current().keep() {
        take_malloc_back();
    }
}

/// `poolscope check`, which keeps segments, has every Python use malloc. A free-threaded one ends at once, since it knows
/// no allocator of that name.
fn take_malloc_back() {
    // SAFETY: the value lies in the environment that the process began with, which is its own to write to, and no other
    // thread runs yet.
    unsafe {
        let value = libc::getenv(c"PYTHONMALLOC".as_ptr());
        if !value.is_null() && CStr::from_ptr(value) == c"malloc" {
            value.write(0);
        }
    }
}
