//! A capture by rules alone: for the stack of every allocation.
//!
//! It walks the thread's own stack, whose bounds are known, and reads nothing but return addresses and saved frame
//! pointers between the stack pointer and the stack's end. At anything else (an address without a rule, another stack,
//! a signal's frame) it gives up, and the caller captures as usual.
//!
//! A rule is believed until a module is known to have replaced another. A library that was unloaded and replaced by
//! another at the same address is noticed by a usual capture, of which there must be one now and then.
//!
//! The outer frames of a stack are mostly those of the stack before. A [`Trail`] remembers where their words lay and
//! what they were: as long as they are the same, the walk ends where it meets them. Inner frames of other functions
//! often lie where others lay before, and the trail foresees that.
//!
//! Of a deep stack the innermost frames are found, as many as there may be.

use crate::frame::{return_address, unsigned};
use crate::modules;
use crate::rules::{self, Base, Rule, Short, Table, word};
use crate::stack::ThreadState;
use crate::trail::{self, Place, Trail};
use crate::{Caller, Captured, MAX_DEPTH};

/// What a quick capture found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Return addresses.
    pub depth: usize,
    /// [`hash`] of them.
    pub hash: u64,
    /// There were more than [`MAX_DEPTH`].
    truncated: bool,
    /// Those that were walked, the innermost ones.
    walked: usize,
    /// How many outermost frames of the trail begin with the next one.
    on_trail: usize,
}

impl Found {
    /// The same as any capture says it.
    #[inline(always)]
    pub fn captured(&self) -> Captured {
        Captured { depth: self.depth, truncated: self.truncated, incomplete: false }
    }

    /// Frames that did not have to be walked.
    pub(crate) fn taken(&self) -> usize {
        self.depth.wrapping_sub(self.walked)
    }
}

/// The stack of `caller`, as far as it is not on the trail, written to `frames`: return addresses, innermost first. If
/// that takes more than this can do, the address at which it gave up: nothing is waited for, allocated or asked of the
/// kernel. A usual [`capture`](crate::capture) of the same stack learns what is missing.
///
/// `state` and `trail` are the calling thread's own; `state` has captured before.
#[inline(always)]
pub fn capture_quickly(
    state: &ThreadState,
    caller: Caller,
    trail: &mut Trail,
    frames: &mut [u64; MAX_DEPTH],
) -> Result<Found, usize> {
    let end = state.native_end_above(caller.sp).ok_or(0usize)?;
    let (rules, epoch) = (rules::table().ok_or(caller.pc)?, modules::epoch());
    if trail.is_due(end, epoch) {
        trail.lay(caller, end, rules, epoch);
    }
    let found = walk(caller, end, rules, epoch, trail, frames)?;
    trail.note(found.on_trail, found.depth);
    Ok(found)
}

/// Writes the frames that are on the trail to `frames` as well. Nothing was captured since.
pub fn complete(found: Found, trail: &Trail, frames: &mut [u64; MAX_DEPTH]) {
    let outer = trail.addresses(found.on_trail);
    if let (Some(to), Some(outer)) = (frames.get_mut(found.walked..found.depth), outer.get(..found.taken())) {
        to.copy_from_slice(outer);
    }
}

