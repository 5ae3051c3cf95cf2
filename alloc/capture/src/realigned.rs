//! Frames of functions that align their stack.
//!
//! Where a function has to align its stack and its frame has a variable part, gcc keeps the canonical frame address in a
//! word below the frame pointer. Its tables say so by an expression: `DW_OP_breg6 (rbp) -8; DW_OP_deref` (DWARF 5,
//! 6.4.2.2). framehop evaluates no expression that reads memory. It goes on by the frame pointer instead, as if there
//! were no tables. That finds the caller's address, and a stack pointer that is too low by as much as the stack was
//! moved: a caller without a frame pointer is then left to nowhere, or to a function that never called it.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, Operation, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};

use crate::rules::Rule;
use crate::unwind_tables::Tables;

type Bytes = EndianSlice<'static, NativeEndian>;

/// Room for a row of a table and those that it remembers, on the stack. The ABI has 17 registers that tables name.
struct Room;

impl UnwindContextStorage<usize> for Room {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// The rule for the function that goes on behind `address`, if it is one of those. Does not allocate.
///
/// Called while the tables' module is confirmed.
#[cold]
#[inline(never)]
pub(crate) fn rule(tables: &Tables, address: u64) -> Option<Rule> {
    // SAFETY: the caller's promise; nothing of them is kept.
    let [(header_at, header), (frames_at, frames)] = unsafe { tables.sections() };
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_at as u64).set_eh_frame(frames_at as u64);
    let frames = EhFrame::new(frames, NativeEndian);
    let header = EhFrameHdr::new(header, NativeEndian).parse(&bases, size_of::<usize>() as u8).ok()?;
    let mut room = UnwindContext::<usize, Room>::new_in();
    let function = header.table()?.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok()?;
    let row = function.unwind_info_for_address(&frames, &bases, &mut room, address).ok()?;
    let operations = |expression: &UnwindExpression<usize>| {
        let mut all = expression.get(&frames).ok()?.operations(function.cie().encoding());
        Some([all.next().ok()?, all.next().ok()?, all.next().ok()?])
    };
    let (CfaRule::Expression(cfa), Some(RegisterRule::Expression(fp))) = (row.cfa(), row.register(X86_64::RBP)) else {
        return None;
    };
    let [Some(place), Some(Operation::Deref { size: 8, space: false, .. }), None] = operations(cfa)? else {
        return None;
    };
    let [Some(saved), None, None] = operations(&fp)? else { return None };
    let usual_pc = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
    (usual_pc && from_fp(saved)? == 0).then_some(Rule::realigned(from_fp(place)?.checked_neg()?.try_into().ok()?))
}

/// Bytes from the frame pointer up to what an operation leads to.
fn from_fp(operation: Operation<Bytes>) -> Option<i64> {
    match operation {
        Operation::RegisterOffset { register: X86_64::RBP, offset, .. } => Some(offset),
        _ => None,
    }
}
