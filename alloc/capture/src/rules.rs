//! How to leave a function at one of its calls, learned once and shared by all threads.
//!
//! Reading unwind tables costs a third of a microsecond a frame. framehop remembers what it read, in 509 places of
//! which an address has one: of the return addresses of a deep stack some two share a place, each drives the other out,
//! and both are read anew at every capture. This table is larger, has two places for an address, and is read without a
//! lock. The first place is where the address's lowest bits say: a walk waits for each rule before it knows the next
//! address, and this is the shortest way there.
//!
//! A rule is what framehop does, found out by asking it twice with made-up registers
//! ([`crate::unwinder::Unwinder::rule`]). What does not fit into a rule is left to it each time. A rule counts until a
//! module replaces another ([`crate::modules::epoch`]): then all are learned anew. It says whether its module can be
//! unloaded at all: if not, the address alone tells that the module is still there.
//!
//! An entry is two words, written one after the other, perhaps by two threads at once. One of them is the key, mixed
//! with the other word, so that a reader who catches halves of two entries finds no key (R. Hyatt and T. Mann, "A
//! lockless transposition table implementation", ICGA Journal 25, 2002). Were it to find one all the same, the walk
//! would go astray and read no byte that it may not.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::Caller;
use crate::frame::{ADDRESS_BITS, return_address, unsigned};
use crate::stack::Window;
use crate::system;

/// How to get from a frame to its caller. The canonical frame address (CFA) is the caller's stack pointer; the return
/// address lies where [`return_address`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// It can't be said in this form.
    Other,
    /// The function is the outermost one.
    End,
    /// The function aligns its stack, and keeps the CFA in a word of its own. Its frame pointer points at the caller's.
    Realigned {
        /// Bytes from the word up to the frame pointer.
        below: u32,
    },
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
const OFFSET_END: u32 = 8 << OFFSET_BITS;
const OFFSET_BITS: u32 = 20;

/// The usual frame of the frame pointer.
pub(crate) const USUAL: Rule = Rule::Offset { base: Base::Fp, cfa: 16, fp: 16 };

/// An offset that an entry can hold.
fn fitting(bytes: u64) -> Option<u32> {
    u32::try_from(bytes).ok().filter(|bytes| *bytes < OFFSET_END && bytes % 8 == 0)
}

/// A rule in one word, which is never 0. Nearly all frames are [short](Short): they have their words in the lowest 16
/// bits, and in the next those from the frame's end down to the caller's frame pointer, if that lies there. Words
/// without the lowest bits have a kind above them, then two offsets in words. The highest bit is of the module.
pub(crate) mod word {
    /// Its module is never unloaded.
    pub(crate) const STAYS: u64 = 1 << 63;
    /// [`Rule::Other`](super::Rule::Other).
    pub(crate) const OTHER: u64 = 1 << KIND_SHIFT;
    /// [`Rule::End`](super::Rule::End).
    pub(crate) const END: u64 = 2 << KIND_SHIFT;
    /// The usual frame of the frame pointer: two words above it, and it points at the caller's.
    pub(crate) const USUAL_FP: u64 = 3 << KIND_SHIFT;
    /// A frame of the stack pointer that is not short.
    pub(super) const SP: u64 = 4 << KIND_SHIFT;
    /// A frame of the frame pointer that is not the usual one.
    pub(super) const FP: u64 = 5 << KIND_SHIFT;
    /// [`Rule::Realigned`](super::Rule::Realigned).
    pub(super) const REALIGNED: u64 = 6 << KIND_SHIFT;
    pub(super) const KIND: u64 = 7 << KIND_SHIFT;
    pub(super) const SHORT_SAVED_SHIFT: u32 = 16;
    pub(super) const CFA_SHIFT: u32 = KIND_SHIFT + 3;
    pub(super) const SAVED_SHIFT: u32 = CFA_SHIFT + super::OFFSET_BITS;
    const KIND_SHIFT: u32 = 16;
}

/// A frame that is left by the stack pointer, as nearly all are. In words of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// From the stack pointer to the frame's end; not 0.
    pub(crate) frame: u16,
    /// From the frame's end down to the caller's frame pointer, at least 2 and at most `frame`;
    /// 0 if it is in its register.
    pub(crate) saved: u16,
}

impl Short {
    /// A word's, if its rule is short.
    #[inline(always)]
    pub(crate) fn of(word: u64) -> Option<Short> {
        let (frame, saved) = (word as u16, (word >> word::SHORT_SAVED_SHIFT) as u16);
        (frame != 0).then_some(Short { frame, saved })
    }
}

