//! Explains accesses to guard pages: a handler of `SIGSEGV` and `SIGBUS`, unless the program has one already.
//!
//! After the explanation the access is made once more, with the default action: the process ends by the signal that it
//! would have had without the handler, with a core dump that shows the access.

use core::ffi::{c_int, c_void};

use super::report::{Action, Finding, Report};
use super::{HARDENED, stacks};
use crate::kernel::os;
use crate::sync::spin_lock::SlowPath;
use crate::threads::thread_pointer;
use crate::tiers::static_heaps::{BUSY, DYING, EMPTY};

/// Installs the handler where the default action is set.
pub fn install() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: reads and writes whole structures; the handler stays as long as this library,
        // which is never unloaded.
        os::keep_errno(|| unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            if libc::sigaction(signal, core::ptr::null(), &raw mut action) != 0 || action.sa_sigaction != libc::SIG_DFL
            {
                return;
            }
            action.sa_sigaction = on_fault as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &raw const action, core::ptr::null_mut());
        });
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes what belongs to the signal.
    let (code, address, pc) = unsafe { ((*info).si_code, (*info).si_addr() as usize, interrupted_pc(context.cast())) };
    // SAFETY: the default action needs no handler; `raise` takes any signal.
    unsafe {
        let mut default: libc::sigaction = core::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const default, core::ptr::null_mut());
        if code > 0 {
            explain(address, pc);
        } else {
            // Somebody sent it: nothing will fault again. It is blocked until the handler returns.
            libc::raise(signal);
        }
    }
}

/// The instruction that a signal interrupted.
///
/// # Safety
/// The context is a signal's.
#[cfg(target_arch = "x86_64")]
unsafe fn interrupted_pc(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] as u64 }
}

/// The instruction that a signal interrupted.
///
/// # Safety
/// The context is a signal's.
#[cfg(target_arch = "aarch64")]
unsafe fn interrupted_pc(context: *const libc::ucontext_t) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.pc }
}

/// Says what the instruction at `pc` found at `address`, if that is known.
fn explain(address: usize, pc: u64) {
    let before = thread_pointer::get();
    let home = thread_pointer::home().cast_const();
    // SAFETY: the home is a heap, and if it is none of the static ones, this thread's.
    let heap = (home != &raw const EMPTY && home != &raw const DYING && before.cast_const() != &raw const BUSY)
        .then(|| unsafe { &*home });
    thread_pointer::set((&raw const BUSY).cast_mut());
    // SAFETY: set the line before; put back where this ends.
    let slow = unsafe { SlowPath::in_handler() };
    let stack = heap.map_or(stacks::Stack::NONE, stacks::here).interrupted_at(pc);
    // Its holder may be this thread.
    for _ in 0..10_000 {
        let Some(hardened) = HARDENED.try_lock(slow) else {
            core::hint::spin_loop();
            continue;
        };
        let record = hardened.records.around(address as *const u8).filter(|record| record.guarded);
        let report = record.map(|record| {
            Report::new(address, Action::Access, Finding::Touched, Some(record), stack, &hardened.stacks)
        });
        drop(hardened);
        if let Some(report) = report {
            report.print();
        }
        break;
    }
    thread_pointer::set(before);
}
