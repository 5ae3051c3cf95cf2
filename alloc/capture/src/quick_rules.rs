//! [Rules](crate::rules) for quick captures: found by the return address alone, with no look at its module.
//!
//! The same idea, made for a walk that takes a nanosecond or two a frame. An entry counts for one state of the list of
//! modules ([`crate::modules::generation`]); where a library replaces another, all are learned anew. Only what nearly
//! all frames are has a form here: the frame ends so many words above the stack pointer, or two above the frame pointer, and
//! the caller's frame pointer is either untouched or in a word of the frame.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::rules::{self, Base};

/// Entries of the table: half a mebibyte of addresses, which costs nothing where it is not touched.
const ENTRIES: usize = 1 << 15;

/// Where the caller's registers are. Offsets are in words of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The frame is left for `sp + frame`; the frame pointer is the caller's.
    Sp {
        /// Words from the stack pointer to the frame's end.
        frame: u16,
    },
    /// The same, and the caller's frame pointer lies `fp` words below the frame's end.
    SpSaved {
        /// Words from the stack pointer to the frame's end.
        frame: u16,
        /// Words from the frame's end down to the caller's frame pointer.
        fp: u16,
    },
    /// `fp + 2`, with the caller's frame pointer at `fp`.
    Fp,
    /// The outermost function.
    End,
}

impl Rule {
    /// A rule in this form, if it has one.
    pub(crate) fn of(rule: rules::Rule) -> Option<Rule> {
        match rule {
            rules::Rule::End => Some(Rule::End),
            rules::Rule::Offset { base: Base::Fp, cfa: 16, fp: 16 } => Some(Rule::Fp),
            rules::Rule::Offset { base: Base::Sp, cfa, fp } => {
                let frame = u16::try_from(cfa / 8).ok()?;
                match fp / 8 {
                    0 => Some(Rule::Sp { frame }),
                    saved if saved >= 2 && saved <= u32::from(frame) => Some(Rule::SpSaved { frame, fp: saved as u16 }),
                    _ => None,
                }
            }
            rules::Rule::Offset { .. } | rules::Rule::Other => None,
        }
    }
}

/// A rule in one word: the frame's words in the lowest 16 bits, those down to the saved frame pointer in the next.
const FP: u64 = u64::MAX;
/// No frame has no words.
const END: u64 = 1 << 32;

struct Entry {
    rule: AtomicU64,
    /// Address and generation, exclusive or with the rule turned.
    check: AtomicU64,
}

static TABLE: [Entry; ENTRIES] = [const { Entry { rule: AtomicU64::new(0), check: AtomicU64::new(0) } }; ENTRIES];

/// An address with its bits well spread.
#[inline(always)]
pub(crate) fn spread(pc: usize) -> u64 {
    (pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn place(spread: u64) -> &'static Entry {
    let hash = spread >> (64 - ENTRIES.trailing_zeros());
    // SAFETY: the shift leaves less than `ENTRIES`.
    unsafe { TABLE.get_unchecked(hash as usize) }
}

/// What an address and a generation come to; addresses of code have 48 bits at most.
#[inline(always)]
fn tag(pc: usize, generation: u64) -> u64 {
    pc as u64 ^ generation << 48
}

/// The rule for a return address, if one was learned while the modules were the same.
#[inline(always)]
pub(crate) fn find(pc: usize, spread: u64, generation: u64) -> Option<Rule> {
    let entry = place(spread);
    let rule = entry.rule.load(Ordering::Relaxed);
    if entry.check.load(Ordering::Relaxed) ^ rule.rotate_left(27) != tag(pc, generation) {
        return None;
    }
    if rule == FP {
        return Some(Rule::Fp);
    }
    let (frame, fp) = (rule as u16, (rule >> 16) as u16);
    Some(match (frame, fp) {
        (0, _) if rule == END => Rule::End,
        // An entry that nobody wrote, at the address 0.
        (0, _) => return None,
        (_, 0) => Rule::Sp { frame },
        _ => Rule::SpSaved { frame, fp },
    })
}

/// Keeps a rule.
pub(crate) fn keep(pc: usize, generation: u64, rule: Rule) {
    let word = match rule {
        Rule::Sp { frame } => u64::from(frame),
        Rule::SpSaved { frame, fp } => u64::from(frame) | u64::from(fp) << 16,
        Rule::Fp => FP,
        Rule::End => END,
    };
    if pc as u64 >> 48 != 0 {
        return;
    }
    let entry = place(spread(pc));
    entry.rule.store(word, Ordering::Relaxed);
    entry.check.store(tag(pc, generation) ^ word.rotate_left(27), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nearly_all_frames_are_has_a_quick_rule_and_the_rest_has_none() {
        let quick = |base, cfa, fp| Rule::of(rules::Rule::offset(base, cfa, fp));
        assert_eq!(quick(Base::Sp, 64, 0), Some(Rule::Sp { frame: 8 }));
        assert_eq!(quick(Base::Sp, 64, 16), Some(Rule::SpSaved { frame: 8, fp: 2 }));
        assert_eq!(quick(Base::Fp, 16, 16), Some(Rule::Fp));
        assert_eq!(Rule::of(rules::Rule::End), Some(Rule::End));
        // A saved register outside of the frame, or in the return address's place; other frames by the frame pointer.
        for (base, cfa, fp) in [(Base::Sp, 64, 72), (Base::Sp, 64, 8), (Base::Fp, 32, 16), (Base::Sp, 8 << 16, 0)] {
            assert_eq!(quick(base, cfa, fp), None);
        }
        assert_eq!(Rule::of(rules::Rule::Other), None);
    }

    #[test]
    fn a_rule_counts_for_one_state_of_the_modules() {
        let pc = 0x7f12_3456_789a;
        keep(pc, 7, Rule::SpSaved { frame: 40, fp: 2 });
        assert_eq!(find(pc, spread(pc), 7), Some(Rule::SpSaved { frame: 40, fp: 2 }));
        assert_eq!(find(pc, spread(pc), 8), None);
        assert_eq!(find(pc + 1, spread(pc), 7), None);
    }
}