impl Rule {
    /// A rule with offsets that an entry can hold.
    pub(crate) fn offset(base: Base, cfa: u64, fp: u64) -> Rule {
        match (fitting(cfa), fitting(fp)) {
            (Some(cfa @ 8..), Some(fp)) => Rule::Offset { base, cfa, fp },
            _ => Rule::Other,
        }
    }

    /// A frame that keeps its CFA `below` bytes below its frame pointer.
    #[cfg(any(target_arch = "x86_64", test))]
    pub(crate) fn realigned(below: u64) -> Rule {
        match fitting(below) {
            Some(below @ 8..) => Rule::Realigned { below },
            _ => Rule::Other,
        }
    }

    fn to_word(self) -> u64 {
        let (base, cfa, fp) = match self {
            Rule::Offset { base, cfa, fp } => (base, cfa, fp),
            Rule::Realigned { below } => return word::REALIGNED | u64::from(below / 8) << word::CFA_SHIFT,
            Rule::End => return word::END,
            Rule::Other => return word::OTHER,
        };
        let (cfa, fp) = (u64::from(cfa / 8), u64::from(fp / 8));
        match base {
            Base::Sp if cfa <= u64::from(u16::MAX) && (fp == 0 || (2..=cfa).contains(&fp)) => {
                cfa | fp << word::SHORT_SAVED_SHIFT
            }
            Base::Fp if (cfa, fp) == (2, 2) => word::USUAL_FP,
            Base::Sp => word::SP | cfa << word::CFA_SHIFT | fp << word::SAVED_SHIFT,
            Base::Fp => word::FP | cfa << word::CFA_SHIFT | fp << word::SAVED_SHIFT,
        }
    }

    pub(crate) fn from_word(word: u64) -> Rule {
        if let Some(Short { frame, saved }) = Short::of(word) {
            return Rule::Offset { base: Base::Sp, cfa: u32::from(frame) * 8, fp: u32::from(saved) * 8 };
        }
        let offset = |shift: u32| (word >> shift) as u32 % (1 << OFFSET_BITS) * 8;
        let base = match word & word::KIND {
            word::END => return Rule::End,
            word::USUAL_FP => return USUAL,
            word::REALIGNED => return Rule::Realigned { below: offset(word::CFA_SHIFT) },
            word::SP => Base::Sp,
            word::FP => Base::Fp,
            _ => return Rule::Other,
        };
        Rule::Offset { base, cfa: offset(word::CFA_SHIFT), fp: offset(word::SAVED_SHIFT) }
    }
}

/// To the caller, by the fields of [`Rule::Offset`]. `None` if that can't be, or is for framehop to say.
#[inline(always)]
pub(crate) fn caller(base: Base, cfa: u32, fp: u32, from: Caller, stack: &mut Window) -> Option<Caller> {
    let register = match base {
        Base::Sp => from.sp,
        Base::Fp => from.fp,
    };
    let sp = register.wrapping_add(cfa as usize);
    // Stacks grow down: a caller's frame lies above. Without a frame pointer, this is the outermost frame or is lost.
    if sp <= from.sp || register == 0 {
        return None;
    }
    let pc = stack.word(return_address(sp, fp as usize)).map(unsigned).filter(|pc| *pc != 0)?;
    let fp = if fp == 0 { from.fp } else { stack.word(sp.wrapping_sub(fp as usize))? };
    Some(Caller { pc, sp, fp })
}

/// To the caller of a frame that keeps its CFA in a word `below` the frame pointer.
pub(crate) fn realigned_caller(below: u32, from: Caller, stack: &mut Window) -> Option<Caller> {
    let sp = stack.word(from.fp.checked_sub(below as usize)?)?;
    // Both are the frame's own, and the stack grows down.
    if from.fp < from.sp || sp <= from.fp {
        return None;
    }
    let pc = stack.word(sp.wrapping_sub(8)).filter(|pc| *pc != 0)?;
    Some(Caller { pc, sp, fp: stack.word(from.fp)? })
}

/// Entries of the first table, and of the largest one. Each address has a place of its own in a large table, mostly in
/// a page of its own: a program of which few stacks are captured has a small one.
const ENTRIES: core::ops::RangeInclusive<usize> = 1 << 9..=1 << 15;
/// How many times as many entries the next larger table has.
const GROWTH: usize = 8;

