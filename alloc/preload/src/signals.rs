//! What the program tells the C library of signals, and the pool has to know: what it does on `SIGBUS`, whose handler
//! is the pool's, so that files which are cut off don't end the program (`poolscope_cpu`'s `bus_error.rs`); and how
//! large the alternate stacks are, on which the signal that stops threads must have room.

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
        match pool::change_program_action(signal, &raw const new, &raw mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

/// `sigaltstack` (POSIX).
///
/// # Safety
/// As for the C library's: `new` is null or a stack, `old` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(new) = new.as_ref()
            && new.ss_flags & libc::SS_DISABLE == 0
        {
            pool::leaks::note_alternate_stack(new.ss_size);
        }
        pool::system_call(libc::SYS_sigaltstack, [new.expose_provenance(), old.expose_provenance()]) as c_int
    }
}
