//! System calls by the processor's instruction. Not by the C library's `syscall`: a library may take that over
//! (uid_wrapper, torsocks), with a lock of its own that it holds while it allocates, which would come back here.

use core::ffi::{c_int, c_long};

/// What a system call takes: a word.
pub trait Argument {
    /// As the kernel gets it.
    fn word(self) -> usize;
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Argument for $number {
            #[inline(always)]
            fn word(self) -> usize {
                self as usize
            }
        })*
    };
}

numbers!(usize isize u64 i64 u32 i32);

impl<T> Argument for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

impl<T> Argument for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self.expose_provenance()
    }
}

/// `syscall(2)`: a number and up to six arguments. -1 on failure, with errno changed.
///
/// # Safety
/// As for the call.
macro_rules! system_call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        if cfg!(miri) {
            ::libc::syscall($number $(, $argument)*)
        } else {
            $crate::kernel::system_call::call($number, [$($crate::kernel::system_call::Argument::word($argument)),*])
        }
    };
}

pub(crate) use system_call;

/// The same, of words.
///
/// # Safety
/// As for the call.
#[inline(always)]
pub unsafe fn call<const N: usize>(number: c_long, arguments: [usize; N]) -> c_long {
    const { assert!(N <= 6) };
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: the caller's.
    unsafe { raw(number, a, b, c, d, e, f) }
}

/// # Safety
/// As for the call.
#[inline(never)]
unsafe extern "C" fn raw(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    // SAFETY: the caller's.
    let result = unsafe { instruction(number, a, b, c, d, e, f) };
    // The last page of addresses are errors.
    if (-4095..0).contains(&result) {
        // SAFETY: __errno_location always points at this thread's errno.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result
}

/// The kernel's answer.
///
/// # Safety
/// As for the call.
#[inline(always)]
unsafe fn instruction(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let result: c_long;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the kernel changes what the call is for, the result's register and the two that the instruction uses.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the kernel changes what the call is for, and the result's register.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number, inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_call_answers_as_the_c_librarys_does() {
        // SAFETY: these touch no memory but the one byte.
        unsafe {
            assert_eq!(system_call!(libc::SYS_getpid), libc::syscall(libc::SYS_getpid));
            let mut byte = 7u8;
            let read = system_call!(libc::SYS_getrandom, &raw mut byte, 1usize, libc::GRND_NONBLOCK);
            assert_eq!(read, 1);
        }
    }

    #[test]
    fn a_call_that_fails_answers_1_below_0_and_changes_errno() {
        // SAFETY: there is no such descriptor.
        unsafe {
            *libc::__errno_location() = 0;
            assert_eq!(system_call!(libc::SYS_close, -1), -1);
            assert_eq!(*libc::__errno_location(), libc::EBADF);
        }
    }
}
