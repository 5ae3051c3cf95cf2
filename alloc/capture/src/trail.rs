//! The outer frames of a thread's stack, as they were at an earlier quick capture.
//!
//! A walk from one frame to the next waits for each return address before it knows where the next one lies. But where
//! each lies follows from those before it. So if the words that an earlier walk read are the same, and a walk comes to
//! a frame of that one with the same registers, it would go on as that one did; and to compare words at known places is
//! a matter of a nanosecond for several frames.
//!
//! Where the frames are others, they often lie at the same places all the same. So the trail also remembers for each
//! place on the stack how far the frame went that was there last. A walk compares that with what the rule says, and
//! goes on with what was remembered: the processor foresees that the two are equal, and reads the next frame before it
//! has found this one's rule.

use core::cell::Cell;

use crate::quick::{FACTOR, Step, pc_at, step};
use crate::rules::Table;
use crate::{Caller, MAX_DEPTH};

/// A frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) registers: Caller,
    /// Where its frame pointer was read; 0 if it is the inner frame's.
    fp_at: usize,
    /// Where its stack pointer was read; 0 if it follows from the inner frame's.
    sp_at: usize,
    /// What the outer frames are hangs on the frame pointer.
    needs_fp: bool,
    /// This frame and all outer ones, as digits of a number.
    pub(crate) hash: u64,
    /// What a number is multiplied by that these digits are appended to.
    pub(crate) power: u64,
}

impl Place {
    const NONE: Place =
        Place { registers: Caller { pc: 0, sp: 0, fp: 0 }, fp_at: 0, sp_at: 0, needs_fp: false, hash: 0, power: 1 };

    /// Whether a walk that has come to these registers goes on from here as the earlier one did.
    #[inline(always)]
    pub(crate) fn is_met_by(&self, at: Caller) -> bool {
        at.sp == self.registers.sp && at.pc == self.registers.pc && (!self.needs_fp || at.fp == self.registers.fp)
    }
}

/// A word that is to be the same.
#[derive(Clone, Copy, Debug)]
struct Check {
    address: usize,
    value: usize,
    /// Frames that are as they were if this and all checks before it hold.
    frames: usize,
}

/// The least and the most captures of which a trail may have little.
const PATIENCE: core::ops::RangeInclusive<u32> = 8..=512;

/// The most frames that a trail has. If the stack has more, they are the innermost ones: as long as those of a capture
/// are among them, it need not know where the stack ends.
const PLACES: usize = MAX_DEPTH + 64;

/// Places on the stack of which is remembered how far the frame went: a power of two.
const SPANS: usize = 64;

/// What is remembered of one thread's stack. All zeros is nothing.
#[repr(C)]
#[derive(Debug)]
pub struct Trail {
    /// Where the stack ends that it is of.
    end: usize,
    /// The epoch that its rules were of.
    epoch: u64,
    /// Captures that found less than half of their frames here, since it was made.
    strangers: u32,
    /// How many of them there may be.
    patience: u32,
    /// There were more frames than it has.
    is_cut: bool,
    places_len: usize,
    checks_len: usize,
    /// Where the frame ended that began at a place, by the lowest bits of the place.
    spans: [Cell<usize>; SPANS],
    /// The outermost frame first.
    places: [Place; PLACES],
    /// Their return addresses, the outermost frame last.
    addresses: [u64; PLACES],
    /// Of the outermost frame first, and so from the highest address down.
    checks: [Check; 3 * PLACES + 1],
}

impl Trail {
    /// Whether it is of another stack, of other modules, or has been of little use.
    #[inline(always)]
    pub(crate) fn is_due(&self, end: usize, epoch: u64) -> bool {
        self.strangers >= self.patience || self.end != end || self.epoch != epoch
    }

    /// Whether its outermost frame is not the stack's.
    #[inline(always)]
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Notes of how much use it was.
    #[inline(always)]
    pub(crate) fn note(&mut self, on_trail: usize, depth: usize) {
        self.strangers = self.strangers.wrapping_add(u32::from(on_trail < depth / 2));
    }

    /// The outermost `count` frames, the outermost first.
    #[inline(always)]
    pub(crate) fn places(&self, count: usize) -> &[Place] {
        self.places.get(..count).unwrap_or_default()
    }

    /// The return addresses of the outermost `count` frames, the outermost last.
    #[inline(always)]
    pub(crate) fn addresses(&self, count: usize) -> &[u64] {
        self.addresses.get(PLACES.wrapping_sub(count)..).unwrap_or_default()
    }

    /// The number of outer frames that are as they were, on a stack that is in use from `sp` on. What is not as it was
    /// is forgotten: a walk that ends at the same frame as the one before is one that the processor foresees.
    #[inline(always)]
    pub(crate) fn still_there(&mut self, sp: usize) -> usize {
        let mut checks = self.checks.get(..self.checks_len).unwrap_or_default();
        while let [outer @ .., check] = checks
            && check.address < sp
        {
            checks = outer;
        }
        // SAFETY: `lay` read the word, below the end of this stack, and all of it from `sp` up to there is readable.
        let differs = |check: &Check| unsafe { (check.address as *const usize).read_unaligned() } != check.value;
        let mut same = checks.len();
        if let Some(first) = checks.iter().position(differs) {
            same = first;
            self.checks_len = first;
        }
        self.checks.get(same.wrapping_sub(1)).map_or(0, |check| check.frames)
    }

    /// `end`, where a frame ends that begins at `sp`. If the one before did so as well, what depends on it does not
    /// wait for `end`.
    #[inline(always)]
    pub(crate) fn foresee(&self, sp: usize, end: usize) -> usize {
        let Some(span) = self.spans.get(sp / size_of::<usize>() % SPANS) else { return end };
        if span.get() == end {
            return read_anew(span);
        }
        span.set(end);
        end
    }

