//! Runs a function's call frame instructions (DWARF 5, 6.4.2) up to one address, and keeps what a [`Rule`] needs: the
//! canonical frame address, the frame pointer and whether there is a return address.

use crate::eh_frame::{Description, Tables};
use crate::reader::Reader;
use crate::rule::{Base, Cfa, Fp, Rule};

/// Numbers of registers in the tables (System V x86-64 ABI, figure 3.36).
const RBP: u64 = 6;
const RSP: u64 = 7;

/// States that a function may remember at a time. Compilers nest them once or twice.
const REMEMBERED_MAX: usize = 6;

/// What the tables say of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// As the caller left it.
    Same,
    /// Lost.
    Undefined,
    /// Stored at an offset from the canonical frame address.
    AtCfa(i64),
    /// Stored at a register and an offset.
    At(Base, i64),
    /// Something that no rule can say.
    Other,
}

/// The canonical frame address while the instructions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// A register, by its number, and an offset.
    Register(u64, i64),
    /// The word stored at a register and an offset, then an offset of its own.
    Stored(Base, i64, i64),
    /// Something that no rule can say.
    Other,
}

/// One row of the table that the instructions describe.
#[derive(Clone, Copy, Debug)]
struct Row {
    frame: Frame,
    fp: Column,
    ret: Column,
}

const EMPTY: Row = Row { frame: Frame::Other, fp: Column::Same, ret: Column::Other };

/// What an expression computes, as far as rules go.
enum Expression {
    Sum(Base, i64),
    Stored(Base, i64, i64),
}

fn base(register: u64) -> Option<Base> {
    match register {
        RBP => Some(Base::Fp),
        RSP => Some(Base::Sp),
        _ => None,
    }
}

/// Reads the expressions that compilers and linkers write for frames: a register and an offset, the word stored there,
/// that word and an offset.
fn expression(mut block: Reader) -> Option<Expression> {
    const BREG0: u8 = 0x70;
    const BREG31: u8 = 0x8f;
    const DEREF: u8 = 0x06;
    const PLUS_UCONST: u8 = 0x23;

    let first = block.u8()?;
    if !(BREG0..=BREG31).contains(&first) {
        return None;
    }
    let base = base(u64::from(first - BREG0))?;
    let mut sum = block.sleb()?;
    let mut stored = None;
    while !block.is_empty() {
        match block.u8()? {
            DEREF if stored.is_none() => stored = Some(0i64),
            PLUS_UCONST => {
                let more = i64::try_from(block.uleb()?).ok()?;
                match &mut stored {
                    Some(offset) => *offset = offset.checked_add(more)?,
                    None => sum = sum.checked_add(more)?,
                }
            }
            _ => return None,
        }
    }
    Some(match stored {
        Some(offset) => Expression::Stored(base, sum, offset),
        None => Expression::Sum(base, sum),
    })
}

/// The rows of one function, as far as they were read.
struct Machine<'a> {
    function: &'a Description,
    row: Row,
    /// What the common part's instructions left, for `DW_CFA_restore`.
    initial: Row,
    remembered: [Row; REMEMBERED_MAX],
    depth: usize,
    location: usize,
}

