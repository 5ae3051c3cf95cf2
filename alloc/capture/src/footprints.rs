//! Stacks that were walked before, known again by the words that their walks read.
//!
//! A walk by rules hangs on nothing but the registers that it begins with and the words that it reads, and where it
//! reads follows from those. So if the words are as they were, wherever an earlier walk read one, the stack is the same;
//! and to look at words of which the places are known takes a few instructions each, none of which waits for another.
//!
//! A [`Form`] is where a walk read that began with these registers. The words that are there make a number, and the
//! number has two places in a table, where the slot stands in which the caller keeps the earlier walk's stack. That such
//! a number stands for a stack is so with the [hash](crate::hash) of a walk, too.

use crate::modules;
use crate::quick::{FACTOR, Step, pc_at, step};
use crate::rules::{self, Table};
use crate::stack::ThreadState;
use crate::{Caller, MAX_DEPTH};

/// Words that a form may have. A stack with more is walked each time.
const WORDS: usize = 120;
/// Numbers that are made side by side, so that few wait for the one before.
const LANES: usize = 8;
/// Sets of forms, a power of two. Two ways from one call to the outermost frame may differ by where the words lie.
const SETS: usize = 1024;
const WAYS: usize = 2;
/// Stacks of the table: a power of two.
const STACKS: usize = 8192;
/// Bits of a slot.
const SLOT_BITS: u32 = 14;
/// After so many stacks that were not known, it is seen whether this is of use.
const WINDOW: u32 = 256;
/// Calls for which nothing is looked up if it was of none: at first, and at most.
const PAUSE: core::ops::RangeInclusive<u32> = 1 << 10..=1 << 16;

const _: () = assert!(WORDS.is_multiple_of(LANES));

/// Where a walk read.
#[derive(Clone, Copy)]
#[repr(C)]
struct Form {
    /// The registers that it began with; the frame pointer counts if the walk hung on it.
    caller: Caller,
    hangs_on_fp: bool,
    /// Of `places`: a multiple of [`LANES`].
    len: u16,
    /// No two forms have the same.
    serial: u32,
    /// Words from the stack pointer upwards.
    places: [u16; WORDS],
}

/// A step of a walk. Places are as in a form.
#[derive(Clone, Copy)]
#[repr(C)]
struct Link {
    /// Where the return address lay.
    pc_at: u16,
    /// Where the caller's frame pointer lay, if it was read.
    fp_at: Option<u16>,
    /// Where its stack pointer lay, if it was read.
    sp_at: Option<u16>,
    /// The step hung on the frame pointer.
    by_fp: bool,
}

/// What is remembered of one thread's stacks. All zeros is nothing.
#[repr(C)]
pub struct Footprints {
    /// Where the stack ends that the forms are of.
    end: usize,
    /// The epoch of the rules by which they were found.
    epoch: u64,
    /// Stacks that were known, and that were not, since it was last seen whether this is of use.
    hits: u32,
    misses: u32,
    /// Calls for which nothing is looked up, and how many they were the last time.
    pause: u32,
    last_pause: u32,
    /// Of the latest form, and of the latest that is forgotten.
    serial: u32,
    forgotten: u32,
    /// Of the latest form that there is no room for, in any set: it takes the place of one or the other.
    victim: u32,
    /// There are stacks in the table.
    knows_some: bool,
    /// The form that is being made, and the walk that it is made of: a thread's stack may have no room for them.
    draft: Form,
    links: [Link; MAX_DEPTH],
    forms: [[Form; WAYS]; SETS],
    /// Numbers of stacks, with the slot in the place of their lowest bits. 0 is none.
    stacks: [u64; STACKS],
}

impl core::fmt::Debug for Footprints {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Footprints").field("hits", &self.hits).field("misses", &self.misses).finish_non_exhaustive()
    }
}

impl Footprints {
    /// The slot of the stack of `caller`, if it is known.
    ///
    /// `state` and this are the calling thread's own.
    #[inline(always)]
    pub fn find(&mut self, state: &ThreadState, caller: Caller) -> Option<u32> {
        if self.pause > 0 {
            self.pause = self.pause.wrapping_sub(1);
            return None;
        }
        if state.native_end_above(caller.sp) != Some(self.end) || modules::epoch() != self.epoch {
            return None;
        }
        let [first, second] = self.forms.get(set_of(caller))?;
        // SAFETY: the stack ends where it did, and all of it is readable from the stack pointer on.
        let known = unsafe {
            let known = if self.is_known(first) && first.begins_with(caller) { self.slot(first.print()) } else { None };
            if known.is_none() && self.is_known(second) && second.begins_with(caller) {
                self.slot(second.print())
            } else {
                known
            }
        };
        self.hits = self.hits.wrapping_add(u32::from(known.is_some()));
        known
    }

