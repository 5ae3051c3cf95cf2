//! `SIGBUS`: what a thread gets that touches a page of a file which is not there any more. The pool touches two kinds
//! of files, the segment and the trace, and a program must not end because somebody cut them off.
//!
//! So the kernel's handler is [`on_bus_error`] as long as a file is mapped. It puts zeroed private memory in the place
//! of the pool's own pages ([`crate::segment::heal`]), and hands every other `SIGBUS` to the program's action, which is
//! kept here and which the preloaded library's `sigaction` changes instead of the kernel's ([`change_program_action`]).
//! To the program, ours is not there: it is told of its own, and the mask and the flags of that are the kernel's.
//!
//! A handler that is installed past the library (by the bare system call, or over a pool that is linked in and not
//! preloaded) stands in the place of ours. A thread that has the signal blocked gets no handler:
//! the kernel ends the process.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::kernel::os;
use crate::kernel::raw_thread;
use crate::kernel::system_call::system_call;
use crate::segment;

// The C library's own name for the function that the preloaded library stands before.
unsafe extern "C" {
    #[link_name = "__sigaction"]
    fn c_library_sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
}

/// What the C library's `struct sigaction` says, in words that can be read while another thread changes them.
struct Action {
    handler: AtomicUsize,
    flags: AtomicU32,
    mask: AtomicUsize,
}

impl Action {
    const fn new() -> Action {
        Action { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicU32::new(0), mask: AtomicUsize::new(0) }
    }

    /// Stores the words. `action` is a valid one.
    fn store(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags as u32, Ordering::Relaxed);
        // SAFETY: the kernel's part of a mask is its first word.
        self.mask.store(unsafe { (&raw const action.sa_mask).cast::<usize>().read() }, Ordering::Relaxed);
        self.handler.store(action.sa_sigaction, Ordering::Release);
    }

    fn load(&self) -> libc::sigaction {
        // SAFETY: zeroes are an action.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = self.handler.load(Ordering::Acquire);
        action.sa_flags = self.flags.load(Ordering::Relaxed) as c_int;
        // SAFETY: as above.
        unsafe { (&raw mut action.sa_mask).cast::<usize>().write(self.mask.load(Ordering::Relaxed)) };
        action
    }
}

/// The program's action: the last one written, in the slot of [`CURRENT`], so that the handler never reads half of one.
/// Two threads that change it at once are in a race with each other.
static PROGRAM: [Action; 2] = [const { Action::new() }; 2];
static CURRENT: AtomicU32 = AtomicU32::new(0);
/// The process whose handler ours is: a child of `vfork` has its parent's memory, and handlers of its own.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);

fn program_action() -> libc::sigaction {
    PROGRAM[CURRENT.load(Ordering::Acquire) as usize % 2].load()
}

fn set_program_action(action: &libc::sigaction) {
    let other = (CURRENT.load(Ordering::Relaxed) + 1) % 2;
    PROGRAM[other as usize % 2].store(action);
    CURRENT.store(other, Ordering::Release);
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == on_bus_error as *const () as usize
}

/// Our action, with what a program's one asks of the kernel.
fn ours_for(program: &libc::sigaction) -> libc::sigaction {
    let mut action = *program;
    if matches!(program.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        // SAFETY: zeroes are an action.
        action = unsafe { core::mem::zeroed() };
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    }
    action.sa_sigaction = on_bus_error as *const () as usize;
    // What goes back to the default after one signal does so in `on_bus_error`.
    action.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
    action
}

/// Installs the handler, for a file that is about to be mapped.
pub fn watch() {
    os::keep_errno(|| {
        // SAFETY: asks for the action, and sets one of this module's.
        unsafe {
            let mut before: libc::sigaction = core::mem::zeroed();
            if c_library_sigaction(libc::SIGBUS, core::ptr::null(), &raw mut before) != 0 {
                return;
            }
            if !is_ours(&before) {
                set_program_action(&before);
                c_library_sigaction(libc::SIGBUS, &ours_for(&before), core::ptr::null_mut());
            }
        }
        PROCESS.store(os::process_id(), Ordering::Relaxed);
        INSTALLED.store(true, Ordering::Release);
    });
}

/// `sigaction` for the program. Where the handler is ours, it stays, and the program's action for `SIGBUS` is changed
/// behind it.
///
/// # Safety
/// As for `sigaction`.
pub unsafe fn change_program_action(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if signal == libc::SIGBUS && INSTALLED.load(Ordering::Acquire) {
            change_action_behind(new, old)
        } else {
            c_library_sigaction(signal, new, old)
        }
    }
}

/// Changes the program's action for `SIGBUS`, or tells it.
///
/// # Safety
/// As for `sigaction`.
#[cold]
#[inline(never)]
unsafe fn change_action_behind(new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let program = program_action();
        let own = PROCESS.load(Ordering::Relaxed) == os::process_id();
        let result = match new.as_ref() {
            // A program may have asked the kernel itself, and hands back what it was told.
            Some(new) if own && !is_ours(new) => {
                set_program_action(new);
                c_library_sigaction(libc::SIGBUS, &ours_for(new), old)
            }
            _ => c_library_sigaction(libc::SIGBUS, if own { core::ptr::null() } else { new }, old),
        };
        if result == 0
            && let Some(old) = old.as_mut()
            && is_ours(old)
        {
            *old = program;
        }
        result
    }
}

unsafe extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes what happened; the program's handler is called as it asked for.
    unsafe {
        let (code, address) = ((*info).si_code, (*info).si_addr() as usize);
        if code == libc::BUS_ADRERR && os::keep_errno(|| segment::heal(address)) {
            return;
        }
        let program = program_action();
        let process = os::process_id();
        // An instruction fails again where it returns to; what came from elsewhere does not.
        let repeats = code > 0 && code != libc::BUS_MCEERR_AO;
        if !repeats && raw_thread::is_this() {
            // None of the program's handlers runs there; its first thread takes or blocks the signal.
            os::keep_errno(|| system_call!(libc::SYS_tgkill, process, process, signal));
            return;
        }
        match program.sa_sigaction {
            libc::SIG_IGN if !repeats => {}
            libc::SIG_DFL | libc::SIG_IGN => os::keep_errno(|| {
                let default: libc::sigaction = core::mem::zeroed();
                c_library_sigaction(signal, &raw const default, core::ptr::null_mut());
                if !repeats {
                    system_call!(libc::SYS_tgkill, process, os::thread_id(), signal);
                }
            }),
            handler => {
                if program.sa_flags & libc::SA_RESETHAND != 0 {
                    set_program_action(&core::mem::zeroed());
                }
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = core::mem::transmute(handler);
                handler(signal, info, context);
            }
        }
    }
}
