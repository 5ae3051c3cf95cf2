//! From frame to frame, from the innermost return address outwards.

use crate::modules::{self, Confirmed, Module, UNLISTED};
use crate::rule::{Base, Cfa, Fp, Packed, Rule};
use crate::stack::{ThreadState, Window};
use crate::{Captured, MAX_DEPTH, cfi, rule_cache};

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
enum Step {
    /// To the caller.
    To(Registers),
    /// To the code that a signal interrupted, perhaps on another stack.
    Interrupted(Registers),
    /// Past the outermost function.
    End,
    /// Nowhere.
    Lost,
}

struct Walk<'a> {
    state: &'a mut ThreadState,
    stack: Window,
    confirmed: Confirmed,
    /// The module of the latest frame.
    module: Option<Module>,
}

/// Walks from `registers`, whose `pc` is the first return address.
pub(crate) fn walk(state: &mut ThreadState, registers: Registers, frames: &mut [u64; MAX_DEPTH]) -> Captured {
    let stack = state.window(registers.sp);
    let mut walk = Walk { state, stack, confirmed: Confirmed::new(), module: None };
    walk.run(registers, frames)
}

impl Walk<'_> {
    fn run(&mut self, mut registers: Registers, frames: &mut [u64; MAX_DEPTH]) -> Captured {
        let mut depth = 0;
        // Frames that are certain: those after it were stepped to by frame pointers alone.
        let mut certain = 1;
        // A return address may be the first byte of the next function: the call before it is looked up.
        let mut call_length = 1;
        let incomplete = loop {
            let Some(frame) = frames.get_mut(depth) else {
                return Captured { depth, truncated: true, incomplete: false };
            };
            *frame = registers.pc as u64;
            depth += 1;
            let address = registers.pc.wrapping_sub(call_length);
            let known = self.enter_module(address);
            if known {
                certain = depth;
            }
            if let Some(rule) = self.known_rule(address)
                && let Some(caller) = self.step_usual(rule, &registers)
            {
                registers = caller;
                call_length = 1;
                continue;
            }
            let step = match self.rule(address) {
                Rule::Unknown => self.step_by_frame_pointer(&registers),
                rule => self.step(rule, &registers),
            };
            call_length = 1;
            registers = match step {
                Step::To(caller) => caller,
                Step::Interrupted(there) => {
                    // The interrupted instruction itself has not been executed.
                    call_length = 0;
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
    #[inline]
    fn enter_module(&mut self, address: usize) -> bool {
        if self.module.as_ref().is_some_and(|module| module.holds(address)) {
            return true;
        }
        self.module = modules::find(address, &mut self.confirmed);
        self.module.is_some()
    }

    /// The rule at `address`, which lies in `module` if anywhere, if it is remembered.
    #[inline(always)]
    fn known_rule(&self, address: usize) -> Option<Packed> {
        let module = self.module.as_ref()?;
        let offset = u32::try_from(address.wrapping_sub(module.start)).ok()?;
        if module.index == UNLISTED { None } else { rule_cache::get(module.index, offset) }
    }

    /// To the caller of a usual frame; `None` if it is not one, at the end of the stack, or if the step cannot be.
    #[inline(always)]
    fn step_usual(&mut self, rule: Packed, registers: &Registers) -> Option<Registers> {
        let (pc, sp, fp);
        if rule.is_frame_pointer() {
            sp = registers.fp.wrapping_add(16);
            (fp, pc) = (self.stack.word(registers.fp)?, self.stack.word(sp.wrapping_sub(8))?);
        } else {
            let frame = rule.usual()?;
            sp = if frame.from_fp { registers.fp } else { registers.sp }.wrapping_add(frame.cfa);
            pc = self.stack.word(sp.wrapping_sub(8))?;
            fp = if frame.saved == 0 { registers.fp } else { self.stack.word(sp.wrapping_sub(frame.saved))? };
        }
        (sp > registers.sp && pc != 0).then_some(Registers { pc, sp, fp })
    }

    /// The rule at `address`, which lies in `module` if anywhere.
    #[cold]
    #[inline(never)]
    fn rule(&self, address: usize) -> Rule {
        let Some(module) = &self.module else {
            return Rule::Unknown;
        };
        let offset = match u32::try_from(address.wrapping_sub(module.start)) {
            Ok(offset) if module.index != UNLISTED => offset,
            _ => return compute(module, address),
        };
        if let Some(rule) = rule_cache::get(module.index, offset).and_then(Rule::unpack) {
            return rule;
        }
        let rule = compute(module, address);
        rule_cache::put(module.index, offset, rule);
        rule
    }

    #[cold]
    #[inline(never)]
    fn step(&mut self, rule: Rule, registers: &Registers) -> Step {
        match rule {
            Rule::Frame { cfa, fp } => self.step_frame(cfa, fp, registers).unwrap_or(Step::Lost),
            Rule::Outermost => Step::End,
            Rule::Signal => self.step_signal(registers).unwrap_or(Step::Lost),
            Rule::Unknown => Step::Lost,
        }
    }

    fn step_frame(&mut self, cfa: Cfa, fp: Fp, registers: &Registers) -> Option<Step> {
        let base = |base| match base {
            Base::Sp => registers.sp,
            Base::Fp => registers.fp,
        };
        let cfa = match cfa {
            Cfa::Offset(from, offset) => base(from).wrapping_add_signed(offset as isize),
            Cfa::Stored(from, offset, more) => {
                self.stack.word(base(from).wrapping_add_signed(offset as isize))?.wrapping_add_signed(more as isize)
            }
        };
        // Stacks grow down: a caller's frame lies above.
        if cfa <= registers.sp {
            return None;
        }
        let pc = self.stack.word(cfa.checked_sub(8)?)?;
        let fp = match fp {
            Fp::Same => registers.fp,
            Fp::AtCfa(offset) => self.stack.word(cfa.wrapping_add_signed(offset as isize))?,
            Fp::At(from, offset) => self.stack.word(base(from).wrapping_add_signed(offset as isize))?,
        };
        Some(if pc == 0 { Step::End } else { Step::To(Registers { pc, sp: cfa, fp }) })
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

/// The tables are read for x86-64 only. On AArch64 the procedure call standard (6.2.3) gives every frame a record that
/// the frame pointer chains, and the walk goes along it.
#[cold]
fn compute(module: &Module, address: usize) -> Rule {
    if !cfg!(target_arch = "x86_64") {
        return Rule::Unknown;
    }
    module.tables.as_ref().map_or(Rule::Unknown, |tables| cfi::rule(tables, address))
}