    #[inline(always)]
    fn is_known(&self, form: &Form) -> bool {
        form.serial > self.forgotten
    }

    #[inline(always)]
    fn slot(&self, print: u64) -> Option<u32> {
        let [first, second] = places_of(print);
        let is_of_print = |known: &&u64| (**known ^ print) >> SLOT_BITS == 0;
        let known = self.stacks.get(first).filter(is_of_print).or_else(|| self.stacks.get(second).filter(is_of_print));
        known.map(|known| (known & ((1 << SLOT_BITS) - 1)) as u32)
    }

    /// Remembers the slot of the stack of `caller`, which was not found, and was captured by rules. Slot 0 is none.
    #[cold]
    #[inline(never)]
    pub fn learn(&mut self, state: &ThreadState, caller: Caller, slot: u32) {
        let (Some(end), Some(rules)) = (state.native_end_above(caller.sp), rules::table()) else { return };
        let epoch = modules::epoch();
        if (end, epoch) != (self.end, self.epoch) {
            self.forget();
            (self.end, self.epoch) = (end, epoch);
        }
        if slot == 0 || slot >> SLOT_BITS != 0 || self.pause > 0 || !self.is_of_use() {
            return;
        }
        let Some(()) = self.draw(caller, end, rules, epoch) else { return };
        let Some(form) = self.keep_draft() else { return };
        // SAFETY: the walk has just read there.
        let print = unsafe { form.print() };
        let [first, second] = places_of(print);
        let is_free = |at: &usize| self.stacks.get(*at).is_some_and(|&known| known == 0);
        let at = [first, second].into_iter().find(is_free).unwrap_or(first);
        if let Some(place) = self.stacks.get_mut(at) {
            *place = print >> SLOT_BITS << SLOT_BITS | u64::from(slot);
            self.knows_some = true;
        }
    }

    /// Forgets the stack of a slot, which gets another one.
    pub fn forget_slot(&mut self, slot: u32) {
        let is_of_slot = |known: &&mut u64| **known & ((1 << SLOT_BITS) - 1) == u64::from(slot);
        if self.knows_some {
            self.stacks.iter_mut().filter(is_of_slot).for_each(|known| *known = 0);
        }
    }

    /// Forgets everything: no number of a later form is that of one before.
    pub fn forget(&mut self) {
        (self.forgotten, self.knows_some) = (self.serial, false);
        (self.hits, self.misses, self.pause, self.last_pause) = (0, 0, 0, 0);
    }

    /// Counts a stack that was not known. Where most are not, nothing is looked up for a while: for longer each time.
    fn is_of_use(&mut self) -> bool {
        self.misses = self.misses.wrapping_add(1);
        if self.misses < WINDOW {
            return true;
        }
        let is = self.hits >= self.misses;
        let pause = self.last_pause.saturating_mul(2).clamp(*PAUSE.start(), *PAUSE.end());
        if !is {
            self.forget();
            (self.pause, self.last_pause) = (pause, pause);
        }
        (self.hits, self.misses) = (0, 0);
        is
    }

    /// Makes the draft the form of the stack of `caller`; `None` if it can't have one.
    fn draw(&mut self, caller: Caller, end: usize, rules: &Table, epoch: u64) -> Option<()> {
        let place = |address: usize| {
            let above = address.checked_sub(caller.sp).filter(|above| above.is_multiple_of(size_of::<u64>()))?;
            u16::try_from(above / size_of::<u64>()).ok()
        };
        let (mut at, mut depth) = (caller, 0usize);
        let mut hangs_on_fp = loop {
            let link = self.links.get_mut(depth)?;
            match step(at, end, rules, epoch) {
                Step::To { caller, fp_at, sp_at, by_fp } => {
                    let pc_at = place(pc_at(caller.sp, fp_at))?;
                    let if_read = |address: usize| if address == 0 { Some(None) } else { place(address).map(Some) };
                    *link = Link { pc_at, fp_at: if_read(fp_at)?, sp_at: if_read(sp_at)?, by_fp };
                    at = caller;
                }
                Step::End { by_fp } => break by_fp,
                Step::Past => break false,
                Step::Lost => return None,
            }
            depth = depth.wrapping_add(1);
        };
        let draft = &mut self.draft;
        (draft.caller, draft.len) = (caller, 0);
        // From the outermost frame inwards: whose frame pointer counts hangs on who uses it.
        for link in self.links.get(..depth)?.iter().rev() {
            draft.add(link.pc_at)?;
            if hangs_on_fp && let Some(fp_at) = link.fp_at {
                draft.add(fp_at)?;
                hangs_on_fp = false;
            }
            if let Some(sp_at) = link.sp_at {
                draft.add(sp_at)?;
            }
            hangs_on_fp |= link.by_fp;
        }
        draft.hangs_on_fp = hangs_on_fp;
        let last = draft.places().last().copied()?;
        while !draft.places().len().is_multiple_of(LANES) {
            draft.add(last)?;
        }
        Some(())
    }

