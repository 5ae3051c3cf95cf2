//! A leak on purpose, as proof that a search finds one.

use core::hint::black_box;

use crate::calls::malloc::malloc;

/// Loses a block of so many bytes. Nothing of its address is left where a search looks: what is below the caller's
/// frame counts for nothing.
#[inline(never)]
pub fn plant(bytes: usize) {
    black_box(malloc(bytes));
}
