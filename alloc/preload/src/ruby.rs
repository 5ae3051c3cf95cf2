//! What a program's Ruby is known by: what says which of its methods it is running.
//!
//! The dynamic linker writes the address of `rb_profile_frames` when it loads this library, or 0 where neither the
//! program nor a library that it begins with has it. The rest is looked up by name where there is one.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;

use pool::interpreter::Ruby;
use poolscope_cpu as pool;

use crate::symbol::find;

core::arch::global_asm!(
    ".pushsection .data.rel.ro.poolscope_ruby_frames,\"aw\",@progbits",
    ".balign 8",
    ".weak rb_profile_frames",
    ".globl poolscope_ruby_frames",
    ".hidden poolscope_ruby_frames",
    ".type poolscope_ruby_frames,@object",
    ".size poolscope_ruby_frames,8",
    "poolscope_ruby_frames: .quad rb_profile_frames",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "poolscope_ruby_frames"]
    static FRAMES: usize;
}

/// Tells the pool.
pub fn begin() {
    // SAFETY: a word that is written before any code of the library runs, and never again.
    if unsafe { FRAMES } != 0 {
        begin_calls();
    }
}

#[cold]
#[inline(never)]
fn begin_calls() {
    if let Some(symbols) = symbols() {
        // SAFETY: they are those of the first Ruby that the loader has, which the program or a library that it began
        // with is, or needs.
        unsafe { pool::interpreter::begin_ruby(symbols) };
    }
}

/// A function that takes no value and returns a number, and one that says a value of another one.
type Asks = unsafe extern "C" fn() -> c_int;
type OfValue = unsafe extern "C" fn(usize) -> usize;

/// None if one of them is missing.
fn symbols() -> Option<Ruby> {
    // SAFETY: Ruby's functions and constants, of the types that its headers give them.
    unsafe {
        let of_value = |name: &CStr| Some(transmute::<*mut c_void, OfValue>(find(name)?));
        Some(Ruby {
            version: find(c"ruby_api_version")?.cast::<[c_int; 3]>().read(),
            has_lock: transmute::<*mut c_void, Asks>(find(c"ruby_thread_has_gvl_p")?),
            is_collecting: transmute::<*mut c_void, Asks>(find(c"rb_during_gc")?),
            frames: transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int, *mut usize, *mut c_int) -> c_int>(
                find(c"rb_profile_frames")?,
            ),
            label: of_value(c"rb_profile_frame_label")?,
            path: of_value(c"rb_profile_frame_path")?,
            first_line: of_value(c"rb_profile_frame_first_lineno")?,
            method_name: of_value(c"rb_profile_frame_method_name")?,
            is_singleton: of_value(c"rb_profile_frame_singleton_method_p")?,
            attached: of_value(c"rb_class_attached_object"),
            class_name: of_value(c"rb_mod_name")?,
            text: transmute::<*mut c_void, unsafe extern "C" fn(*mut usize) -> *const core::ffi::c_char>(find(
                c"rb_string_value_ptr",
            )?),
            context: find(c"ruby_current_ec").map(|word| word as usize),
        })
    }
}