/// The hash of a stack: what [`capture_quickly`] says of the same frames. Its highest bits are mixed best.
pub fn hash(frames: &[u64]) -> u64 {
    frames.iter().fold(SEED, |hash, &frame| hash.wrapping_mul(FACTOR).wrapping_add(frame))
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;
/// Frames are the digits of a number to this base, so that the outer ones are a number that is known.
pub(crate) const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// From a frame to its caller.
pub(crate) enum Step {
    /// To the caller.
    To {
        /// Where it goes on.
        caller: Caller,
        /// Where its frame pointer was read; 0 if it was still in its register.
        fp_at: usize,
        /// Where its stack pointer was read; 0 if that follows from the frame's.
        sp_at: usize,
        /// It was found by the frame pointer.
        by_fp: bool,
    },
    /// The frame is the outermost one.
    End {
        /// The frame pointer said so.
        by_fp: bool,
    },
    /// There is no frame: the one before was the outermost.
    Past,
    /// There is no rule, or it leads out of the stack.
    Lost,
}

/// One step, on a stack that is readable from `at.sp` up to `end`.
#[inline(always)]
pub(crate) fn step(at: Caller, end: usize, rules: &Table, epoch: u64) -> Step {
    step_by::<true>(rules.find_word(at.pc, epoch), at, end, |next| next)
}

/// The same, by a rule's word. `foresee` is asked where the caller's stack pointer is that a frame's length leads to:
/// it gives the same back. A frame pointer that points into its frame is `WITHIN`; on AArch64 it always may.
#[inline(always)]
pub(crate) fn step_by<const WITHIN: bool>(
    rule: u64,
    at: Caller,
    end: usize,
    foresee: impl FnOnce(usize) -> usize,
) -> Step {
    let Caller { pc, sp, fp } = at;
    let rule = rule & !word::STAYS;
    if rule == word::USUAL_FP {
        // The last place that its two words may lie at.
        if fp < sp || fp > end.wrapping_sub(16) {
            return if fp == 0 { Step::End { by_fp: true } } else { Step::Lost };
        }
        let next = fp.wrapping_add(16);
        // SAFETY: between the stack pointer and the end of the thread's own stack, all of which is readable.
        let caller = unsafe { Caller { pc: unsigned(word_at(next.wrapping_sub(8))), sp: next, fp: word_at(fp) } };
        return Step::To { caller, fp_at: fp, sp_at: 0, by_fp: true };
    }
    if let Some(Short { frame, saved }) = Short::of(rule) {
        let next = sp.wrapping_add(usize::from(frame) * 8);
        if next > end {
            return Step::Lost;
        }
        let next = foresee(next);
        if saved == 0 && !cfg!(target_arch = "x86_64") {
            return Step::Lost;
        }
        // SAFETY: as above; a frame has at least the word below its end. Short rules have `2 <= saved <= frame`, if any.
        let pc = unsafe { unsigned(word_at(return_address(next, usize::from(saved) * 8))) };
        if saved == 0 {
            return Step::To { caller: Caller { pc, sp: next, fp }, fp_at: 0, sp_at: 0, by_fp: false };
        }
        let fp_at = next.wrapping_sub(usize::from(saved) * 8);
        // SAFETY: as above; short rules have `2 <= saved <= frame`.
        let fp = unsafe { word_at(fp_at) };
        return Step::To { caller: Caller { pc, sp: next, fp }, fp_at, sp_at: 0, by_fp: false };
    }
    match rule {
        word::END => Step::End { by_fp: false },
        _ if pc == 0 => Step::Past,
        _ if WITHIN || !cfg!(target_arch = "x86_64") => step_by_fp(rule, sp, fp, end),
        _ => Step::Lost,
    }
}

/// A step by a frame pointer that does not point at the end of its frame, as AArch64's compilers have it, and libffi's
/// calls, or in a function that aligns its stack. Registers come one by one: a structure would have to lie in memory at
/// each step.
#[cold]
#[inline(never)]
fn step_by_fp(rule: u64, sp: usize, fp: usize, end: usize) -> Step {
    let (cfa, saved) = match Rule::from_word(rule) {
        Rule::Offset { base: Base::Fp, cfa, fp: saved @ 16.. } => (cfa, saved),
        Rule::Realigned { below } => return step_realigned(below, sp, fp, end),
        _ => return Step::Lost,
    };
    let next = fp.wrapping_add(cfa as usize);
    let fp_at = next.wrapping_sub(saved as usize);
    if fp < sp || fp > next || next > end || fp_at < sp || fp_at > next.wrapping_sub(16) || fp_at & 7 != 0 {
        return Step::Lost;
    }
    // SAFETY: both words lie between the stack pointer and the end of the thread's own stack, all of which is readable.
    let (pc, fp) = unsafe { (unsigned(word_at(return_address(next, saved as usize))), word_at(fp_at)) };
    Step::To { caller: Caller { pc, sp: next, fp }, fp_at, sp_at: 0, by_fp: true }
}

/// A step out of a frame that keeps its CFA in a word `below` the frame pointer.
fn step_realigned(below: u32, sp: usize, fp: usize, end: usize) -> Step {
    let sp_at = fp.wrapping_sub(below as usize);
    if sp_at < sp || sp_at > fp || fp > end.wrapping_sub(16) || (sp_at | fp) & 7 != 0 {
        return Step::Lost;
    }
    // SAFETY: between the stack pointer and the end of the thread's own stack, all of which is readable.
    let next = unsafe { word_at(sp_at) };
    // Its return address lies above what the frame pointer points to.
    if next < fp.wrapping_add(16) || next > end || next & 7 != 0 {
        return Step::Lost;
    }
    // SAFETY: as above, both.
    let (pc, saved) = unsafe { (unsigned(word_at(next.wrapping_sub(8))), word_at(fp)) };
    Step::To { caller: Caller { pc, sp: next, fp: saved }, fp_at: fp, sp_at, by_fp: true }
}

/// Where the return address was read that led to a frame which begins at `sp`, and whose frame pointer was read at
/// `fp_at`.
#[inline(always)]
pub(crate) const fn pc_at(sp: usize, fp_at: usize) -> usize {
    return_address(sp, sp.wrapping_sub(fp_at))
}

/// # Safety
/// There is a word.
#[inline(always)]
unsafe fn word_at(address: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (address as *const usize).read_unaligned() }
}

