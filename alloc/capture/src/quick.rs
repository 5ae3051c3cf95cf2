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
    frames.iter().fold(SEED, |hash, &frame| mix(hash, frame))
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
fn mix(hash: u64, frame: u64) -> u64 {
    (hash.rotate_left(5) ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
            loop {
                let Some(frame) = frames.get_mut(depth) else { return };
                *frame = pc as u64;
                depth = depth.wrapping_add(1);
                hash = mix(hash, pc as u64);
                let Some(rule) = rules::find(pc, generation) else {
                    found.hash = pc as u64;
                    return;
                };
                let next = match rule {
                    Rule::Fp => {
                        if fp == 0 {
                            break;
                        }
                        if fp < sp || fp >= end || fp & 7 != 0 {
                            return;
                        }
                        let next = fp.wrapping_add(16);
                        if next > end {
                            return;
                        }
                        // SAFETY: aligned, and between the stack pointer and the end of the thread's own stack, which is
                        // readable (`ThreadState`).
                        fp = unsafe { (fp as *const usize).read_volatile() };
                        next
                    }
                    Rule::Sp { frame } | Rule::SpSaved { frame, .. } => {
                        let next = sp.wrapping_add(usize::from(frame) * 8);
                        if next > end || next <= sp {
                            return;
                        }
                        if let Rule::SpSaved { fp: saved, .. } = rule {
                            // SAFETY: rules have `2 <= saved <= frame`; else as above.
                            fp = unsafe { (next.wrapping_sub(usize::from(saved) * 8) as *const usize).read_volatile() };
                        }
                        next
                    }
                    Rule::End => break,
                };
                // SAFETY: as above; a frame has at least this word, and `next` is a multiple of 8 as `sp` is.
                pc = unsafe { (next.wrapping_sub(8) as *const usize).read_volatile() };
                if pc == 0 {
                    break;
                }
                sp = next;
            }
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
        if rules::find(pc, modules::generation()).is_some() {
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