struct Entry {
    rule: AtomicU64,
    /// The [`tag`], exclusive or with [`mix`] of the rule.
    check: AtomicU64,
}

/// A table. Its entries lie behind it; zeroed ones are free.
pub(crate) struct Table {
    entries: *const Entry,
    /// One less than the number of entries, which is a power of two.
    mask: usize,
    /// Rules that were put into places that were free, about.
    taken: AtomicUsize,
    /// The one before it, which captures may still read.
    smaller: *mut Table,
}

/// Bytes before a table's entries.
const FIRST_ENTRY: usize = 64;
const _: () = assert!(size_of::<Table>() <= FIRST_ENTRY);

/// Null before the first rule; later the largest table. Unmapped by [`forget`] alone.
static RULES: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

#[inline(always)]
fn mix(rule: u64) -> u64 {
    rule.rotate_left(27)
}

/// What an address and an epoch come to.
#[inline(always)]
fn tag(pc: usize, epoch: u64) -> u64 {
    pc as u64 ^ epoch << ADDRESS_BITS
}

/// The address of a tag.
fn address(tag: u64) -> usize {
    (tag & ((1 << ADDRESS_BITS) - 1)) as usize
}

impl Entry {
    /// The rule's word, if it is of this address. One that nobody wrote is of the address 0.
    #[inline(always)]
    fn word(&self, tag: u64) -> Option<u64> {
        let rule = self.rule.load(Ordering::Relaxed);
        (self.check.load(Ordering::Relaxed) ^ mix(rule) == tag).then_some(rule)
    }

    /// What it holds: tag and word.
    fn content(&self) -> (u64, u64) {
        let rule = self.rule.load(Ordering::Relaxed);
        (self.check.load(Ordering::Relaxed) ^ mix(rule), rule)
    }

    fn set(&self, tag: u64, word: u64) {
        self.rule.store(word, Ordering::Relaxed);
        self.check.store(tag ^ mix(word), Ordering::Relaxed);
    }
}

impl Table {
    /// Bytes of a table with so many entries.
    const fn bytes(entries: usize) -> usize {
        FIRST_ENTRY.wrapping_add(entries.wrapping_mul(size_of::<Entry>()))
    }

    /// An empty table. `None` without memory.
    fn make(entries: usize, smaller: *mut Table) -> Option<*mut Table> {
        let table: *mut Table = system::map(Table::bytes(entries))?.cast();
        let mask = entries.wrapping_sub(1);
        let entries = table.wrapping_byte_add(FIRST_ENTRY).cast_const().cast();
        // SAFETY: the mapping has room for it, and is nobody else's yet.
        unsafe { table.write(Table { entries, mask, taken: AtomicUsize::new(0), smaller }) };
        Some(table)
    }

