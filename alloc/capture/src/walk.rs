//! From frame to frame, from the innermost return address outwards.

use crate::caches::{self, Taken};
use crate::epilogue::GeneratedCode;
use crate::modules::{self, Confirmed, Module};
use crate::rules::{self, Rule};
use crate::stack::{ThreadState, Window};
use crate::{Captured, MAX_DEPTH, fallback};

/// The registers of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    /// Where the frame goes on.
    pub(crate) pc: usize,
    /// The stack pointer at that moment.
    pub(crate) sp: usize,
    /// The frame pointer, if the function keeps one; else whatever it put into the register.
    pub(crate) fp: usize,
}

/// Where a step led.
pub(crate) enum Step {
    /// To the caller.
    To(Registers),
    /// To the code that a signal interrupted, perhaps on another stack.
    Interrupted(Registers),
    /// Past the outermost function.
    End,
    /// Nowhere.
    Lost,
}

/// Something that frame pointers led to cannot be.
struct Doubt;

struct Walk<'a> {
    state: &'a mut ThreadState,
    stack: Window,
    confirmed: Confirmed,
    /// The module of the latest frame.
    module: Option<Module>,
    /// Modules that keep frame pointers are left by them.
    trusts_frame_pointers: bool,
    /// framehop's memory, once it is needed.
    cache: Option<Taken>,
    /// Code that belongs to no module.
    generated: GeneratedCode,
    /// A signal was stepped over.
    interrupted: bool,
}

/// Walks from `registers`, whose `pc` is the first return address.
pub(crate) fn walk(state: &mut ThreadState, registers: Registers, frames: &mut [u64; MAX_DEPTH]) -> Captured {
    let stack = state.window(registers.sp);
    let mut walk = Walk {
        state,
        stack,
        confirmed: Confirmed::new(),
        module: None,
        trusts_frame_pointers: true,
        cache: None,
        generated: GeneratedCode::default(),
        interrupted: false,
    };
    match walk.run(registers, frames) {
        Ok(captured) if !captured.incomplete => captured,
        outcome => walk.run_again(outcome, registers, frames, stack),
    }
}

