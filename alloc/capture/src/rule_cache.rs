//! The rules found so far, for the whole process.
//!
//! One word holds the address and the rule, so that a reader sees both or neither; no lock, no counter, no memory per
//! thread, and a new thread starts warm. The key is the module's index and the offset in it: a module that replaces
//! another at the same addresses has another index, so that nothing ever needs to be flushed.
//!
//! Two addresses may share a slot; the later one wins. 4096 slots hold the call paths of a large program.

use crate::rule::{Packed, Rule};
use core::sync::atomic::{AtomicU64, Ordering};

const SLOT_BITS: u32 = 12;
const OFFSET_BITS: u32 = 32;
pub(crate) const MODULE_BITS: u32 = 11;
const KEY_BITS: u32 = MODULE_BITS + OFFSET_BITS;
const TAG_BITS: u32 = KEY_BITS - SLOT_BITS;
const RULE_BITS: u32 = 32;
const _: () = assert!(TAG_BITS + RULE_BITS <= 64);

/// Each is 0, or the tag of the key above the packed rule.
static SLOTS: [AtomicU64; 1 << SLOT_BITS] = [const { AtomicU64::new(0) }; 1 << SLOT_BITS];

/// Slot and tag of a key. The tag is the module and the offset above the slot's bits; the slot is the rest of the
/// offset, stirred with the tag. So the two together are the key and nothing else. The loads of a walk wait for this,
/// which is why it is not a multiplication.
#[inline(always)]
fn place(module: u16, offset: u32) -> (&'static AtomicU64, u64) {
    let high = offset >> SLOT_BITS;
    let stirred = offset ^ high ^ u32::from(module).wrapping_mul(0x9e5);
    // SLOTS.len() is a power of two, so the mask keeps the index below it and the compiler drops the check.
    let slot = &SLOTS[stirred as usize & (SLOTS.len() - 1)];
    (slot, u64::from(module) << (OFFSET_BITS - SLOT_BITS) | u64::from(high))
}

/// The rule for an offset in a module.
#[inline(always)]
pub(crate) fn get(module: u16, offset: u32) -> Option<Packed> {
    let (slot, tag) = place(module, offset);
    let word = slot.load(Ordering::Relaxed);
    (word >> RULE_BITS == tag && word != 0).then_some(Packed(word as u32))
}

/// Remembers a rule, if it is one that can be.
pub(crate) fn put(module: u16, offset: u32, rule: Rule) {
    if let Some(packed) = rule.pack() {
        let (slot, tag) = place(module, offset);
        slot.store(tag << RULE_BITS | u64::from(packed.0), Ordering::Relaxed);
    }
}
