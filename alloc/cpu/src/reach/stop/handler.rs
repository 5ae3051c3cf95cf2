//! What a thread does that is stopped.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use super::{Action, MAX_THREADS, NOTED, NOTES, SESSION, SMALLEST_STACK, Stopped, TAKEN};
use crate::kernel::os;
use crate::reach::frame;

/// Bytes of a stack that the handler takes, beside what the kernel writes there.
const HANDLER_STACK: usize = 2048;

/// Whether the handler may run on all alternate stacks. Otherwise it runs on the threads' own.
fn alternate_stacks_have_room() -> bool {
    // SAFETY: looks a value up.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    SMALLEST_STACK.load(Ordering::Relaxed) >= frame.max(libc::MINSIGSTKSZ) + HANDLER_STACK
}

/// The handler.
unsafe extern "C" fn on_stop(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    os::keep_errno(|| {
        let session = SESSION.load(Ordering::Acquire);
        if session.is_multiple_of(2) {
            return;
        }
        let notes = NOTES.load(Ordering::Acquire);
        let Some(place) = take_place(session) else { return };
        if place < MAX_THREADS {
            // SAFETY: the kernel passes the registers. The notes are the session's, which stay where one that took a
            // place has not written, and the place is this handler's alone.
            unsafe { notes.add(place).write(note(context.cast())) };
        }
        NOTED.fetch_add(1, Ordering::Release);
        os::wake(&NOTED);
        while SESSION.load(Ordering::Acquire) == session {
            os::sleep_on(&SESSION, session, 1000);
        }
    });
}

/// A place for a note, unless the session has ended.
fn take_place(session: u32) -> Option<usize> {
    let next = |taken: u64| (taken >> 32 == u64::from(session)).then_some(taken + 1);
    let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next).ok()?;
    Some(taken as u32 as usize)
}

/// What there is to note of a thread.
unsafe fn note(context: *const libc::ucontext_t) -> Stopped {
    /// The software's part of the kernel's record of vector registers (`struct _fpx_sw_bytes`): where it lies, and the
    /// number with which it begins.
    const SOFTWARE: usize = 464;
    const MAGIC: u32 = 0x4650_5853;
    const LEGACY: usize = 512;
    // SAFETY: the kernel wrote the context, and the record that it points to.
    unsafe {
        let machine = &(*context).uc_mcontext;
        // The pointer to it follows the general registers (`struct sigcontext`); not all C libraries have a name for it.
        let vectors = (&raw const *machine).cast::<u8>().add(size_of_val(&machine.gregs)).cast::<*const u8>().read();
        let len = if vectors.is_null() {
            0
        } else if vectors.add(SOFTWARE).cast::<u32>().read_unaligned() == MAGIC {
            (vectors.add(SOFTWARE + 16).cast::<u32>().read_unaligned() as usize).clamp(LEGACY, 1 << 16)
        } else {
            LEGACY
        };
        let general = (&raw const machine.gregs) as usize;
        Stopped {
            tid: os::thread_id(),
            sp: machine.gregs[libc::REG_RSP as usize] as usize,
            thread_pointer: frame::thread_pointer(),
            signal_stack: os::start_of(&(*context).uc_stack),
            registers: [(general, general + size_of_val(&machine.gregs)), (vectors as usize, vectors as usize + len)],
        }
    }
}

/// What a handler of the kernel's returns to.
#[unsafe(naked)]
unsafe extern "C" fn restore() {
    core::arch::naked_asm!("mov eax, 15", "syscall", "ud2")
}

/// The action that stops a thread.
pub(super) fn action() -> Option<Action> {
    const SA_RESTORER: u64 = 0x0400_0000;
    let on_stack = if alternate_stacks_have_room() { libc::SA_ONSTACK } else { 0 };
    let flags = (libc::SA_SIGINFO | libc::SA_RESTART | on_stack) as u64;
    let (handler, restorer) = (on_stop as *const () as usize, restore as *const () as usize);
    // No handler of the program's runs in a thread that is stopped; a fault there ends the process.
    Some(Action { handler, flags: flags | SA_RESTORER, restorer, mask: !0 })
}
