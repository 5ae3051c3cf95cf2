//! Raw system calls: libc's wrappers would write `errno`.

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
mod number {
    pub(super) const RT_SIGPROCMASK: usize = 14;
    pub(super) const GETPID: usize = 39;
    pub(super) const GETTID: usize = 186;
    pub(super) const READLINKAT: usize = 267;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub(super) const RT_SIGPROCMASK: usize = 135;
    pub(super) const GETPID: usize = 172;
    pub(super) const GETTID: usize = 178;
    pub(super) const READLINKAT: usize = 78;
}

const AT_FDCWD: isize = -100;
const EFAULT: isize = 14;

/// A system call of four arguments; a negative result is an error number.
///
/// # Safety
///
/// As for the system call itself.
unsafe fn syscall4(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the registers are those of the kernel's calling convention; the caller answers for the call's effect.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            options(nostack),
        );
    }
    result
}

/// Whether this is the process's first thread.
pub(crate) fn is_main_thread() -> bool {
    // SAFETY: neither call reads or writes memory.
    unsafe { syscall4(number::GETPID, 0, 0, 0, 0) == syscall4(number::GETTID, 0, 0, 0, 0) }
}

/// Whether the aligned word at `address` can be read.
///
/// `rt_sigprocmask` copies the new set in before it looks at `how`, so that an impossible `how` fails with `EINVAL`
/// after a successful read and with `EFAULT` otherwise; abseil's `AddressIsReadable` does the same. Unlike
/// `process_vm_readv`, the call is within systemd's `@system-service`, whose filter kills on anything else.
pub(crate) fn is_readable(address: usize) -> bool {
    const NO_SUCH_HOW: usize = !0;
    let word = address & !7;
    // SAFETY: with an impossible `how` the call changes nothing; the kernel checks the address itself.
    word != 0 && unsafe { syscall4(number::RT_SIGPROCMASK, NO_SUCH_HOW, word, 0, 8) } != -EFAULT
}

/// Writes the target of a symbolic link to `target`; returns how many bytes were written.
pub(crate) fn read_link(path: &core::ffi::CStr, target: &mut [u8]) -> Option<usize> {
    // SAFETY: the kernel reads a string that ends in zero and writes within `target`.
    let length = unsafe {
        syscall4(
            number::READLINKAT,
            AT_FDCWD as usize,
            path.as_ptr() as usize,
            target.as_mut_ptr() as usize,
            target.len(),
        )
    };
    usize::try_from(length).ok()
}
