//! Signals of the calling thread: which of them it blocks, and the stack that it has named for them.

use core::ffi::c_int;

use super::keep_errno;
use crate::kernel::system_call::system_call;

/// Blocks these signals for the calling thread, bit n - 1 for signal n; the mask as it was.
pub fn block_signals(signals: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the masks are the kernel's 8 bytes.
    keep_errno(|| unsafe {
        system_call!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const signals, &raw mut before, 8usize)
    });
    before
}

/// Gives the calling thread another signal mask.
pub fn set_blocked_signals(signals: u64) {
    // SAFETY: as above.
    keep_errno(|| unsafe {
        system_call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const signals, 0usize, 8usize)
    });
}

/// Takes back a signal that a call of this thread has brought upon it, while it was blocked; not if `before`, the mask
/// of before, had it blocked as well: then one that waits may be the program's.
pub fn take_back_signal(signal: c_int, before: u64) {
    let set = 1u64 << (signal - 1);
    if before & set != 0 {
        return;
    }
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel reads the set, 8 bytes, and the time.
    keep_errno(|| unsafe {
        system_call!(libc::SYS_rt_sigtimedwait, &raw const set, 0usize, &raw const at_once, 8usize)
    });
}

/// Where the stack begins that the calling thread has named for its signals (sigaltstack(2)); 0 if it has none.
pub fn signal_stack() -> usize {
    let mut stack = core::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: the kernel writes a stack there; zeroes are one, too.
    keep_errno(|| unsafe {
        system_call!(libc::SYS_sigaltstack, 0usize, stack.as_mut_ptr());
        start_of(stack.assume_init_ref())
    })
}

/// Where a stack for signals begins; 0 if it is none.
pub fn start_of(stack: &libc::stack_t) -> usize {
    if stack.ss_flags & libc::SS_DISABLE == 0 { stack.ss_sp.addr() } else { 0 }
}
