//! The bytes around a block, and the bytes of a freed one: written by the pool, and looked at later.
//!
//! ```text
//!  base            address             address + size        base + len
//!   │ ... canary    │ the program's      │ canary ...          │
//! ```
//!
//! Between guard pages the canary fills what the alignment leaves of the pages.
//!
//! Of a large block that was freed, whole pages are not filled: they have no memory any more, and read as zero.

use super::guarded::{KERNEL_PAGE, guard_len};
use super::records::Record;
use crate::kernel::os;

/// Bytes before and behind the program's, at least.
pub const MARGIN: usize = 32;
/// What lies before and behind a block: no end of a string, no ASCII, no small number.
const CANARY: u8 = 0xca;
/// What lies in a freed block. As an address, `0xdededede_dededede` is none.
const POISON: u8 = 0xde;
/// Bytes of a canary that are written and looked at, at most: large blocks need not have their last pages touched.
const CANARY_MAX: usize = KERNEL_PAGE;

/// Blocks from this size on are not filled: their memory goes back to the kernel.
const EMPTY_MIN: usize = 1 << 20;
/// What the kernel is asked about has pages of so many bytes, or does not say.
const PAGE: usize = 4096;
/// Pages that it is asked about at a time.
const ASKED: usize = 256;

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
    fill(record, 0);
}

/// Fills a freed block.
pub fn poison(record: &Record) {
    fill(record, POISON);
}

/// The whole pages of a large block's bytes: how many bytes lie before them, and behind their start up to their end.
/// None of a smaller one.
fn whole_pages(record: &Record) -> (usize, usize) {
    let before = (record.address.next_multiple_of(KERNEL_PAGE) - record.address).min(record.size);
    let len = (record.size - before) / KERNEL_PAGE * KERNEL_PAGE;
    if record.size < EMPTY_MIN { (record.size, 0) } else { (before, len) }
}

/// Fills the program's bytes; of a large block, whole pages read as zero then.
fn fill(record: &Record, byte: u8) {
    let (before, len) = whole_pages(record);
    let from = (record.address + before) as *mut u8;
    let content = content(record);
    // SAFETY: the pages are the block's, whose bytes nobody needs. Memory that is locked stays, and is filled.
    if len > 0 && unsafe { os::decommit(from, len) } {
        content[..before].fill(byte);
        content[before + len..].fill(byte);
    } else {
        content.fill(byte);
    }
}

/// Looks at the canaries: the damage next to the block, if there is any.
pub fn check_canaries(record: &Record) -> Option<Damage> {
    let [before, behind] = canaries(record);
    let last = before.iter().rposition(|byte| *byte != CANARY).map(|at| Damage::Before(before.len() - at));
    first_other(behind, CANARY).map(Damage::Behind).or(last)
}

/// Looks at a freed block with its canaries.
pub fn check_freed(record: &Record) -> Option<Damage> {
    let (before, len) = whole_pages(record);
    let (first, rest) = content(record).split_at(before);
    let (pages, last) = rest.split_at(len);
    let at = first_other(first, POISON)
        .or_else(|| written_page(pages).map(|at| before + at))
        .or_else(|| first_other(last, POISON).map(|at| before + len + at));
    at.map(Damage::Freed).or_else(|| check_canaries(record))
}

/// The first byte in whole pages of a freed block that somebody has written: a page reads as zero, or is filled.
fn written_page(pages: &[u8]) -> Option<usize> {
    let mut has_memory = [0u8; ASKED];
    for (part, bytes) in pages.chunks(ASKED * PAGE).enumerate() {
        // SAFETY: there is a byte for each page. Without an answer, all are looked at.
        let known = unsafe { os::resident(bytes.as_ptr() as usize, bytes.len(), has_memory.as_mut_ptr()) };
        for (number, page) in bytes.chunks(PAGE).enumerate() {
            if known && has_memory[number] & 1 == 0 {
                continue;
            }
            let expected = if page[0] == 0 { 0 } else { POISON };
            if let Some(at) = first_other(page, expected) {
                return Some((part * ASKED + number) * PAGE + at);
            }
        }
    }
    None
}

/// Where the first byte lies that is not `value`. Most have none: many are compared at a time.
fn first_other(bytes: &[u8], value: u8) -> Option<usize> {
    const AT_A_TIME: usize = 128;
    let is_other = |chunk: &[u8]| chunk.iter().fold(0, |all, byte| all | (byte ^ value)) != 0;
    let chunk = bytes.chunks(AT_A_TIME).position(is_other)?;
    let from = chunk * AT_A_TIME;
    bytes[from..].iter().position(|byte| *byte != value).map(|at| from + at)
}
