//! C++'s operator new and delete, all forms of C++17 and the sized ones of C++14.
//!
//! What a failed `new` does is the C++ runtime's business: it calls the program's new handler as long as there is one,
//! then throws `std::bad_alloc`, which the nothrow forms turn into null. So a failed request is handed to the runtime's
//! own operator, which asks `malloc` again; it is looked up then, because nothing says that a program has a runtime, or
//! that it had one when this library was loaded. An exception must not cross a Rust frame: the way to the operators
//! that may throw ([`new_slow`]) is written in assembly, and the Rust functions end in a jump to it.
//!
//! Where a program replaces one of the operators, those that are that one by default call it ([`crate::replaced`]).
//!
//! Each function has a section of its own, so that the compiler does not make one of those that do the same: valgrind
//! tells by the address which of them was called, and whether it goes with the one that allocated.

use core::ffi::{CStr, c_char, c_void};

use pool::Origin::{New, NewArray};
use poolscope_cpu as pool;

use crate::replaced::{call_replaced, is_replaced};
use crate::symbol::address;

/// The C++ runtime's own function of this name; null without a runtime.
fn runtime_function(name: &CStr) -> *mut c_void {
    // The runtimes' own names first: the next definition may be another allocator's, whose blocks nobody could free.
    for library in [c"libstdc++.so.6", c"libc++.so.1"] {
        // SAFETY: finds a library that is loaded already, and a name in it.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            let function = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            if !function.is_null() {
                return function;
            }
        }
    }
    // SAFETY: looks a name up.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

extern "C" fn throwing_function(name: *const c_char) -> *mut c_void {
    // What the runtime's operator allocates is `malloc`'s to the pool.
    pool::trust_origins(false);
    // SAFETY: `new_slow` passes a C string.
    let function = runtime_function(unsafe { CStr::from_ptr(name) });
    if function.is_null() {
        pool::Message::new("operator new: out of memory, and no C++ runtime that could throw std::bad_alloc").abort()
    }
    function
}

/// A block for the operator of this name.
extern "C" fn malloc_aligned(size: usize, align: usize, name: *const c_char) -> *mut u8 {
    let p = pool::malloc_aligned(size, align);
    if pool::is_hardened() && !p.is_null() {
        // SAFETY: the mangled name of an operator, which ends with zero.
        let is_array = unsafe { CStr::from_ptr(name) }.to_bytes().starts_with(b"_Zna");
        pool::note_origin(p, if is_array { NewArray } else { New });
    }
    p
}

/// Has the hardened mode look at what frees a block if the program, and what it has loaded, takes these operators: one
/// that replaces some of them has blocks of its own kind.
pub fn begin() {
    let own = [
        (c"_Znwm", _Znwm as extern "C" fn(usize) -> *mut u8 as usize),
        (c"_Znam", _Znam as extern "C" fn(usize) -> *mut u8 as usize),
        (c"_ZdlPv", _ZdlPv as unsafe extern "C" fn(*mut u8) as usize),
        (c"_ZdaPv", _ZdaPv as unsafe extern "C" fn(*mut u8) as usize),
        (c"_ZdlPvm", _ZdlPvm as unsafe extern "C" fn(*mut u8, usize) as usize),
        (c"_ZdaPvm", _ZdaPvm as unsafe extern "C" fn(*mut u8, usize) as usize),
    ];
    let is_own = |name: &CStr, own| address(name).is_some_and(|found| found as usize == own);
    pool::trust_origins(pool::is_hardened() && own.into_iter().all(|(name, own)| is_own(name, own)));
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl poolscope_new_slow",
    ".hidden poolscope_new_slow",
    ".type poolscope_new_slow,@function",
    // Arguments: size, alignment, name of the operator, which `malloc_aligned` takes as well. The first two are the
    // operator's own; without an alignment it looks at the first alone.
    "poolscope_new_slow:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "push r12",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset r12, -24",
    "push r13",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset r13, -32",
    "mov rbx, rdi",
    "mov r12, rsi",
    "mov r13, rdx",
    "call {malloc_aligned}",
    "test rax, rax",
    "jne 2f",
    "mov rdi, r13",
    "call {throwing_function}",
    "mov rdi, rbx",
    "mov rsi, r12",
    ".cfi_remember_state",
    "pop r13",
    ".cfi_def_cfa_offset 24",
    "pop r12",
    ".cfi_def_cfa_offset 16",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "jmp rax",
    "2:",
    ".cfi_restore_state",
    "pop r13",
    ".cfi_def_cfa_offset 24",
    "pop r12",
    ".cfi_def_cfa_offset 16",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size poolscope_new_slow, . - poolscope_new_slow",
    malloc_aligned = sym malloc_aligned,
    throwing_function = sym throwing_function,
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn poolscope_new_slow(size: usize, align: usize, name: *const c_char) -> *mut u8;
}

