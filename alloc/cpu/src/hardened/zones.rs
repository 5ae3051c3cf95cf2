//! The bytes around a block, and the bytes of a freed one: written by the pool, and looked at later.
//!
//! ```text
//!  base            address             address + size        base + len
//!   │ ... canary    │ the program's      │ canary ...          │
//! ```
//!
//! Between guard pages the canary fills what the alignment leaves of the pages.

use super::guarded::{KERNEL_PAGE, guard_len};
use super::records::Record;

/// Bytes before and behind the program's, at least.
pub const MARGIN: usize = 32;
/// What lies before and behind a block: no end of a string, no ASCII, no small number.
const CANARY: u8 = 0xca;
/// What lies in a freed block. As an address, `0xdededede_dededede` is none.
const POISON: u8 = 0xde;
/// Bytes of a canary that are written and looked at, at most: large blocks need not have their last pages touched.
const CANARY_MAX: usize = KERNEL_PAGE;

/// A byte that is not what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// So many bytes before the start.
    Before(usize),
    /// So many bytes behind the end; 0 is the first.
    Behind(usize),
    /// This byte of a freed block.
    Freed(usize),
}

/// The canaries: before and behind.
fn canaries(record: &Record) -> [&'static mut [u8]; 2] {
    let (start, end) = (record.base() as usize, record.base() as usize + record.len);
    let guard = if record.guarded { guard_len(record) } else { 0 };
    let before = record.address - (start + guard);
    let before = if record.guarded { before } else { before.min(MARGIN) };
    let behind = record.address + record.size;
    let behind_len = (end - guard - behind).min(CANARY_MAX);
    // SAFETY: all of it lies in the memory of this block, apart from the program's part;
    // nobody else has references to it.
    unsafe {
        [
            core::slice::from_raw_parts_mut((record.address - before) as *mut u8, before),
            core::slice::from_raw_parts_mut(behind as *mut u8, behind_len),
        ]
    }
}

/// The program's bytes.
fn content(record: &Record) -> &'static mut [u8] {
    // SAFETY: only called for blocks that are not the program's yet, or not any more.
    unsafe { core::slice::from_raw_parts_mut(record.address as *mut u8, record.size) }
}

/// Writes the canaries of a new block.
pub fn mark(record: &Record) {
    canaries(record).into_iter().for_each(|canary| canary.fill(CANARY));
}

/// Has a new block read as zero.
pub fn clear(record: &Record) {
    content(record).fill(0);
}

/// Fills a freed block.
pub fn poison(record: &Record) {
    content(record).fill(POISON);
}

/// Looks at the canaries: the damage next to the block, if there is any.
pub fn check_canaries(record: &Record) -> Option<Damage> {
    let [before, behind] = canaries(record);
    let damaged = |byte: &u8| *byte != CANARY;
    let last = before.iter().rposition(damaged).map(|at| Damage::Before(before.len() - at));
    behind.iter().position(damaged).map(Damage::Behind).or(last)
}

/// Looks at a freed block with its canaries.
pub fn check_freed(record: &Record) -> Option<Damage> {
    let written = content(record).iter().position(|byte| *byte != POISON).map(Damage::Freed);
    written.or_else(|| check_canaries(record))
}
