//! Whether a module keeps frame pointers: then its frames chain through the stack and need no tables.
//!
//! A sample of its functions says so. Nearly all of them must begin with `push rbp; mov rbp, rsp`. Compilers that keep
//! frame pointers do that everywhere but in hand-written assembly; compilers that do not, do it where they need it, in
//! one function out of ten. C++ libraries fail the test even with frame pointers, as the cold halves of their
//! functions have entries of their own; for them it is tables, which are slower and never wrong.

use crate::reader::Reader;
use crate::unwind_tables::Tables;

/// Functions that are looked at.
const SAMPLE: usize = 128;
/// One in this many may begin otherwise.
const EXCEPTIONS: usize = 20;
/// Bytes in which a function must have set its frame pointer: the compiler may have moved something in between.
const PROLOGUE: usize = 16;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RBP: u8 = 0x55;
const MOV_RBP_RSP: [[u8; 3]; 2] = [[0x48, 0x89, 0xe5], [0x48, 0x8b, 0xec]];

/// Whether the functions of `tables`, whose code can be read at `code`, keep frame pointers.
pub(crate) fn are_kept(tables: &Tables, code: (usize, usize)) -> bool {
    let sample = tables.count().min(SAMPLE);
    let mut exceptions = 0;
    for n in 0..sample {
        let function = tables.function(n.wrapping_mul(tables.count()) / sample.max(1));
        if !function.is_some_and(|function| sets_frame_pointer(function, code)) {
            exceptions += 1;
            if exceptions * EXCEPTIONS > sample {
                return false;
            }
        }
    }
    sample > 0
}

fn sets_frame_pointer(function: usize, code: (usize, usize)) -> bool {
    if function < code.0 || code.1 < function {
        return false;
    }
    // SAFETY: `code` is a readable segment of a module that the loader just confirmed.
    let mut reader = unsafe { Reader::new(function, code.1) };
    let mut bytes = [0; ENDBR64.len() + PROLOGUE];
    for byte in &mut bytes {
        *byte = reader.u8().unwrap_or(0);
    }
    begins_with_frame_pointer(&bytes)
}

fn begins_with_frame_pointer(code: &[u8]) -> bool {
    let code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    let Some((&PUSH_RBP, rest)) = code.split_first() else {
        return false;
    };
    rest.windows(3).take(PROLOGUE - 3).any(|bytes| MOV_RBP_RSP.iter().any(|mov| bytes == mov))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prologues_are_told_apart() {
        assert!(begins_with_frame_pointer(&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57]));
        assert!(begins_with_frame_pointer(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x31, 0xc0, 0x48, 0x89, 0xe5]));
        // push rbp; push rbx; sub rsp: the register holds something else.
        assert!(!begins_with_frame_pointer(&[0x55, 0x53, 0x48, 0x83, 0xec, 0x08, 0x90, 0x90]));
        // sub rsp, 8; push rbp; mov rbp, rsp: not a frame at the return address.
        assert!(!begins_with_frame_pointer(&[0x48, 0x83, 0xec, 0x08, 0x55, 0x48, 0x89, 0xe5]));
        assert!(!begins_with_frame_pointer(&[]));
    }
}