impl Machine<'_> {
    fn set(&mut self, register: u64, column: Column) {
        if register == self.function.return_column {
            self.row.ret = column;
        } else if register == RBP {
            self.row.fp = column;
        }
    }

    fn restore(&mut self, register: u64) {
        if register == self.function.return_column {
            self.row.ret = self.initial.ret;
        } else if register == RBP {
            self.row.fp = self.initial.fp;
        }
    }

    /// An offset in units of the common part's factor.
    fn scaled(&self, offset: i64) -> Option<i64> {
        offset.checked_mul(self.function.data_factor)
    }

    fn unsigned(block: &mut Reader) -> Option<i64> {
        i64::try_from(block.uleb()?).ok()
    }

    fn block(instructions: &mut Reader) -> Option<Reader> {
        let length = usize::try_from(instructions.uleb()?).ok()?;
        instructions.take(length)
    }

    /// Runs `code` until its end, or until the row that covers `target` is complete.
    fn run(&mut self, mut code: Reader, target: usize) -> Option<()> {
        while !code.is_empty() {
            let opcode = code.u8()?;
            let low = u64::from(opcode & 0x3f);
            let step = match (opcode >> 6, low) {
                (1, delta) => Some(delta),
                (2, register) => {
                    let offset = Self::unsigned(&mut code)?;
                    let offset = self.scaled(offset)?;
                    self.set(register, Column::AtCfa(offset));
                    None
                }
                (3, register) => {
                    self.restore(register);
                    None
                }
                // DW_CFA_set_loc
                (_, 0x01) => {
                    let location = code.pointer(self.function.encoding, 0)?;
                    if location > target {
                        return Some(());
                    }
                    self.location = location;
                    None
                }
                // DW_CFA_advance_loc1, 2, 4
                (_, 0x02) => Some(u64::from(code.u8()?)),
                (_, 0x03) => Some(u64::from(code.u16()?)),
                (_, 0x04) => Some(u64::from(code.u32()?)),
                _ => {
                    self.rare(opcode, &mut code)?;
                    None
                }
            };
            if let Some(delta) = step {
                let bytes = usize::try_from(delta.checked_mul(self.function.code_factor)?).ok()?;
                let location = self.location.checked_add(bytes)?;
                if location > target {
                    return Some(());
                }
                self.location = location;
            }
        }
        Some(())
    }

    /// The instructions whose top two bits are zero and that do not advance.
    fn rare(&mut self, opcode: u8, code: &mut Reader) -> Option<()> {
        match opcode {
            // DW_CFA_nop
            0x00 => {}
            // DW_CFA_offset_extended, DW_CFA_offset_extended_sf, DW_CFA_GNU_negative_offset_extended
            0x05 | 0x11 | 0x2f => {
                let register = code.uleb()?;
                let offset = match opcode {
                    0x11 => code.sleb()?,
                    0x2f => Self::unsigned(code)?.checked_neg()?,
                    _ => Self::unsigned(code)?,
                };
                let offset = self.scaled(offset)?;
                self.set(register, Column::AtCfa(offset));
            }
            // DW_CFA_restore_extended
            0x06 => {
                let register = code.uleb()?;
                self.restore(register);
            }
            // DW_CFA_undefined
            0x07 => {
                let register = code.uleb()?;
                self.set(register, Column::Undefined);
            }
            // DW_CFA_same_value
            0x08 => {
                let register = code.uleb()?;
                self.set(register, Column::Same);
            }
            // DW_CFA_register, DW_CFA_val_offset, DW_CFA_val_offset_sf
            0x09 | 0x14 | 0x15 => {
                let register = code.uleb()?;
                code.uleb()?;
                self.set(register, Column::Other);
            }
            // DW_CFA_remember_state
            0x0a => {
                *self.remembered.get_mut(self.depth)? = self.row;
                self.depth = self.depth.checked_add(1)?;
            }
            // DW_CFA_restore_state
            0x0b => {
                self.depth = self.depth.checked_sub(1)?;
                self.row = *self.remembered.get(self.depth)?;
            }
            // DW_CFA_def_cfa, DW_CFA_def_cfa_sf
            0x0c | 0x12 => {
                let register = code.uleb()?;
                let offset = if opcode == 0x0c { Self::unsigned(code)? } else { self.scaled(code.sleb()?)? };
                self.row.frame = Frame::Register(register, offset);
            }
            // DW_CFA_def_cfa_register
            0x0d => {
                let register = code.uleb()?;
                self.row.frame = match self.row.frame {
                    Frame::Register(_, offset) => Frame::Register(register, offset),
                    _ => Frame::Other,
                };
            }
            // DW_CFA_def_cfa_offset, DW_CFA_def_cfa_offset_sf
            0x0e | 0x13 => {
                let offset = if opcode == 0x0e { Self::unsigned(code)? } else { self.scaled(code.sleb()?)? };
                self.row.frame = match self.row.frame {
                    Frame::Register(register, _) => Frame::Register(register, offset),
                    _ => Frame::Other,
                };
            }
            // DW_CFA_def_cfa_expression
            0x0f => {
                self.row.frame = match expression(Self::block(code)?) {
                    Some(Expression::Sum(Base::Sp, offset)) => Frame::Register(RSP, offset),
                    Some(Expression::Sum(Base::Fp, offset)) => Frame::Register(RBP, offset),
                    Some(Expression::Stored(base, offset, more)) => Frame::Stored(base, offset, more),
                    None => Frame::Other,
                };
            }
            // DW_CFA_expression
            0x10 => {
                let register = code.uleb()?;
                let column = match expression(Self::block(code)?) {
                    Some(Expression::Sum(base, offset)) => Column::At(base, offset),
                    _ => Column::Other,
                };
                self.set(register, column);
            }
            // DW_CFA_val_expression
            0x16 => {
                let register = code.uleb()?;
                Self::block(code)?;
                self.set(register, Column::Other);
            }
            // DW_CFA_GNU_window_save, on AArch64 DW_CFA_AARCH64_negate_ra_state
            0x2d => {}
            // DW_CFA_GNU_args_size
            0x2e => {
                code.uleb()?;
            }
            _ => return None,
        }
        Some(())
    }
}

/// How to leave the function at `address`.
pub(crate) fn rule(tables: &Tables, address: usize) -> Rule {
    run(tables, address).unwrap_or(Rule::Unknown)
}

fn run(tables: &Tables, address: usize) -> Option<Rule> {
    let function = tables.find(address)?;
    if function.is_signal {
        return Some(Rule::Signal);
    }
    let mut machine = Machine {
        function: &function,
        row: EMPTY,
        initial: EMPTY,
        remembered: [EMPTY; REMEMBERED_MAX],
        depth: 0,
        location: function.start,
    };
    machine.run(function.initial, address)?;
    machine.initial = machine.row;
    machine.run(function.instructions, address)?;
    finish(machine.row)
}

fn finish(row: Row) -> Option<Rule> {
    let offset = |offset: i64| i32::try_from(offset).ok();
    match row.ret {
        Column::Undefined => return Some(Rule::Outermost),
        // The call put the return address there; nothing else is possible without moving it.
        Column::AtCfa(-8) => {}
        _ => return None,
    }
    let cfa = match row.frame {
        Frame::Register(register, more) => Cfa::Offset(base(register)?, offset(more)?),
        Frame::Stored(base, first, more) => Cfa::Stored(base, offset(first)?, offset(more)?),
        Frame::Other => return None,
    };
    let fp = match row.fp {
        Column::AtCfa(more) => Fp::AtCfa(offset(more)?),
        Column::At(base, more) => Fp::At(base, offset(more)?),
        // A lost frame pointer matters only to a caller that uses it, and then the walk finds itself off the stack.
        Column::Same | Column::Undefined | Column::Other => Fp::Same,
    };
    Some(Rule::Frame { cfa, fp })
}