    fn len(&self) -> usize {
        self.mask.wrapping_add(1)
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> &Entry {
        // SAFETY: `make` has mapped as many as the mask lets pass; zeroed memory is entries, and they are atomics.
        unsafe { &*self.entries.add(at & self.mask) }
    }

    #[inline(always)]
    fn first_place(&self, pc: usize) -> &Entry {
        self.entry(pc)
    }

    fn second_place(&self, pc: usize) -> &Entry {
        self.entry(((pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize)
    }

    /// The word of the rule for a return address; 0 if none was learned in this epoch.
    #[inline(always)]
    pub(crate) fn find_word(&self, pc: usize, epoch: u64) -> u64 {
        let tag = tag(pc, epoch);
        match self.first_place(pc).word(tag) {
            Some(word) => word,
            None => self.find_second(pc, tag),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_second(&self, pc: usize, tag: u64) -> u64 {
        self.second_place(pc).word(tag).unwrap_or(0)
    }

    #[inline]
    fn find(&self, pc: usize, epoch: u64) -> Option<Rule> {
        let word = self.find_word(pc, epoch);
        (word != 0).then(|| Rule::from_word(word))
    }

    /// Keeps a rule's word for a return address.
    fn keep(&self, pc: usize, epoch: u64, word: u64) {
        if pc as u64 >> ADDRESS_BITS == 0 {
            self.put(pc, tag(pc, epoch), word);
        }
    }

    fn put(&self, pc: usize, tag: u64, word: u64) {
        // Rules of modules as they were before are of no use any more.
        let is_free = |entry: &&Entry| {
            let (known, held) = entry.content();
            held == 0 || known == tag || (known ^ tag) >> ADDRESS_BITS != 0
        };
        let (first, second) = (self.first_place(pc), self.second_place(pc));
        self.taken.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = [first, second].into_iter().find(is_free) {
            return place.set(tag, word);
        }
        let (old, moved) = first.content();
        self.second_place(address(old)).set(old, moved);
        first.set(tag, word);
    }

    /// Whether there is to be a larger one: half of it may be taken.
    fn is_full(&self) -> bool {
        self.len() < *ENTRIES.end() && self.taken.load(Ordering::Relaxed) > self.len() / 2
    }

    /// Puts the rules of an epoch into another one.
    fn copy_to(&self, other: &Table, epoch: u64) {
        for at in 0..self.len() {
            let (known, word) = self.entry(at).content();
            let pc = address(known);
            if word != 0 && known == tag(pc, epoch) {
                other.put(pc, known, word);
            }
        }
    }
}

/// The rules, if there are any.
#[inline(always)]
pub(crate) fn table() -> Option<&'static Table> {
    // SAFETY: null, or a table that stays; its entries are atomics.
    unsafe { RULES.load(Ordering::Acquire).as_ref() }
}

/// Makes the first table, or one that is larger than `full` and holds what that holds, which another thread may just be
/// making as well. None under a narrow limit of data: there, every capture asks anew. Returns the table that there is.
#[cold]
fn make_table(full: Option<&'static Table>, epoch: u64) -> Option<&'static Table> {
    if system::data_limit() < system::NARROW_DATA {
        return full;
    }
    let entries = full.map_or(*ENTRIES.start(), |full| full.len().wrapping_mul(GROWTH).min(*ENTRIES.end()));
    let before = full.map_or(ptr::null_mut(), |full| (&raw const *full).cast_mut());
    let Some(new) = Table::make(entries, before) else { return full };
    if let Some(full) = full {
        // SAFETY: just made.
        full.copy_to(unsafe { &*new }, epoch);
    }
    if RULES.compare_exchange(before, new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: nobody knows of it.
        unsafe { system::unmap(new.addr(), Table::bytes(entries)) };
    }
    table()
}

/// Gives the tables back. What is met from here on is learned anew.
///
/// # Safety
///
/// No other thread captures, and this one is not in the middle of it.
pub(crate) unsafe fn forget() {
    let mut table = RULES.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or a table; the caller's promise: nobody has it.
    while let Some(unused) = unsafe { table.as_ref() } {
        let (start, len) = (table.addr(), Table::bytes(unused.len()));
        table = unused.smaller;
        // SAFETY: as above.
        unsafe { system::unmap(start, len) };
    }
}

/// The rule for a return address, if one was learned in this epoch.
pub(crate) fn find(pc: usize, epoch: u64) -> Option<Rule> {
    table()?.find(pc, epoch)
}

/// Keeps a rule, of a module that `stays` or does not: in a place that is free, or in the first one, whose rule then
/// moves to its second. Without memory it is not kept.
pub(crate) fn keep(pc: usize, epoch: u64, rule: Rule, stays: bool) {
    let known = table();
    let table = if known.is_none_or(Table::is_full) { make_table(known, epoch) } else { known };
    if let Some(table) = table {
        table.keep(pc, epoch, rule.to_word() | if stays { word::STAYS } else { 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest table.
    const MOST: usize = *ENTRIES.end();

    fn large() -> &'static Table {
        // SAFETY: it is never unmapped.
        unsafe { &*Table::make(MOST, ptr::null_mut()).unwrap() }
    }

    #[test]
    fn a_rule_is_found_again_as_it_was_while_the_modules_are_the_same() {
        let table = large();
        let rules = [
            Rule::Other,
            Rule::End,
            Rule::offset(Base::Sp, 8, 0),
            Rule::offset(Base::Sp, 64, 16),
            Rule::offset(Base::Fp, 16, 16),
            Rule::offset(Base::Fp, 32, 16),
            Rule::realigned(8),
            Rule::realigned(u64::from(OFFSET_END) - 8),
            // A saved register outside of the frame, or in the return address's place.
            Rule::offset(Base::Sp, 64, 72),
            Rule::offset(Base::Sp, 64, 8),
            Rule::offset(Base::Sp, u64::from(OFFSET_END) - 8, u64::from(OFFSET_END) - 8),
        ];
        for (at, rule) in rules.into_iter().enumerate() {
            let pc = 0x7fff_1234_5678 + at;
            assert_eq!(table.find(pc, 7), None);
            table.keep(pc, 7, rule.to_word() | if at % 2 == 0 { word::STAYS } else { 0 });
            assert_eq!(table.find(pc, 7), Some(rule));
            assert_eq!(table.find_word(pc, 7) & word::STAYS != 0, at % 2 == 0);
            assert_eq!(table.find(pc, 8), None, "a module was replaced");
        }
    }

    #[test]
    fn frames_of_the_stack_pointer_with_all_words_inside_are_short() {
        let short = |base, cfa, fp| Short::of(Rule::offset(base, cfa, fp).to_word());
        assert_eq!(short(Base::Sp, 64, 0), Some(Short { frame: 8, saved: 0 }));
        assert_eq!(short(Base::Sp, 64, 16), Some(Short { frame: 8, saved: 2 }));
        for (base, cfa, fp) in [(Base::Sp, 64, 72), (Base::Sp, 64, 8), (Base::Fp, 16, 16), (Base::Sp, 8 << 16, 0)] {
            assert_eq!(short(base, cfa, fp), None);
        }
        assert_eq!(Rule::offset(Base::Fp, 16, 16).to_word(), word::USUAL_FP);
        assert_eq!((Rule::End.to_word(), Rule::Other.to_word()), (word::END, word::OTHER));
    }

    #[test]
    fn what_no_entry_can_hold_is_no_rule() {
        assert_eq!(Rule::offset(Base::Sp, u64::from(OFFSET_END), 0), Rule::Other);
        assert_eq!(Rule::offset(Base::Sp, 12, 0), Rule::Other);
        assert_eq!(Rule::offset(Base::Sp, 0, 0), Rule::Other, "no room for the return address");
        assert_eq!(Rule::offset(Base::Sp, 16, u64::MAX - 7), Rule::Other);
        assert_eq!(Rule::realigned(12), Rule::Other);
        assert_eq!(Rule::realigned(0), Rule::Other, "the caller's frame pointer lies there");
        assert_eq!(Rule::realigned(u64::from(OFFSET_END)), Rule::Other);
    }

    #[test]
    fn addresses_that_share_a_place_do_not_drive_each_other_out() {
        let table = large();
        let pcs: [usize; 3] = core::array::from_fn(|at| 0x5566_0000_1234 + at * MOST);
        let rule = |at: usize| Rule::offset(Base::Sp, 8 + 8 * at as u64, 0);
        for (at, &pc) in pcs.iter().enumerate() {
            table.keep(pc, 9, rule(at).to_word());
        }
        for (at, &pc) in pcs.iter().enumerate() {
            assert_eq!(table.find(pc, 9), Some(rule(at)));
        }
    }

    #[test]
    fn more_rules_than_places_drive_old_ones_out_and_mix_none_up() {
        let table = large();
        let pc = |at: usize| 0x5555_0000_0000 + at * 5;
        let rule = |at: usize| Rule::offset(Base::Sp, 8 + 8 * at as u64, 8 * (at as u64 % 3));
        for at in 0..2 * MOST {
            table.keep(pc(at), 11, rule(at).to_word());
            assert_eq!(table.find(pc(at), 11), Some(rule(at)));
        }
        let known =
            (0..2 * MOST).filter(|&at| table.find(pc(at), 11).inspect(|found| assert_eq!(*found, rule(at))).is_some());
        assert!(known.count() > MOST / 2);
    }

    #[test]
    fn a_larger_table_has_the_rules_of_the_smaller_one() {
        let table = |entries: usize| {
            // SAFETY: it is never unmapped.
            unsafe { &*Table::make(entries, ptr::null_mut()).unwrap() }
        };
        let (small, large) = (table(*ENTRIES.start()), table(*ENTRIES.start() * GROWTH));
        let pc = |at: usize| 0x5555_0000_0000 + at * 5;
        let rule = |at: usize| Rule::offset(Base::Sp, 8 + 8 * at as u64, 0);
        let kept =
            (0..).take_while(|_| !small.is_full()).inspect(|&at| small.keep(pc(at), 3, rule(at).to_word())).count();
        assert!(kept > small.len() / 2 && !large.is_full());
        let known: std::vec::Vec<usize> = (0..kept).filter(|&at| small.find(pc(at), 3).is_some()).collect();
        assert!(known.len() > kept * 9 / 10, "{} of {kept}", known.len());
        small.copy_to(large, 3);
        for at in known {
            assert_eq!(large.find(pc(at), 3), Some(rule(at)));
        }
        assert!(!large.is_full());
    }
}
