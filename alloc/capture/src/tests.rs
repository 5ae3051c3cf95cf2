use crate::{Captured, MAX_DEPTH, ThreadState, capture};
use std::hint::black_box;
use std::prelude::v1::*;

mod chains;
mod replaced;
mod unknown_code;

/// The stack as [`capture`] sees it from its caller.
#[inline(never)]
fn here() -> (Captured, Vec<u64>) {
    here_with(&mut ThreadState::new())
}

#[inline(never)]
fn here_with(state: &mut ThreadState) -> (Captured, Vec<u64>) {
    let mut frames = [0; MAX_DEPTH];
    let captured = capture(state, &mut frames);
    black_box(&frames);
    (captured, frames[..captured.depth].to_vec())
}

/// The names of the functions that the addresses lie in.
fn names(frames: &[u64]) -> Vec<String> {
    let mut names = Vec::new();
    for frame in frames {
        let mut name = String::new();
        backtrace::resolve((*frame - 1) as *mut _, |symbol| {
            if let Some(found) = symbol.name() {
                name = found.to_string();
            }
        });
        names.push(name);
    }
    names
}