/// A block, or what the runtime's operator `name` makes of there being none.
#[inline(always)]
fn new_slow(size: usize, align: usize, name: &'static CStr) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: takes and returns plain values; no Rust frame with anything to clean up lies between.
    unsafe {
        poolscope_new_slow(size, align, name.as_ptr())
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let p = malloc_aligned(size, align, name.as_ptr());
        if p.is_null() {
            // Without the jump, no exception could pass: the end of the program is all that remains.
            throwing_function(name.as_ptr());
            pool::Message::new("operator new: out of memory").abort()
        }
        p
    }
}

/// The name of a function as a C string.
macro_rules! c_name {
    ($name:ident) => {{
        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        };
        NAME
    }};
}

type Allocates = extern "C" fn(usize) -> *mut u8;
type AllocatesAligned = extern "C" fn(usize, usize) -> *mut u8;
type Frees = unsafe extern "C" fn(*mut u8);
type FreesAligned = unsafe extern "C" fn(*mut u8, usize);

macro_rules! operator_new {
    ($($name:ident($size:ident $(, $arg:ident)*), $align:expr
        $(, is $base:ident($($given:ident),*) as $kind:ty)?;)*) => { $(
        /// `operator new`.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = concat!(".text.", stringify!($name)))]
        #[allow(non_snake_case, reason = "the name is mangled C++")]
        pub extern "C" fn $name($size: usize $(, $arg: usize)*) -> *mut u8 {
            // A jump, as to `new_slow`: the program's operator may throw.
            $(call_replaced!($base($($given),*) as $kind);)?
            match pool::malloc_fast($size, $align) {
                Some(p) => p,
                None => new_slow($size, $align, c_name!($name)),
            }
        }
    )* };
}

operator_new! {
    _Znwm(size), 16;
    _Znam(size), 16, is _Znwm(size) as Allocates;
    _ZnwmSt11align_val_t(size, align), align;
    _ZnamSt11align_val_t(size, align), align, is _ZnwmSt11align_val_t(size, align) as AllocatesAligned;
}

macro_rules! operator_new_nothrow {
    ($($name:ident($($arg:ident),*), $align:expr, is $($base:ident)or+;)*) => { $(
        /// `operator new(std::nothrow)`.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = concat!(".text.", stringify!($name)))]
        #[allow(non_snake_case, reason = "the name is mangled C++")]
        pub extern "C" fn $name(size: usize, $($arg: usize,)* nothrow: usize) -> *mut u8 {
            if is_replaced!($($base),+) {
                // Which catches what the program's operator throws.
                return by_the_runtime(c_name!($name), size, [$($arg,)* nothrow]);
            }
            match pool::malloc_fast(size, $align) {
                Some(p) => p,
                None => new_nothrow_slow(c_name!($name), size, $align, [$($arg,)* nothrow]),
            }
        }
    )* };
}