    /// Remembers the stack of `caller`; nothing if a quick capture can't walk it.
    #[cold]
    #[inline(never)]
    pub(crate) fn lay(&mut self, caller: Caller, end: usize, rules: &Table, epoch: u64) {
        let is_same = self.end == end && self.epoch == epoch;
        let patience = if is_same { self.patience.saturating_mul(2) } else { 0 };
        self.patience = patience.clamp(*PATIENCE.start(), *PATIENCE.end());
        (self.end, self.epoch, self.strangers) = (end, epoch, 0);
        (self.places_len, self.checks_len) = (0, 0);
        self.is_cut = false;
        let Some((depth, past)) = self.walk(caller, end, rules, epoch) else { return };
        let Some(places) = self.places.get_mut(..depth) else { return };
        places.reverse();
        self.places_len = depth;
        if past != 0 {
            // What ended the walk is a word, too.
            self.check(past, 0, 0);
        }
        self.link();
    }

    /// Notes the frames from `caller` on, innermost first, as far as there is room: how many there are, and where the 0
    /// lies that ended the walk, if one did.
    fn walk(&mut self, caller: Caller, end: usize, rules: &Table, epoch: u64) -> Option<(usize, usize)> {
        let (mut at, mut fp_at, mut sp_at) = (caller, 0, 0);
        for depth in 0..PLACES {
            let place = self.places.get_mut(depth)?;
            let next = step(at, end, rules, epoch);
            *place = Place { registers: at, fp_at, sp_at, ..Place::NONE };
            (at, fp_at, sp_at) = match next {
                Step::To { caller, fp_at, sp_at, by_fp } => {
                    place.needs_fp = by_fp;
                    (caller, fp_at, sp_at)
                }
                Step::End { by_fp } => {
                    place.needs_fp = by_fp;
                    return Some((depth.wrapping_add(1), 0));
                }
                // Not where one more word says where it lies.
                Step::Past => return (sp_at == 0).then(|| (depth, pc_at(at.sp, fp_at))),
                Step::Lost => {
                    // No capture has come so far, and learned what there is.
                    self.is_cut = depth >= MAX_DEPTH;
                    return self.is_cut.then_some((depth, 0));
                }
            };
        }
        self.is_cut = true;
        Some((PLACES, 0))
    }

    /// Adds up hashes, and says what has to be the same, from the outermost frame inwards.
    fn link(&mut self) {
        let mut outer = Place::NONE;
        for index in 0..self.places_len {
            let Some(place) = self.places.get_mut(index) else { return };
            // A frame that leaves the frame pointer as it is needs it if its caller does.
            place.needs_fp |= outer.needs_fp && outer.fp_at == 0;
            place.hash = (place.registers.pc as u64).wrapping_mul(outer.power).wrapping_add(outer.hash);
            place.power = outer.power.wrapping_mul(FACTOR);
            outer = *place;
            if let Some(address) = self.addresses.get_mut(PLACES.wrapping_sub(index).wrapping_sub(1)) {
                *address = outer.registers.pc as u64;
            }
            // From the highest address down.
            let reads_fp = outer.needs_fp && outer.fp_at != 0;
            self.check(pc_at(outer.registers.sp, outer.fp_at), outer.registers.pc, index);
            if reads_fp {
                self.check(outer.fp_at, outer.registers.fp, index);
            }
            if outer.sp_at != 0 {
                self.check(outer.sp_at, outer.registers.sp, index);
            }
            // With the last of them, the frame is as it was.
            if let Some(last) = self.checks.get_mut(self.checks_len.wrapping_sub(1)) {
                last.frames = index.wrapping_add(1);
            }
        }
    }

    fn check(&mut self, address: usize, value: usize, frames: usize) {
        if let Some(place) = self.checks.get_mut(self.checks_len) {
            *place = Check { address, value, frames };
            self.checks_len = self.checks_len.wrapping_add(1);
        }
    }
}

/// The hash of the [`MAX_DEPTH`] innermost frames of a stack: those that were walked, of which this is the hash, and the
/// innermost of `outer`. `None` if those are too few.
#[cold]
#[inline(never)]
pub(crate) fn hash_of_deep(hash: u64, walked: usize, outer: &[Place]) -> Option<u64> {
    // What so many outermost frames are as digits, and what a number is multiplied by that they are appended to.
    let digits = |count: usize| match count.checked_sub(1) {
        None => Some((0, 1)),
        Some(at) => outer.get(at).map(|place| (place.hash, place.power)),
    };
    let too_many = walked.wrapping_add(outer.len()).checked_sub(MAX_DEPTH)?;
    let ((all, _), (left_out, power)) = (digits(outer.len())?, digits(too_many)?);
    let (_, of_taken) = digits(MAX_DEPTH.checked_sub(walked)?)?;
    let taken = all.wrapping_sub(left_out).wrapping_mul(inverse(power));
    Some(hash.wrapping_mul(of_taken).wrapping_add(taken))
}

/// What an odd number is multiplied by for 1: by Newton's method, of which each step doubles the bits that are right.
fn inverse(odd: u64) -> u64 {
    // Three bits of an odd number are its own inverse.
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}

/// What is in a cell. The compiler does not know that it has just compared the value with another one, whose place it
/// could take.
#[inline(always)]
fn read_anew(cell: &Cell<usize>) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let value;
        // SAFETY: one load, of a word that can be read.
        unsafe {
            core::arch::asm!("mov {}, [{}]", out(reg) value, in(reg) cell.as_ptr(),
                options(pure, readonly, nostack, preserves_flags));
        }
        value
    }
    #[cfg(not(target_arch = "x86_64"))]
    cell.get()
}