impl Walk<'_> {
    fn run(&mut self, mut registers: Registers, frames: &mut [u64; MAX_DEPTH]) -> Result<Captured, Doubt> {
        let mut depth = 0;
        // Frames that are certain: those after it were stepped to by frame pointers alone.
        let mut certain = 1;
        // Steps that nothing but the sample of a module's functions speaks for.
        let mut trusted = 0;
        // The frame is one of a call, not of an interruption. A return address may be the first byte of the next
        // function, so that the call before it is looked up.
        let mut called = true;
        let incomplete = loop {
            let Some(frame) = frames.get_mut(depth) else {
                return Ok(Captured { depth, truncated: true, incomplete: false });
            };
            *frame = registers.pc as u64;
            depth += 1;
            let known = self.enter_module(registers.pc.wrapping_sub(usize::from(called)));
            if known {
                certain = depth;
            } else if trusted > 0 {
                return Err(Doubt);
            }
            if self.trusts_frame_pointers
                && called
                && self.module.as_ref().is_some_and(|module| module.keeps_frame_pointers)
                && let Some(caller) = self.step_trusted(registers)
            {
                registers = caller;
                trusted += 1;
                continue;
            }
            if called && let Some(caller) = self.step_by_rule(registers) {
                registers = caller;
                continue;
            }
            let step = self.step(registers, called);
            called = true;
            registers = match step {
                Step::To(caller) => caller,
                Step::Interrupted(there) => {
                    // The interrupted instruction itself has not been executed.
                    called = false;
                    self.interrupted = true;
                    self.stack = self.state.window(there.sp);
                    there
                }
                Step::End if known => break false,
                Step::End | Step::Lost if trusted > 0 => return Err(Doubt),
                Step::End | Step::Lost => break true,
            };
        };
        Ok(Captured { depth: if incomplete { certain.min(depth) } else { depth }, truncated: false, incomplete })
    }

    /// By tables alone, if frame pointers led astray; then as libgcc sees it, if that is not all.
    #[cold]
    #[inline(never)]
    fn run_again(
        &mut self,
        outcome: Result<Captured, Doubt>,
        registers: Registers,
        frames: &mut [u64; MAX_DEPTH],
        stack: Window,
    ) -> Captured {
        let captured = outcome.or_else(|_| {
            self.stack = stack;
            self.module = None;
            self.trusts_frame_pointers = false;
            self.run(registers, frames)
        });
        // Without frame pointers there is no doubt.
        let captured = captured.unwrap_or(Captured { depth: 1, truncated: false, incomplete: true });
        if captured.incomplete && !self.interrupted && stack.is_native() {
            // The fallback may list modules, which allocates; it needs no cache.
            self.cache = None;
            return fallback::trace(registers.pc, frames, captured);
        }
        captured
    }

    /// Makes `module` the one that `address` lies in; false if it lies in none.
    #[inline]
    fn enter_module(&mut self, address: usize) -> bool {
        if self.module.as_ref().is_some_and(|module| module.holds(address)) {
            return true;
        }
        self.module = modules::find(address, &mut self.confirmed);
        self.module.is_some()
    }

    /// To the caller, in a module that keeps frame pointers. `None` if the register holds none.
    #[inline(always)]
    fn step_trusted(&mut self, registers: Registers) -> Option<Registers> {
        if registers.fp < registers.sp {
            return None;
        }
        let (fp, pc) = (self.stack.word(registers.fp)?, self.stack.word(registers.fp.wrapping_add(8))?);
        (pc != 0).then_some(Registers { pc, sp: registers.fp.wrapping_add(16), fp })
    }

    /// To the caller, if a rule leads there.
    #[inline(always)]
    fn step_by_rule(&mut self, registers: Registers) -> Option<Registers> {
        if !self.module.as_ref()?.is_listed() {
            return None;
        }
        match rules::find(registers.pc, modules::generation())? {
            Rule::Offset { base, cfa, fp } => rules::caller(base, cfa, fp, registers, &mut self.stack),
            Rule::End | Rule::Other => None,
        }
    }

    /// To the caller, by the tables of its module if it has any.
    #[inline(never)]
    fn step(&mut self, registers: Registers, called: bool) -> Step {
        let Some(module) = &self.module else {
            if called && let Some(caller) = self.generated.caller(registers, &mut self.stack) {
                return Step::To(caller);
            }
            return self.step_by_frame_pointer(&registers);
        };
        if is_signal_return(module, registers.pc) {
            return self.step_signal(&registers).unwrap_or(Step::Lost);
        }
        let Some(unwinder) = module.unwinder else {
            // A module that could not be listed may have tables all the same, and frame pointers that belong to others.
            return if module.is_listed() { self.step_by_frame_pointer(&registers) } else { Step::Lost };
        };
        // Nobody notices that an unlisted module is replaced.
        let has_rules = called && module.is_listed();
        let known = if has_rules { rules::find(registers.pc, modules::generation()) } else { None };
        if known == Some(Rule::End) {
            return Step::End;
        }
        if self.cache.is_none() {
            self.cache = self.take_cache();
        }
        let Some(cache) = self.cache.as_mut().and_then(Taken::cache) else { return Step::Lost };
        if has_rules && known.is_none() {
            rules::keep(registers.pc, modules::generation(), unwinder.rule(registers.pc, cache));
        }
        unwinder.step(&registers, called, &mut self.stack, cache)
    }

    #[inline(never)]
    fn take_cache(&mut self) -> Option<Taken> {
        let here = 0u8;
        // After a signal, the walk may be on another stack than the thread is.
        let native = self.stack.is_native() && !self.interrupted;
        let has_room = self.state.has_room(&raw const here as usize, native);
        if has_room { caches::take(&mut self.state.cache) } else { None }
    }

    /// Out of a signal handler. The stack pointer is at the kernel's `ucontext_t` (`asm/sigcontext.h`).
    #[cold]
    fn step_signal(&mut self, registers: &Registers) -> Option<Step> {
        let mut saved = |offset: usize| self.stack.word(registers.sp.checked_add(offset)?);
        let there = Registers { fp: saved(0x78)?, sp: saved(0xa0)?, pc: saved(0xa8)? };
        // On the same stack the interrupted code is further up, on another one it can be anywhere.
        if self.stack.holds(there.sp) && there.sp <= registers.sp {
            return None;
        }
        Some(Step::Interrupted(there))
    }

    /// Out of code without unwind tables. Frame pointers chain through the stack, and the chain only goes up.
    #[cold]
    fn step_by_frame_pointer(&mut self, registers: &Registers) -> Step {
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
        let (fp, pc) = (self.stack.word(frame)?, self.stack.word(frame.checked_add(8)?)?);
        Some(if pc == 0 { Step::End } else { Step::To(Registers { pc, sp: frame.checked_add(16)?, fp }) })
    }
}

/// Whether `pc` is where signal handlers return to: `mov rax, SYS_rt_sigreturn; syscall`. Debuggers and libgcc know the
/// frame by these bytes, too, and glibc and the kernel keep them for that (`sigaction.c`, "Do not remove").
#[inline]
pub(crate) fn is_signal_return(module: &Module, pc: usize) -> bool {
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    let (start, end) = module.code;
    if !cfg!(target_arch = "x86_64") || pc < start || end.saturating_sub(CODE.len()) < pc {
        return false;
    }
    // SAFETY: the code is readable from `start` to `end`, and its module was confirmed in this capture.
    unsafe { (pc as *const [u8; CODE.len()]).read_unaligned() == CODE }
}
