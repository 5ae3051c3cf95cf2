//! From frame to frame, from the innermost return address outwards.

use crate::epilogue::GeneratedCode;
use crate::frame::unsigned;
use crate::modules::{self, Confirmed, Module};
use crate::rules::{self, Rule};
use crate::stack::{ThreadState, Window};
use crate::unwinder::Cache;
use crate::{Caller, Captured, MAX_DEPTH, fallback, table_pages};

/// Where a step led.
pub(crate) enum Step {
    /// To the caller.
    To(Caller),
    /// To the code that a signal interrupted, perhaps on another stack.
    Interrupted(Caller),
    /// Past the outermost function.
    End,
    /// Nowhere.
    Lost,
}

struct Walk<'a> {
    state: &'a mut ThreadState,
    stack: Window,
    confirmed: Confirmed,
    /// Modules of which unwind tables were read.
    read: Confirmed,
    /// The module of the latest frame.
    module: Option<Module>,
    /// framehop's memory, if there is any.
    cache: Option<&'a mut Cache>,
    /// Code that belongs to no module.
    generated: GeneratedCode,
    /// A signal was stepped over.
    interrupted: bool,
}

/// Walks from `caller`, whose `pc` is the first return address.
pub(crate) fn walk(
    state: &mut ThreadState,
    cache: Option<&mut Cache>,
    caller: Caller,
    frames: &mut [u64; MAX_DEPTH],
) -> Captured {
    let stack = state.window(caller.sp);
    let mut walk = Walk {
        state,
        stack,
        confirmed: Confirmed::new(),
        read: Confirmed::new(),
        module: None,
        cache,
        generated: GeneratedCode::default(),
        interrupted: false,
    };
    let mut captured = walk.run(caller, frames);
    if captured.incomplete && !walk.interrupted && stack.is_native() {
        captured = fallback::go_on(caller.pc, frames, captured);
    }
    if !walk.read.is_empty() && table_pages::is_due() {
        // The walk has frames of these modules, so that they stay loaded.
        table_pages::give_back(modules::tables(&walk.read));
    }
    captured
}

