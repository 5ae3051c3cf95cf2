//! What a program says of the CPython that it has.

use crate::entry::{self, Entry};
use crate::python;

pub use crate::python::Symbols;

/// Says that the program has CPython: from now on stacks have the functions that it runs, if its structures are known.
///
/// # Safety
/// The symbols are those of one CPython, which is loaded and stays. Only the calling thread has allocated so far.
pub unsafe fn begin(symbols: Symbols) {
    // SAFETY: the caller's promise.
    unsafe { python::begin(symbols) };
    if let Entry::Heap(entered) = entry::enter() {
        entered.heap.sampling.marks.begin(python::is_there());
    }
}