operator_new_nothrow! {
    _ZnwmRKSt9nothrow_t(), 16, is _Znwm;
    _ZnamRKSt9nothrow_t(), 16, is _Znam or _Znwm;
    _ZnwmSt11align_val_tRKSt9nothrow_t(align), align, is _ZnwmSt11align_val_t;
    _ZnamSt11align_val_tRKSt9nothrow_t(align), align, is _ZnamSt11align_val_t or _ZnwmSt11align_val_t;
}

/// A block, or what the runtime's operator `name` makes of there being none.
#[cold]
fn new_nothrow_slow<const N: usize>(name: &CStr, size: usize, align: usize, arguments: [usize; N]) -> *mut u8 {
    let p = malloc_aligned(size, align, name.as_ptr());
    if p.is_null() { by_the_runtime(name, size, arguments) } else { p }
}

/// What the runtime's operator `name` makes of it: where there is no block, the program's new handler may free
/// something.
#[cold]
fn by_the_runtime<const N: usize>(name: &CStr, size: usize, arguments: [usize; N]) -> *mut u8 {
    pool::trust_origins(false);
    let function = runtime_function(name);
    if function.is_null() {
        return core::ptr::null_mut();
    }
    let argument = |at| arguments.get(at).copied().unwrap_or(0);
    // SAFETY: a form of operator new with at most three arguments, of which it looks at those that it has; it throws
    // nothing.
    unsafe {
        let function: extern "C" fn(usize, usize, usize) -> *mut u8 = core::mem::transmute(function);
        function(size, argument(0), argument(1))
    }
}

macro_rules! operator_delete {
    ($($name:ident($p:ident $(, $arg:ident)*) = $origin:expr, $align:expr, $size:expr
        $(, is $base:ident($($given:ident),*) as $kind:ty $(, or $other:ident)?)?;)*) => { $(
        /// `operator delete`.
        ///
        /// # Safety
        /// The pointer is null or a block of the matching `operator new`.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = concat!(".text.", stringify!($name)))]
        #[allow(non_snake_case, reason = "the name is mangled C++")]
        pub unsafe extern "C" fn $name($p: *mut u8 $(, $arg: usize)*) {
            $(call_replaced!($base($($given),*) as $kind $(, or $other)?);)?
            // SAFETY: the caller's promise.
            unsafe { pool::delete($p, $origin, $align, $size) }
        }
    )* };
}

/// The alignment of what was allocated without one.
const PLAIN: usize = 16;

operator_delete! {
    _ZdlPv(p) = New, PLAIN, None;
    _ZdaPv(p) = NewArray, PLAIN, None, is _ZdlPv(p) as Frees;
    _ZdlPvm(p, size) = New, PLAIN, Some(size), is _ZdlPv(p) as Frees;
    _ZdaPvm(p, size) = NewArray, PLAIN, Some(size), is _ZdaPv(p) as Frees, or _ZdlPv;
    _ZdlPvSt11align_val_t(p, align) = New, align, None;
    _ZdaPvSt11align_val_t(p, align) = NewArray, align, None, is _ZdlPvSt11align_val_t(p, align) as FreesAligned;
    _ZdlPvmSt11align_val_t(p, size, align) = New, align, Some(size), is _ZdlPvSt11align_val_t(p, align) as FreesAligned;
    _ZdaPvmSt11align_val_t(p, size, align) = NewArray, align, Some(size),
        is _ZdaPvSt11align_val_t(p, align) as FreesAligned, or _ZdlPvSt11align_val_t;
    _ZdlPvRKSt9nothrow_t(p, _nothrow) = New, PLAIN, None, is _ZdlPv(p) as Frees;
    _ZdaPvRKSt9nothrow_t(p, _nothrow) = NewArray, PLAIN, None, is _ZdaPv(p) as Frees, or _ZdlPv;
    _ZdlPvSt11align_val_tRKSt9nothrow_t(p, align, _nothrow) = New, align, None,
        is _ZdlPvSt11align_val_t(p, align) as FreesAligned;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(p, align, _nothrow) = NewArray, align, None,
        is _ZdaPvSt11align_val_t(p, align) as FreesAligned, or _ZdlPvSt11align_val_t;
}
