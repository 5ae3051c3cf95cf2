//! Limits that a process sets itself: its address space holds what the pool has only reserved, which has to go before
//! the limit comes, or no library, stack or file could be mapped any more.

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
    // SAFETY: the kernel looks at the addresses itself, also at those that can't be read.
    unsafe {
        let result = pool::system_call(
            libc::SYS_prlimit64,
            [pid as usize, resource as usize, new.expose_provenance(), old.expose_provenance()],
        ) as c_int;
        let own = || pid == 0 || pid == libc::getpid();
        if result == 0 && resource == libc::RLIMIT_AS as c_int && !new.is_null() && own() {
            pool::fit_reservation(limit_of(resource));
        }
        result
    }
}

/// A limit of this process, in bytes, as the kernel has it.
fn limit_of(resource: c_int) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the limit.
    match unsafe {
        pool::system_call(libc::SYS_prlimit64, [0, resource as usize, 0, (&raw mut limit).expose_provenance()])
    } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
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

/// `mlockall` (POSIX). Under a limit of locked memory, what is only reserved counts as much as what there is,
/// and goes first.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let limit = limit_of(libc::RLIMIT_MEMLOCK as c_int);
    if limit != usize::MAX {
        pool::fit_reservation(limit);
    }
    // SAFETY: the caller's promise.
    unsafe { pool::system_call(libc::SYS_mlockall, [flags as usize]) as c_int }
}
