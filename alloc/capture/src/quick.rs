//! A capture by rules alone: for the stack of every allocation.
//!
//! It walks the thread's own stack, whose bounds are known, and reads nothing but return addresses and saved frame
//! pointers between the stack pointer and the stack's end. At anything else (an address without a rule, another stack,
//! a signal's frame) it gives up, and the caller captures as usual.
//!
//! A rule is believed as long as the list of modules stays the same. A library that was unloaded and replaced by another
//! at the same address is noticed by a usual capture, of which there must be one now and then.

use crate::modules::{self, Confirmed};
use crate::quick_rules::{self as rules, Rule};
use crate::stack::ThreadState;
use crate::{MAX_DEPTH, caches};

/// Return addresses of the calling thread, innermost first, written to `frames`, and a hash of them. The first one lies in
/// the caller. If that takes more than this can do, the address at which it gave up: nothing is waited for, allocated or
/// asked of the kernel.
///
/// `state` is the calling thread's own, and has captured before.
#[inline(always)]
pub fn capture_quickly(state: &ThreadState, frames: &mut [u64; MAX_DEPTH]) -> Result<(usize, u64), usize> {
    let mut found = Found { depth: 0, hash: 0 };
    // SAFETY: all three are valid for the call.
    unsafe { capture_at_call(state, frames, &mut found) };
    if found.depth > 0 { Ok((found.depth, found.hash)) } else { Err(found.hash as usize) }
}

/// The hash of a stack: what [`capture_quickly`] says of the same frames.
pub fn hash(frames: &[u64]) -> u64 {
    finish(frames.iter().fold(SEED, |hash, &frame| mix(hash, rules::spread(frame as usize))))
}

#[repr(C)]
struct Found {
    /// 0 if the capture gave up.
    depth: usize,
    /// Then, the address at which it did.
    hash: u64,
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;

#[inline(always)]
fn mix(hash: u64, spread: u64) -> u64 {
    hash.rotate_left(7).wrapping_add(spread)
}

#[inline(always)]
fn finish(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "sysv64" fn capture_at_call(state: &ThreadState, frames: &mut [u64; MAX_DEPTH], found: &mut Found) {
    core::arch::naked_asm!(
        "mov rcx, [rsp]",
        "lea r8, [rsp + 8]",
        "mov r9, rbp",
        "jmp {walk}",
        walk = sym walk,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn capture_at_call(state: &ThreadState, frames: &mut [u64; MAX_DEPTH], found: &mut Found) {
    core::arch::naked_asm!(
        "mov x3, x30",
        "mov x4, sp",
        "mov x5, x29",
        "b {walk}",
        walk = sym walk,
    )
}

macro_rules! walk {
    ($abi:literal) => {
        extern $abi fn walk(
            state: &ThreadState,
            frames: &mut [u64; MAX_DEPTH],
            found: &mut Found,
            mut pc: usize,
            mut sp: usize,
            mut fp: usize,
        ) {
            let Some(end) = state.native_end_above(sp) else { return };
            let generation = modules::generation();
            let (mut depth, mut hash) = (0, SEED);
            // The last place that a frame's two words may lie at.
            let last = end.wrapping_sub(16);
            loop {
                let Some(frame) = frames.get_mut(depth) else { return };
                *frame = pc as u64;
                depth = depth.wrapping_add(1);
                let spread = rules::spread(pc);
                let Some(rule) = rules::find(pc, spread, generation) else {
                    // The outermost frame returns to nowhere.
                    if pc == 0 {
                        depth = depth.wrapping_sub(1);
                        break;
                    }
                    found.hash = pc as u64;
                    return;
                };
                hash = mix(hash, spread);
                let next = match rule {
                    Rule::Fp => {
                        if fp < sp || fp > last {
                            if fp == 0 {
                                break;
                            }
                            return;
                        }
                        let next = fp.wrapping_add(16);
                        // SAFETY: between the stack pointer and the end of the thread's own stack, all of which is readable
                        // (`ThreadState`).
                        fp = unsafe { (fp as *const usize).read_unaligned() };
                        next
                    }
                    Rule::Sp { frame } | Rule::SpSaved { frame, .. } => {
                        let next = sp.wrapping_add(usize::from(frame) * 8);
                        if next > end {
                            return;
                        }
                        if let Rule::SpSaved { fp: saved, .. } = rule {
                            // SAFETY: rules have `2 <= saved <= frame`; else as above.
                            fp = unsafe {
                                (next.wrapping_sub(usize::from(saved) * 8) as *const usize).read_unaligned()
                            };
                        }
                        next
                    }
                    Rule::End => break,
                };
                // SAFETY: as above; a frame has at least this word.
                pc = unsafe { (next.wrapping_sub(8) as *const usize).read_unaligned() };
                sp = next;
            }
            let hash = finish(hash);
            *found = Found { depth, hash };
        }
    };
}

#[cfg(target_arch = "x86_64")]
walk!("sysv64");
#[cfg(target_arch = "aarch64")]
walk!("C");

/// Learns the rules of all frames of a stack that was just captured, of those that have none, and of `missing`, where a
/// quick capture gave up. May allocate, as a capture may.
#[inline(never)]
pub fn learn(state: &mut ThreadState, frames: &[u64], missing: usize) {
    let here = 0u8;
    if !state.has_room(&raw const here as usize, true) {
        return;
    }
    let mut confirmed = Confirmed::new();
    let Some(mut taken) = caches::take(&mut state.cache) else { return };
    for pc in frames.iter().map(|&pc| pc as usize).chain([missing]) {
        if rules::find(pc, rules::spread(pc), modules::generation()).is_some() {
            continue;
        }
        let Some(module) = modules::find(pc.wrapping_sub(1), &mut confirmed) else { continue };
        let (Some(unwinder), Some(cache)) = (module.unwinder, taken.cache()) else { continue };
        if crate::walk::is_signal_return(&module, pc) {
            continue;
        }
        if let Some(rule) = Rule::of(unwinder.rule(pc, cache)) {
            rules::keep(pc, modules::generation(), rule);
        }
    }
}
