//! Where a capture starts, and the two ways that it goes: by rules alone, which most captures do,
//! or with everything asked.

use crate::modules::{self, Confirmed};
use crate::quick::{Step, step_by};
use crate::rules::{self, word};
use crate::stack::ThreadState;
use crate::walk::walk;
use crate::workbench;
use crate::{Captured, MAX_DEPTH};

/// The registers behind a call: where it goes on, and with what.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Caller {
    /// The return address.
    pub pc: usize,
    /// The stack pointer after the return.
    pub sp: usize,
    /// The frame pointer, if the function keeps one; else whatever it put into the register.
    pub fp: usize,
}

impl Caller {
    /// The function that this is called in. Worth nothing any more when that function has returned.
    #[inline(always)]
    pub fn here() -> Caller {
        let mut here = Caller { pc: 0, sp: 0, fp: 0 };
        // SAFETY: valid for the call.
        unsafe { registers_at_call(&mut here) };
        here
    }
}

// Of a section of its own: each slow call of an allocator may run it, and none of the functions around it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(link_section = ".text.registers_at_call")]
unsafe extern "sysv64" fn registers_at_call(caller: &mut Caller) {
    core::arch::naked_asm!(
        "mov rax, [rsp]",
        "mov [rdi], rax",
        "lea rax, [rsp + 8]",
        "mov [rdi + 8], rax",
        "mov [rdi + 16], rbp",
        "ret",
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(link_section = ".text.registers_at_call")]
unsafe extern "C" fn registers_at_call(caller: &mut Caller) {
    core::arch::naked_asm!("mov x9, sp", "stp x30, x9, [x0]", "str x29, [x0, #16]", "ret")
}

/// Return addresses of the calling thread, innermost first, written to `frames`. The first one is `caller`'s.
///
/// `state` is the calling thread's own. Waits for no thread and leaves `errno` alone. It may allocate, see the crate.
/// Of the thread's stack it takes some hundred bytes.
pub fn capture(state: &mut ThreadState, caller: &Caller, frames: &mut [u64; MAX_DEPTH]) -> Captured {
    match capture_known(state, caller, frames) {
        Some(captured) => captured,
        None => capture_anew(state, caller, frames),
    }
}

/// The same, if every frame was seen before: some twenty instructions for each, and nothing is allocated. `None` if
/// there is anything new.
#[inline]
pub fn capture_known(state: &ThreadState, caller: &Caller, frames: &mut [u64; MAX_DEPTH]) -> Option<Captured> {
    by_rules(*caller, state.native_end_above(caller.sp)?, frames)
}

/// As far as rules lead, on a stack that is readable up to `end`. `None` if anything else has to be asked.
///
/// A rule of a module that may have been unloaded counts only if the loader confirms the module. From the innermost
/// frame on, each such module is confirmed before it is left: so the frame that it is left to is there,
/// and its module is loaded.
#[inline(always)]
pub(crate) fn by_rules(caller: Caller, end: usize, frames: &mut [u64; MAX_DEPTH]) -> Option<Captured> {
    let (rules, epoch) = (rules::table()?, modules::epoch());
    let mut known = Known { confirmed: Confirmed::new(), latest: (0, 0), epoch };
    let mut at = caller;
    for (depth, frame) in frames.iter_mut().enumerate() {
        let rule = rules.find_word(at.pc, epoch);
        if rule != 0 && rule & word::STAYS == 0 && !known.holds(at.pc.wrapping_sub(1)) {
            return None;
        }
        *frame = at.pc as u64;
        let complete = |depth| Some(Captured { depth, truncated: false, incomplete: false });
        at = match step_by::<false>(rule, at, end, |next| next) {
            Step::To { caller, .. } => caller,
            Step::End { .. } => return complete(depth.wrapping_add(1)),
            Step::Past => return complete(depth),
            Step::Lost => return None,
        };
    }
    Some(Captured { depth: MAX_DEPTH, truncated: true, incomplete: false })
}

/// The modules that were found to be there during a capture by rules.
struct Known {
    confirmed: Confirmed,
    /// Where the latest one begins and ends.
    latest: (usize, usize),
    epoch: u64,
}

impl Known {
    /// Whether `address` lies in a module that is there, and was when the rules of this epoch were learned.
    #[inline(always)]
    fn holds(&mut self, address: usize) -> bool {
        self.latest.0 <= address && address < self.latest.1 || self.look(address)
    }

    #[inline(never)]
    fn look(&mut self, address: usize) -> bool {
        let Some(module) = modules::find_listed(address, &mut self.confirmed) else { return false };
        self.latest = module;
        modules::epoch() == self.epoch
    }
}

/// The same with everything asked that there is to ask, on a stack of its own: what is new is learned, and a module
/// that is not there any more is noticed.
#[cold]
#[inline(never)]
pub fn capture_anew(state: &mut ThreadState, caller: &Caller, frames: &mut [u64; MAX_DEPTH]) -> Captured {
    let mut last = state.workbench;
    let captured =
        workbench::with(&mut last, |cache| walk(state, workbench::ready(cache), *caller, frames)).unwrap_or(NONE);
    state.workbench = last;
    // Of a call, the return address is certain.
    if captured.depth == 0
        && let Some(first) = frames.first_mut()
    {
        *first = caller.pc as u64;
        return Captured { depth: 1, ..captured };
    }
    captured
}

/// Nothing could be asked.
const NONE: Captured = Captured { depth: 0, truncated: false, incomplete: true };
