//! The rules found so far, for the whole process.
//!
//! One word holds the address and the rule, so that a reader sees both or neither; no lock, no counter, no memory per
//! thread, and a new thread starts warm. The key is the module's index and the offset in it: a module that replaces
//! another at the same addresses has another index, so that nothing ever needs to be flushed.
//!
//! Two addresses may share a slot; the later one wins. 4096 slots hold the call paths of a large program.

use crate::rule::Rule;
use core::sync::atomic::{AtomicU64, Ordering};

const SLOT_BITS: u32 = 12;
const OFFSET_BITS: u32 = 32;
pub(crate) const MODULE_BITS: u32 = 11;
const KEY_BITS: u32 = MODULE_BITS + OFFSET_BITS;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
const TAG_BITS: u32 = KEY_BITS - SLOT_BITS;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const RULE_BITS: u32 = 32;
const _: () = assert!(TAG_BITS + RULE_BITS <= 64);

/// Each is 0, or the tag of the key above the packed rule.
static SLOTS: [AtomicU64; 1 << SLOT_BITS] = [const { AtomicU64::new(0) }; 1 << SLOT_BITS];

/// Slot and tag of a key. An odd factor permutes the numbers below a power of two, so slot and tag together are the
/// key and nothing else.
fn place(module: u16, offset: u32) -> (&'static AtomicU64, u64) {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let key = u64::from(module) << OFFSET_BITS | u64::from(offset);
    let mixed = key.wrapping_mul(FACTOR) & KEY_MASK;
    let slot = (mixed >> TAG_BITS) as usize & (SLOTS.len() - 1);
    // SLOTS.len() is a power of two, so the mask keeps the index below it and the compiler drops the check.
    (&SLOTS[slot], mixed & TAG_MASK)
}

/// The rule for an offset in a module.
#[inline]
pub(crate) fn get(module: u16, offset: u32) -> Option<Rule> {
    let (slot, tag) = place(module, offset);
    let word = slot.load(Ordering::Relaxed);
    if word >> RULE_BITS == tag { Rule::unpack(word as u32) } else { None }
}

/// Remembers a rule, if it is one that can be.
pub(crate) fn put(module: u16, offset: u32, rule: Rule) {
    if let Some(packed) = rule.pack() {
        let (slot, tag) = place(module, offset);
        slot.store(tag << RULE_BITS | u64::from(packed), Ordering::Relaxed);
    }
}
