//! Limits that a process sets itself: its address space holds what the pool has only reserved, which has to go before the
//! limit comes, or no library, stack or file could be mapped any more.

use core::ffi::c_int;

use poolscope_cpu as pool;

/// `prlimit` (Linux).
///
/// # Safety
/// As for the system call: `new` is null or a limit, `old` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: libc::pid_t,
    resource: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let own = pid == 0 || pid == libc::getpid();
        if own && resource == libc::RLIMIT_AS as c_int && !new.is_null() {
            pool::fit_reservation(usize::try_from((*new).rlim_cur).unwrap_or(usize::MAX));
        }
        libc::syscall(libc::SYS_prlimit64, pid, resource, new, old) as c_int
    }
}

/// `setrlimit` (POSIX).
///
/// # Safety
/// `new` is a limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_int, new: *const libc::rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(0, resource, new, core::ptr::null_mut()) }
}

/// `prlimit64` (Linux): the same on 64-bit machines.
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: libc::pid_t,
    resource: c_int,
    new: *const libc::rlimit,
    old: *mut libc::rlimit,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { prlimit(pid, resource, new, old) }
}

/// `setrlimit64` (glibc): the same on 64-bit machines.
///
/// # Safety
/// As for [`setrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_int, new: *const libc::rlimit) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { setrlimit(resource, new) }
}
