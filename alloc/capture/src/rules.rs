//! How to leave a function at one of its calls, learned once and shared by all threads.
//!
//! Reading unwind tables costs a third of a microsecond a frame. framehop remembers what it read, in 509 places of which an
//! address has one: of the return addresses of a deep stack some two share a place, each drives the other out, and both are
//! read anew at every capture. This table is larger, has four places for an address, and is read without a lock.
//!
//! A rule is what framehop does, found out by asking it twice with made-up registers ([`Unwinder::rule`]
//! (crate::unwinder::Unwinder::rule)). What does not fit into a rule is left to it each time.
//!
//! An entry is two words, written one after the other, perhaps by two threads at once. One of them is the key, mixed with
//! the other word, so that a reader who catches halves of two entries finds no key (R. Hyatt and T. Mann, "A lockless
//! transposition table implementation", ICGA Journal 25, 2002). Were it to find one all the same, the walk would go astray
//! and read no byte that it may not.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::stack::Window;
use crate::walk::Registers;

/// How to get from a frame to its caller. The return address lies below the canonical frame address (CFA), which is the
/// caller's stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It can't be said in this form.
    Other,
    /// The function is the outermost one.
    End,
    /// By an offset.
    Offset {
        /// What the CFA is counted from.
        base: Base,
        /// Bytes from there up to the CFA.
        cfa: u32,
        /// Bytes from the caller's frame pointer up to the CFA; 0 if it is still in its register.
        fp: u32,
    },
}

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The stack pointer.
    Sp,
    /// The frame pointer.
    Fp,
}

/// Offsets are multiples of 8 below this.
const OFFSET_END: u32 = 1 << 28;

impl Rule {
    /// A rule with offsets that an entry can hold.
    pub(crate) fn offset(base: Base, cfa: u64, fp: u64) -> Rule {
        let fits = |bytes: u64| u32::try_from(bytes).ok().filter(|bytes| *bytes < OFFSET_END && bytes % 8 == 0);
        match (fits(cfa), fits(fp)) {
            (Some(cfa @ 8..), Some(fp)) => Rule::Offset { base, cfa, fp },
            _ => Rule::Other,
        }
    }

    /// Never 0: the low three bits are the kind, then come two offsets, each without its three low zeros.
    fn to_word(self) -> u64 {
        match self {
            Rule::Other => 1,
            Rule::End => 2,
            Rule::Offset { base, cfa, fp } => {
                let kind = if base == Base::Sp { 3 } else { 4 };
                kind | u64::from(cfa) | u64::from(fp) << 28
            }
        }
    }

    fn from_word(word: u64) -> Rule {
        let offset = |bits: u64| bits as u32 & (OFFSET_END - 1) & !7;
        let base = match word & 7 {
            2 => return Rule::End,
            3 => Base::Sp,
            4 => Base::Fp,
            _ => return Rule::Other,
        };
        Rule::Offset { base, cfa: offset(word), fp: offset(word >> 28) }
    }
}

/// To the caller, by the fields of [`Rule::Offset`]. `None` if that can't be, or is for framehop to say.
#[inline(always)]
pub(crate) fn caller(base: Base, cfa: u32, fp: u32, from: Registers, stack: &mut Window) -> Option<Registers> {
    let register = match base {
        Base::Sp => from.sp,
        Base::Fp => from.fp,
    };
    let sp = register.wrapping_add(cfa as usize);
    // Stacks grow down: a caller's frame lies above. Without a frame pointer, this is the outermost frame or is lost.
    if sp <= from.sp || register == 0 {
        return None;
    }
    let pc = stack.word(sp.wrapping_sub(8)).filter(|pc| *pc != 0)?;
    let fp = if fp == 0 { from.fp } else { stack.word(sp.wrapping_sub(fp as usize))? };
    Some(Registers { pc, sp, fp })
}

/// A return address in one module: an address means another function when another module lies there.
#[derive(Clone, Copy)]
pub(crate) struct Key(u64);

impl Key {
    /// The bits of an address of user space.
    const ADDRESS: u32 = 48;