impl Walk<'_> {
    fn run(&mut self, caller: Caller, frames: &mut [u64; MAX_DEPTH]) -> Captured {
        let (mut at, mut depth) = (caller, 0);
        // Frames that are certain: code of no module may have led anywhere.
        let mut certain = 1;
        // The frame is one of a call, not of an interruption. A return address may be the first byte of the next
        // function, so that the call before it is looked up.
        let mut called = true;
        let incomplete = loop {
            let Some(frame) = frames.get_mut(depth) else {
                return Captured { depth, truncated: true, incomplete: false };
            };
            *frame = at.pc as u64;
            depth += 1;
            let known = self.enter_module(at.pc.wrapping_sub(usize::from(called)));
            if known {
                certain = depth;
            }
            let step = self.step(at, called);
            called = true;
            at = match step {
                Step::To(caller) => caller,
                Step::Interrupted(there) => {
                    // The interrupted instruction itself has not been executed.
                    called = false;
                    self.interrupted = true;
                    self.stack = self.state.window(there.sp);
                    there
                }
                Step::End if known => break false,
                Step::End | Step::Lost => break true,
            };
        };
        Captured { depth: if incomplete { certain.min(depth) } else { depth }, truncated: false, incomplete }
    }

    /// Makes `module` the one that `address` lies in; false if it lies in none.
    fn enter_module(&mut self, address: usize) -> bool {
        if self.module.as_ref().is_some_and(|module| module.holds(address)) {
            return true;
        }
        self.module = modules::find(address, &mut self.confirmed);
        self.module.is_some()
    }

    /// To the caller, by the tables of its module if it has any.
    fn step(&mut self, at: Caller, called: bool) -> Step {
        let Some(module) = self.module else {
            if called && let Some(caller) = self.generated.caller(at, &mut self.stack) {
                return Step::To(caller);
            }
            return self.step_by_frame_pointer(&at);
        };
        if is_signal_return(&module, at.pc) {
            return self.step_signal(&at).unwrap_or(Step::Lost);
        }
        // A module that could not be listed may have tables all the same, and frame pointers that belong to others; and
        // nobody notices that it is replaced.
        if !module.is_listed() {
            return Step::Lost;
        }
        if called {
            match self.rule(&module, at.pc) {
                Some(Rule::End) => return Step::End,
                Some(Rule::Realigned { below }) => {
                    return rules::realigned_caller(below, at, &mut self.stack).map_or(Step::Lost, Step::To);
                }
                Some(Rule::Offset { base, cfa, fp }) => {
                    if let Some(caller) = rules::caller(base, cfa, fp, at, &mut self.stack) {
                        return Step::To(caller);
                    }
                }
                Some(Rule::Other) | None => {}
            }
        }
        match (module.unwinder, self.cache.as_mut()) {
            (Some(unwinder), Some(cache)) => {
                self.read.note(module.index);
                unwinder.step(&at, called, &mut self.stack, cache)
            }
            (Some(_), None) => Step::Lost,
            (None, _) => self.step_by_frame_pointer(&at),
        }
    }

    /// The rule for a return address, which is learned if it is not known yet. `None` without memory.
    fn rule(&mut self, module: &Module, pc: usize) -> Option<Rule> {
        let epoch = modules::epoch();
        if let Some(rule) = rules::find(pc, epoch) {
            return Some(rule);
        }
        let rule = match module.unwinder {
            Some(unwinder) => {
                self.read.note(module.index);
                unwinder.rule(pc, self.cache.as_mut()?)
            }
            None => rules::USUAL,
        };
        rules::keep(pc, epoch, rule, module.stays);
        Some(rule)
    }

    /// Out of a signal handler. The stack pointer is at the kernel's `ucontext_t` (`asm/sigcontext.h`), or on AArch64 at
    /// the `siginfo_t` before it.
    #[cold]
    fn step_signal(&mut self, registers: &Caller) -> Option<Step> {
        let mut saved = |offset: usize| self.stack.word(registers.sp.checked_add(offset)?);
        let [fp, sp, pc] = SAVED_BY_SIGNAL;
        let there = Caller { fp: saved(fp)?, sp: saved(sp)?, pc: saved(pc)? };
        // On the same stack the interrupted code is further up, on another one it can be anywhere.
        if self.stack.holds(there.sp) && there.sp <= registers.sp {
            return None;
        }
        Some(Step::Interrupted(there))
    }

    /// Out of code without unwind tables. Frame pointers chain through the stack, and the chain only goes up.
    #[cold]
    fn step_by_frame_pointer(&mut self, registers: &Caller) -> Step {
        let frame = registers.fp;
        if frame == 0 {
            return Step::End;
        }
        self.caller_by_frame_pointer(frame, registers.sp).unwrap_or(Step::Lost)
    }

    fn caller_by_frame_pointer(&mut self, frame: usize, sp: usize) -> Option<Step> {
        if frame < sp {
            return None;
        }
        let (fp, pc) = (self.stack.word(frame)?, unsigned(self.stack.word(frame.checked_add(8)?)?));
        Some(if pc == 0 { Step::End } else { Step::To(Caller { pc, sp: frame.checked_add(16)?, fp }) })
    }
}

/// Where signal handlers return to: `mov rax, SYS_rt_sigreturn; syscall`. Debuggers and libgcc know the frame by these
/// bytes, too, and glibc and the kernel keep them for that (`sigaction.c`, "Do not remove").
#[cfg(target_arch = "x86_64")]
const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
/// The same: `mov x8, SYS_rt_sigreturn; svc 0`, in the kernel's own module (`vdso/sigreturn.S`, "must not be changed").
#[cfg(target_arch = "aarch64")]
const CODE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];

/// Where the frame pointer, the stack pointer and the next instruction are that a signal interrupted.
#[cfg(target_arch = "x86_64")]
const SAVED_BY_SIGNAL: [usize; 3] = [0x78, 0xa0, 0xa8];
/// The same, behind 128 bytes of `siginfo_t`, 176 of `ucontext_t` and the address of a fault: x29 of 31 registers.
#[cfg(target_arch = "aarch64")]
const SAVED_BY_SIGNAL: [usize; 3] = [312 + 29 * 8, 312 + 31 * 8, 312 + 32 * 8];

/// Whether `pc` is where signal handlers return to.
#[inline]
pub(crate) fn is_signal_return(module: &Module, pc: usize) -> bool {
    let (start, end) = module.code;
    if pc < start || end.saturating_sub(CODE.len()) < pc {
        return false;
    }
    // SAFETY: the code is readable from `start` to `end`, and its module was confirmed in this capture.
    unsafe { (pc as *const [u8; CODE.len()]).read_unaligned() == CODE }
}
