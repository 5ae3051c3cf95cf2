//! C++'s operator new and delete, all forms of C++17 and the sized ones of C++14.
//!
//! A failed `new` calls the new handler, or throws `std::bad_alloc` by libstdc++'s own function: both are weak
//! references, null in a program without libstdc++. An exception must not cross a Rust frame, so the failing path
//! ([`new_slow`]) is written in assembly, with unwind information, and the Rust functions end in a jump to it.

use poolscope_cpu as pool;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".weak _ZSt17__throw_bad_allocv",
    ".weak _ZSt15get_new_handlerv",
    ".globl poolscope_new_slow",
    ".hidden poolscope_new_slow",
    ".type poolscope_new_slow,@function",
    // Arguments: size, alignment.
    "poolscope_new_slow:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "push r12",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset r12, -24",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 32",
    "mov rbx, rdi",
    "mov r12, rsi",
    "2:",
    "mov rdi, rbx",
    "mov rsi, r12",
    "call {malloc_aligned}",
    "test rax, rax",
    "jne 3f",
    "mov rax, qword ptr [rip + _ZSt15get_new_handlerv@GOTPCREL]",
    "test rax, rax",
    "je 4f",
    "call rax",
    "test rax, rax",
    "je 4f",
    "call rax",
    "jmp 2b",
    "4:",
    "mov rax, qword ptr [rip + _ZSt17__throw_bad_allocv@GOTPCREL]",
    "test rax, rax",
    "je 3f",
    "call rax",
    "3:",
    "add rsp, 8",
    ".cfi_def_cfa_offset 24",
    "pop r12",
    ".cfi_def_cfa_offset 16",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size poolscope_new_slow, . - poolscope_new_slow",
    malloc_aligned = sym malloc_aligned,
);

extern "C" fn malloc_aligned(size: usize, align: usize) -> *mut u8 {
    pool::malloc_aligned(size, align)
}

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn poolscope_new_slow(size: usize, align: usize) -> *mut u8;
}

/// Retries as long as the program's new handler frees something, then throws.
#[inline(always)]
fn new_slow(size: usize, align: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: takes and returns plain values; no Rust frame with anything to clean up lies between.
    unsafe {
        poolscope_new_slow(size, align)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let p = malloc_aligned(size, align);
        if p.is_null() {
            pool::Message::new("operator new: out of memory").abort()
        }
        p
    }
}

macro_rules! operator_new {
    ($($name:ident($($arg:ident),*), $align:expr;)*) => { $(
        /// `operator new`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the name is mangled C++")]
        pub extern "C" fn $name(size: usize $(, $arg: usize)*) -> *mut u8 {
            match pool::malloc_fast(size, $align) {
                Some(p) => p,
                None => new_slow(size, $align),
            }
        }
    )* };
}

operator_new! {
    _Znwm(), 16;
    _Znam(), 16;
    _ZnwmSt11align_val_t(align), align;
    _ZnamSt11align_val_t(align), align;
}

macro_rules! operator_new_nothrow {
    ($($name:ident($($arg:ident),*), $align:expr;)*) => { $(
        /// `operator new(std::nothrow)`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the name is mangled C++")]
        pub extern "C" fn $name(size: usize, $($arg: usize,)* _nothrow: usize) -> *mut u8 {
            pool::malloc_aligned(size, $align)
        }
    )* };
}

operator_new_nothrow! {
    _ZnwmRKSt9nothrow_t(), 16;
    _ZnamRKSt9nothrow_t(), 16;
    _ZnwmSt11align_val_tRKSt9nothrow_t(align), align;
    _ZnamSt11align_val_tRKSt9nothrow_t(align), align;
}

macro_rules! operator_delete {
    ($($name:ident($($arg:ident),*);)*) => { $(
        /// `operator delete`.
        ///
        /// # Safety
        /// `p` is null or a block of the matching `operator new`.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the name is mangled C++")]
        pub unsafe extern "C" fn $name(p: *mut u8 $(, $arg: usize)*) {
            $( let _ = $arg; )*
            // SAFETY: the caller's promise.
            unsafe { pool::free(p) }
        }
    )* };
}

operator_delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(size);
    _ZdaPvm(size);
    _ZdlPvSt11align_val_t(align);
    _ZdaPvSt11align_val_t(align);
    _ZdlPvmSt11align_val_t(size, align);
    _ZdaPvmSt11align_val_t(size, align);
    _ZdlPvRKSt9nothrow_t(nothrow);
    _ZdaPvRKSt9nothrow_t(nothrow);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(align, nothrow);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(align, nothrow);
}
