//! Where CPython's strings have their type: the search for leaks knows by it those that CPython never frees.
//!
//! The dynamic linker writes the address of `PyUnicode_Type` when it loads this library, or 0 where neither the program
//! nor a library that it begins with has it.

use poolscope_cpu as pool;

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
    pool::leaks::set_string_type(unsafe { STRING_TYPE });
}