#[inline(always)]
fn walk(
    caller: Caller,
    end: usize,
    rules: &Table,
    epoch: u64,
    trail: &mut Trail,
    frames: &mut [u64; MAX_DEPTH],
) -> Result<Found, usize> {
    let still_there = trail.still_there(caller.sp);
    let mut outer = trail.places(still_there);
    let mut meets_at = outer.last().map_or(usize::MAX, |place| place.registers.sp);
    let (mut at, mut depth, mut hash) = (caller, 0usize, SEED);
    loop {
        if at.sp >= meets_at {
            outer = trail_from(outer, at);
            if let Some(place) = outer.last().filter(|place| place.is_met_by(at)) {
                let (walked, on_trail) = (depth, outer.len());
                depth = walked.wrapping_add(on_trail);
                if depth <= MAX_DEPTH && !trail.is_cut() {
                    let hash = hash.wrapping_mul(place.power).wrapping_add(place.hash);
                    return Ok(Found { depth, hash, truncated: false, walked, on_trail });
                }
                if let Some(hash) = trail::hash_of_deep(hash, walked, outer) {
                    return Ok(Found { depth: MAX_DEPTH, hash, truncated: true, walked, on_trail });
                }
                // What the trail has ends before there are enough: nothing of it is met any more.
                (depth, outer) = (walked, &[]);
            }
            meets_at = outer.last().map_or(usize::MAX, |place| place.registers.sp);
        }
        let Some(frame) = frames.get_mut(depth) else {
            return Ok(Found { depth, hash, truncated: true, walked: depth, on_trail: 0 });
        };
        *frame = at.pc as u64;
        let next = step_by::<true>(rules.find_word(at.pc, epoch), at, end, |next| trail.foresee(at.sp, next));
        if let Step::To { .. } | Step::End { .. } = next {
            hash = hash.wrapping_mul(FACTOR).wrapping_add(at.pc as u64);
            depth = depth.wrapping_add(1);
        }
        at = match next {
            Step::To { caller, .. } => caller,
            Step::End { .. } | Step::Past => {
                return Ok(Found { depth, hash, truncated: false, walked: depth, on_trail: 0 });
            }
            Step::Lost => return Err(at.pc),
        };
    }
}

/// The places of `outer` that may still be met.
#[inline(always)]
fn trail_from(mut outer: &[Place], at: Caller) -> &[Place] {
    while let [rest @ .., place] = outer
        && (place.registers.sp < at.sp || place.registers.sp == at.sp && !place.is_met_by(at))
    {
        outer = rest;
    }
    outer
}
