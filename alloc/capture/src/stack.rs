//! Reads of the calling thread's stack, none of which can fault.
//!
//! A thread's own stack ends where glibc put it: below the thread's control block (`fs:0`), or at `__libc_stack_end`
//! for the main thread. That everything between the stack pointer and there is readable is asked of the kernel once,
//! page by page, and remembered; deeper captures ask for the new part only. A stack of the program's own making, a
//! coroutine's or `sigaltstack`'s, may be gone at the next capture, so each capture asks again, for the pages that it
//! reads and for 64 KiB at most.

use crate::{loader, system};
use core::sync::atomic::{AtomicU8, Ordering};

/// The smallest page of the supported machines; asking more often than needed is harmless.
const PAGE: usize = 4096;
/// What is read of a stack of the program's own making.
const FOREIGN_MAX: usize = 64 << 10;
/// A native stack is not asked about beyond this; 2 ms at 60 ns a page.
const NATIVE_MAX: usize = 128 << 20;
/// Taken as readable if the kernel does not answer: glibc's default stack.
const TRUSTED_MAX: usize = 8 << 20;

/// What is known of one thread's stack. All zeros is nothing.
///
/// It belongs to one thread, and may be copied with it by `fork`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ThreadState {
    /// Lowest address known to be readable, and so is everything up to `native_end`.
    native_start: usize,
    /// Where the thread's own stack ends; 0 while unknown.
    native_end: usize,
    /// 0, [`MAIN`] or [`NOT_MAIN`].
    thread: usize,
    /// The workbench that the thread used last.
    pub(crate) workbench: usize,
}

const MAIN: usize = 1;
const NOT_MAIN: usize = 2;

impl ThreadState {
    /// The state of a thread that has captured nothing yet; the same as all zeros.
    pub const fn new() -> Self {
        Self { native_start: 0, native_end: 0, thread: 0, workbench: 0 }
    }

    fn is_main_thread(&mut self) -> bool {
        if self.thread == 0 {
            self.thread = if system::is_main_thread() { MAIN } else { NOT_MAIN };
        }
        self.thread == MAIN
    }

    /// Where the thread's own stack ends, if `sp` may lie on it.
    fn possible_end(&mut self, sp: usize) -> Option<usize> {
        let control_block = thread_pointer();
        if self.is_main_thread() {
            loader::main_stack_end().filter(|end| sp < *end)
        } else {
            (sp < control_block).then_some(control_block)
        }
    }

    /// The end of the thread's own stack, if `sp` lies in what is known to be readable of it.
    #[inline(always)]
    pub(crate) fn native_end_above(&self, sp: usize) -> Option<usize> {
        (self.native_start <= sp && sp < self.native_end && sp & 7 == 0).then_some(self.native_end)
    }

    /// The stack that `sp` points into.
    #[inline]
    pub(crate) fn window(&mut self, sp: usize) -> Window {
        if self.native_start <= sp && sp < self.native_end {
            return Window { start: sp, readable: self.native_end, limit: self.native_end };
        }
        self.new_window(sp)
    }

    #[cold]
    fn new_window(&mut self, sp: usize) -> Window {
        let page = sp & !(PAGE - 1);
        if !kernel_answers() {
            let end = self.possible_end(sp).filter(|end| end.saturating_sub(sp) < TRUSTED_MAX);
            // Without any bound, the first word is all that is certain: the return address of `capture` itself.
            let end = end.unwrap_or(sp);
            return Window { start: sp, readable: end, limit: end };
        }
        if let Some(end) = self.possible_end(sp)
            && end - sp < NATIVE_MAX
        {
            // Below what is known already, only the gap is new.
            let known = if self.native_end == end && sp < self.native_start { self.native_start } else { end };
            if readable_until(page, known) >= known {
                self.native_start = page;
                self.native_end = end;
                return Window { start: sp, readable: end, limit: end };
            }
        }
        let limit = sp.saturating_add(FOREIGN_MAX);
        Window { start: sp, readable: page, limit }
    }
}

/// The end of the readable run that starts at the page `from`; `end` at most, rounded up to a page.
fn readable_until(from: usize, end: usize) -> usize {
    let mut page = from;
    while page < end && system::is_readable(page) {
        page = page.saturating_add(PAGE);
    }
    page
}

/// Whether [`system::is_readable`] tells the truth here: the page at zero must not be readable. Emulators and system
/// call filters may say otherwise.
fn kernel_answers() -> bool {
    static ANSWERS: AtomicU8 = AtomicU8::new(0);
    match ANSWERS.load(Ordering::Relaxed) {
        0 => {
            let answers = !system::is_readable(8) && system::is_readable(&raw const ANSWERS as usize);
            ANSWERS.store(if answers { 1 } else { 2 }, Ordering::Relaxed);
            answers
        }
        answer => answer == 1,
    }
}

/// The address of the thread's control block.
#[cfg(target_arch = "x86_64")]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI keeps the block's own address in its first word (ELF TLS, 3.4.6).
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

/// The address of the thread's control block.
#[cfg(target_arch = "aarch64")]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem, pure));
    }
    pointer
}

/// The part of a stack that one capture may read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    start: usize,
    /// Known to be readable up to here.
    readable: usize,
    /// May be asked about up to here.
    limit: usize,
}

impl Window {
    /// Whether this is the thread's own stack, all of it readable up to its end.
    pub(crate) fn is_native(&self) -> bool {
        self.readable == self.limit && self.readable > self.start
    }

    /// Whether `address` may lie on this stack.
    #[inline]
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.start <= address && address < self.limit
    }

    /// The aligned word at `address`.
    #[inline]
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        let end = address.checked_add(8)?;
        if address < self.start || address & 7 != 0 || (end > self.readable && !self.extend(end)) {
            return None;
        }
        // SAFETY: `start <= address` and `end <= readable`, and the kernel said that all between them is readable. It
        // is the calling thread's own stack, which nobody unmaps while the thread runs on it.
        Some(unsafe { (address as *const usize).read_volatile() })
    }

    #[cold]
    fn extend(&mut self, end: usize) -> bool {
        if end > self.limit {
            return false;
        }
        self.readable = readable_until(self.readable, end);
        self.readable >= end
    }
}