    /// `module` is the module's index.
    #[inline]
    pub(crate) fn new(module: u16, pc: usize) -> Key {
        Key(u64::from(module) << Self::ADDRESS | pc as u64 & ((1 << Self::ADDRESS) - 1))
    }

    #[inline]
    fn hash(self) -> u64 {
        mix(self.0)
    }
}

#[inline]
fn mix(word: u64) -> u64 {
    word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

struct Entry {
    /// The key, exclusive or with [`mix`] of the rule.
    check: AtomicU64,
    rule: AtomicU64,
}

const WAYS: usize = 4;

/// A line of the processor's cache.
#[repr(align(64))]
struct Set([Entry; WAYS]);

const SET_BITS: u32 = 10;

/// In zeroed memory that costs nothing before it is touched: 64 KiB.
static SETS: [Set; 1 << SET_BITS] =
    [const { Set([const { Entry { check: AtomicU64::new(0), rule: AtomicU64::new(0) } }; WAYS]) }; 1 << SET_BITS];

fn set(key: Key) -> Option<&'static Set> {
    SETS.get((key.hash() >> (u64::BITS - SET_BITS)) as usize)
}

/// The rule for a return address, if it is known.
#[inline]
pub(crate) fn lookup(key: Key) -> Option<Rule> {
    for entry in &set(key)?.0 {
        let rule = entry.rule.load(Ordering::Relaxed);
        if entry.check.load(Ordering::Relaxed) ^ mix(rule) == key.0 && rule != 0 {
            return Some(Rule::from_word(rule));
        }
    }
    None
}

/// Notes a rule, in an empty place or in that of another one.
#[cold]
pub(crate) fn insert(key: Key, rule: Rule) {
    let Some(Set(entries)) = set(key) else { return };
    let empty = entries.iter().find(|entry| entry.rule.load(Ordering::Relaxed) == 0);
    let victim = (key.hash() >> (u64::BITS - SET_BITS - 2)) as usize % WAYS;
    let Some(entry) = empty.or_else(|| entries.get(victim)) else { return };
    let word = rule.to_word();
    entry.rule.store(word, Ordering::Relaxed);
    entry.check.store(key.0 ^ mix(word), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_again_as_it_was() {
        let rules = [
            Rule::Other,
            Rule::End,
            Rule::offset(Base::Sp, 8, 0),
            Rule::offset(Base::Fp, 16, 16),
            Rule::offset(Base::Sp, u64::from(OFFSET_END) - 8, u64::from(OFFSET_END) - 8),
        ];
        for (at, rule) in rules.into_iter().enumerate() {
            let key = Key::new(7, 0x7fff_1234_5678 + at);
            assert_eq!(lookup(key), None);
            insert(key, rule);
            assert_eq!(lookup(key), Some(rule));
            assert_eq!(lookup(Key::new(8, 0x7fff_1234_5678 + at)), None, "another module at that address");
        }
    }

    #[test]
    fn what_no_entry_can_hold_is_no_rule() {
        assert_eq!(Rule::offset(Base::Sp, u64::from(OFFSET_END), 0), Rule::Other);
        assert_eq!(Rule::offset(Base::Sp, 12, 0), Rule::Other);
        assert_eq!(Rule::offset(Base::Sp, 0, 0), Rule::Other, "no room for the return address");
        assert_eq!(Rule::offset(Base::Sp, 16, u64::MAX - 7), Rule::Other);
    }

    #[test]
    fn more_rules_than_places_drive_old_ones_out_and_mix_none_up() {
        let key = |at: usize| Key::new(9, 0x5555_0000_0000 + at * 5);
        let rule = |at: usize| Rule::offset(Base::Sp, 8 + 8 * at as u64, 8 * (at as u64 % 3));
        for at in 0..20_000 {
            insert(key(at), rule(at));
            assert_eq!(lookup(key(at)), Some(rule(at)));
        }
        let known = (0..20_000).filter(|at| lookup(key(*at)).inspect(|found| assert_eq!(*found, rule(*at))).is_some());
        assert!(known.count() > WAYS << (SET_BITS - 1));
    }
}
