//! What the program does on `SIGBUS`, which it tells the C library, and the pool has to know: the handler is the
//! pool's, so that files which are cut off don't end the program (`poolscope_cpu`'s `bus_error.rs`).

use core::ffi::c_int;

use poolscope_cpu as pool;

// The C library's other name for `signal`.
unsafe extern "C" {
    fn ssignal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
}

/// `sigaction` (POSIX).
///
/// # Safety
/// As for the C library's: `new` is null or an action, `old` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { pool::change_program_action(signal, new, old) }
}

/// `signal` (C), with BSD's meaning, as glibc has it.
///
/// # Safety
/// `handler` is one for this signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the caller's promise.
    unsafe {
        if signal != libc::SIGBUS || handler == libc::SIG_ERR {
            return ssignal(signal, handler);
        }
        let mut new: libc::sigaction = core::mem::zeroed();
        let mut old: libc::sigaction = core::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        libc::sigaddset(&raw mut new.sa_mask, signal);
        match sigaction(signal, &raw const new, &raw mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}
