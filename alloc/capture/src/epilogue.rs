//! Out of generated code that returns at once.
//!
//! Code that no module has, and so no table describes, is often a small stub around one call: CPython's trampolines for
//! profilers (`Python/asm_trampoline.S`) are `sub rsp, 8; call rcx; add rsp, 8; ret` and keep no frame pointer. What
//! the processor will do after the call is there to read: if it is nothing but letting go of the stack, it can be done
//! on paper, and the caller is certain.

use crate::stack::Window;
use crate::{Caller, system};

/// Bytes that are looked at: enough for an addition and the registers that the ABI has callees save.
const LEN: usize = 24;

/// Pages are never smaller.
const PAGE: usize = 4096;

/// Reads code that belongs to no module, and asks the kernel for each page only once.
#[derive(Debug, Default)]
pub(crate) struct GeneratedCode {
    /// A page that is known to be readable.
    page: usize,
}

impl GeneratedCode {
    /// The caller of the function that goes on at `registers.pc`, if it only returns.
    #[cold]
    pub(crate) fn caller(&mut self, registers: Caller, stack: &mut Window) -> Option<Caller> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let end = registers.pc.checked_add(LEN)?;
        let (first, last) = (registers.pc & !(PAGE - 1), (end - 1) & !(PAGE - 1));
        // A stub at the end of its last page is not looked at.
        if first == 0 || !self.is_readable(first) || (last != first && !self.is_readable(last)) {
            return None;
        }
        // SAFETY: the kernel said that the pages can be read. A return address led here: this thread will run the code,
        // and nobody unmaps it before that.
        let code = unsafe { (registers.pc as *const [u8; LEN]).read_unaligned() };
        run(&code, registers, |address| stack.word(address))
    }

    fn is_readable(&mut self, page: usize) -> bool {
        if self.page == page {
            return true;
        }
        let readable = system::is_readable(page);
        if readable {
            self.page = page;
        }
        readable
    }
}

/// Runs what lets go of the stack, up to the return.
fn run(
    code: &[u8],
    Caller { mut sp, mut fp, .. }: Caller,
    mut word: impl FnMut(usize) -> Option<usize>,
) -> Option<Caller> {
    let mut rest = code;
    loop {
        let length = match *rest {
            // add rsp, imm8
            [0x48, 0x83, 0xc4, up @ 0..=0x7f, ..] => {
                sp = sp.checked_add(usize::from(up))?;
                4
            }
            // add rsp, imm32
            [0x48, 0x81, 0xc4, a, b, c, d @ 0..=0x7f, ..] => {
                sp = sp.checked_add(u32::from_le_bytes([a, b, c, d]) as usize)?;
                7
            }
            // leave
            [0xc9, ..] => {
                sp = fp.checked_add(8)?;
                fp = word(fp)?;
                1
            }
            // pop rbp
            [0x5d, ..] => {
                fp = word(sp)?;
                sp = sp.checked_add(8)?;
                1
            }
            // pop into another register, but not rsp
            [0x58..=0x5b | 0x5e | 0x5f, ..] => {
                sp = sp.checked_add(8)?;
                1
            }
            [0x41, 0x58..=0x5f, ..] => {
                sp = sp.checked_add(8)?;
                2
            }
            // ret
            [0xc3, ..] => {
                let pc = word(sp).filter(|&pc| pc != 0)?;
                return Some(Caller { pc, sp: sp.checked_add(8)?, fp });
            }
            _ => return None,
        };
        rest = rest.get(length..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs code at a stack whose word at the address `a` is `a + 1`.
    fn caller(code: &[u8]) -> Option<(usize, usize, usize)> {
        let registers = Caller { pc: 0x10, sp: 0x1000, fp: 0x2000 };
        run(code, registers, |address| Some(address + 1)).map(|caller| (caller.pc, caller.sp, caller.fp))
    }

    #[test]
    fn what_only_lets_go_of_the_stack_is_followed_to_the_return() {
        for (code, expected) in [
            (&[0xc3][..], (0x1001, 0x1008, 0x2000)),
            (&[0x48, 0x83, 0xc4, 0x08, 0xc3], (0x1009, 0x1010, 0x2000)),
            (&[0x48, 0x81, 0xc4, 0x00, 0x01, 0, 0, 0xc3], (0x1101, 0x1108, 0x2000)),
            (&[0x5b, 0x41, 0x5c, 0x5d, 0xc3], (0x1019, 0x1020, 0x1011)),
            (&[0xc9, 0xc3], (0x2009, 0x2010, 0x2001)),
        ] {
            assert_eq!(caller(code), Some(expected), "{code:x?}");
        }
    }

    #[test]
    fn code_that_does_anything_else_or_never_ends_is_not_followed() {
        for code in [
            &[][..],
            &[0x5d],
            &[0x48, 0x83, 0xc4, 0xf8, 0xc3],
            &[0x5c, 0xc3],
            &[0x90, 0xc3],
            &[0xe9, 0, 0, 0, 0],
            &[0x58; 24],
        ] {
            assert_eq!(caller(code), None, "{code:x?}");
        }
    }
}