    /// The form that is like the draft, made of it if there is none yet.
    fn keep_draft(&mut self) -> Option<&Form> {
        let forgotten = self.forgotten;
        let set = self.forms.get_mut(set_of(self.draft.caller))?;
        let known = set.iter().position(|form| form.serial > forgotten && form.is_like(&self.draft));
        let free = || set.iter().position(|form| form.serial <= forgotten);
        let at = known.or_else(free).unwrap_or(self.victim as usize % WAYS);
        let form = set.get_mut(at)?;
        if known.is_none() {
            (self.serial, self.victim) = (self.serial.wrapping_add(1), self.victim.wrapping_add(1));
            *form = Form { serial: self.serial, ..self.draft };
        }
        Some(form)
    }
}

impl Form {
    #[inline(always)]
    fn places(&self) -> &[u16] {
        self.places.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn add(&mut self, place: u16) -> Option<()> {
        *self.places.get_mut(usize::from(self.len))? = place;
        self.len = self.len.wrapping_add(1);
        Some(())
    }

    #[inline(always)]
    fn begins_with(&self, Caller { pc, sp, fp }: Caller) -> bool {
        self.caller.sp == sp && self.caller.pc == pc && (!self.hangs_on_fp || self.caller.fp == fp)
    }

    /// Whether it reads where another one does.
    fn is_like(&self, other: &Form) -> bool {
        self.begins_with(other.caller) && self.hangs_on_fp == other.hangs_on_fp && self.places() == other.places()
    }

    /// The number of the words that are there now.
    ///
    /// # Safety
    /// All its places are readable.
    #[inline(always)]
    unsafe fn print(&self) -> u64 {
        let words = self.caller.sp as *const u64;
        // SAFETY: the caller's promise; the stack pointer is aligned, as every captured one is.
        let word = |place: u16| unsafe { words.add(usize::from(place)).read() };
        let next = |lane: u64, place: u16| lane.wrapping_mul(FACTOR).wrapping_add(word(place));
        // Eight variables, since an array of them would lie in memory.
        let (mut a, mut b, mut c, mut d) = (0, 0, 0, u64::from(self.serial));
        let (mut e, mut f, mut g, mut h) = (0, 0, 0, 0);
        for some in self.places().as_chunks::<LANES>().0 {
            (a, b, c, d) = (next(a, some[0]), next(b, some[1]), next(c, some[2]), next(d, some[3]));
            (e, f, g, h) = (next(e, some[4]), next(f, some[5]), next(g, some[6]), next(h, some[7]));
        }
        let of = |lane: u64, factor: usize| lane.wrapping_mul(MIX[factor]);
        let one = of(a, 0).wrapping_add(of(b, 1)).wrapping_add(of(c, 2).wrapping_add(of(d, 3)));
        let other = of(e, 4).wrapping_add(of(f, 5)).wrapping_add(of(g, 6).wrapping_add(of(h, 7)));
        one.wrapping_add(other)
    }
}

/// Odd digits without a pattern: numbers with a factor each make a sum that tells which is which.
const MIX: [u64; LANES] = [
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
    0xff51_afd7_ed55_8ccd,
    0xc4ce_b9fe_1a85_ec53,
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
];

#[inline(always)]
fn set_of(caller: Caller) -> usize {
    let mixed = (caller.sp as u64 ^ (caller.pc as u64).rotate_left(32)).wrapping_mul(FACTOR);
    (mixed >> (u64::BITS - SETS.trailing_zeros())) as usize
}

/// Where a number may be: by its highest bits, and by those below.
#[inline(always)]
fn places_of(print: u64) -> [usize; 2] {
    let bits = STACKS.trailing_zeros();
    [(print >> (u64::BITS - bits)) as usize, (print >> (u64::BITS - 2 * bits)) as usize % STACKS]
}
