//! Whether a module keeps frame pointers: then its frames chain through the stack and need no tables.
//!
//! A sample of its functions says so, by their tables. A function keeps the frame pointer if it has it in place
//! wherever it can call: before that, only the return address and the caller's frame pointer are on the stack. The
//! prologue's bytes say less: where frame pointers are kept, gcc and LLVM still leave them out of functions that call
//! nothing, and set them behind a first test of the arguments. In a Rust program that is built for them, only three
//! functions out of four begin with `push rbp; mov rbp, rsp`.

use crate::unwind_tables::Tables;

/// Functions that are looked at. All of them must keep it: where one does not, the walk skips its callers without a
/// sign, all those in a row that do without. A module of which one function in twenty does without passes once in 700.
const SAMPLE: usize = 128;

/// Whether the functions that `tables` describe keep frame pointers.
#[cfg(target_arch = "x86_64")]
pub(crate) fn are_kept(tables: &Tables) -> bool {
    let sample = tables.count().min(SAMPLE);
    let mut counted = 0;
    for n in 0..sample {
        match function::keeps(tables, n.wrapping_mul(tables.count()) / sample.max(1)) {
            Some(true) => counted += 1,
            Some(false) => return false,
            None => {}
        }
    }
    counted > 0
}

/// The procedure call standard demands them, and the walk has no other way there.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn are_kept(_: &Tables) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod function {
    use super::Tables;
    use gimli::{
        BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage,
        UnwindSection, UnwindTableRow, X86_64,
    };

    /// Room for one row of every general register and one that is remembered, on the stack.
    struct Storage;

    impl UnwindContextStorage<usize> for Storage {
        type Rules = [(Register, RegisterRule<usize>); 17];
        type Stack = [UnwindTableRow<usize, Self>; 3];
    }

    /// Whether function number `n` keeps the frame pointer. `None` if its tables do not say: the linker's stubs compute
    /// their frame, and so do functions that realign their stack, which do keep it.
    #[inline(never)]
    pub(super) fn keeps(tables: &Tables, n: usize) -> Option<bool> {
        // SAFETY: a module is looked at when the loader has just confirmed it.
        let [(header, _), (start, bytes)] = unsafe { tables.sections() };
        let frames = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(start as u64).set_eh_frame_hdr(header as u64);
        let offset = tables.description(n)?.checked_sub(start)?;
        let function = frames.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::<usize, Storage>::new_in();
        let mut rows = function.rows(&frames, &bases, &mut context).ok()?;
        let mut keeps = true;
        while let Some(row) = rows.next_row().ok()? {
            match *row.cfa() {
                CfaRule::RegisterAndOffset { register: X86_64::RBP, offset: 16 } => {}
                CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 } => {}
                CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 16 }
                    if row.register(X86_64::RBP) == Some(RegisterRule::Offset(-16)) => {}
                CfaRule::RegisterAndOffset { .. } => keeps = false,
                CfaRule::Expression(_) => return None,
            }
        }
        Some(keeps)
    }
}
