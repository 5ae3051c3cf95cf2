//! How libraries are loaded that would bind to another allocator.
//!
//! A library that is loaded with `RTLD_DEEPBIND` looks names up in its own dependencies first, and finds the C library's
//! malloc there. What the program allocates and such a library frees, or the other way round, would then be freed by the
//! allocator that it is not of. PHP loads its extensions so. The flag is taken out; all else is as the program asked.

use core::ffi::{c_char, c_int, c_void};

use crate::credentials::Next;

static NEXT: Next = Next::new(c"dlopen");

/// The C library's function.
extern "C" fn next() -> *mut c_void {
    NEXT.find()
}

/// `dlopen` (POSIX). The C library's looks at the address that it returns to, which says whose search path counts. So
/// this jumps there, and is no caller of its own.
///
/// # Safety
/// As for the C library's.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {next}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "and esi, {others}",
        "jmp rax",
        // A C library without the function.
        "2:",
        "ret",
        next = sym next,
        others = const !libc::RTLD_DEEPBIND,
    )
}

/// The same. The address that a function returns to is in a register here (x30), which it has to find as it was.
///
/// # Safety
/// As for the C library's.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {next}",
        "mov x9, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x9, 2f",
        "and w1, w1, #{others}",
        "br x9",
        // A C library without the function.
        "2:",
        "mov x0, xzr",
        "ret",
        next = sym next,
        others = const !libc::RTLD_DEEPBIND,
    )
}
