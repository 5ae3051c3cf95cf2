//! Labels: what a thread says that it is doing.

use crate::entry::{self, Entry};
use crate::sampler;

pub use crate::sampler::labels::{Call, Over};

/// The number of the label of this name, which is made if there is none. 0 if there are 64 others, the name is empty,
/// or a signal handler that interrupted the pool asks. Of a longer name the first 32 bytes count.
pub fn number(name: &[u8]) -> u32 {
    match entry::enter() {
        Entry::Heap(entered) => sampler::with_labels(entered.slow, |labels| labels.number(name)),
        _ => 0,
    }
}

/// Puts this thread under a label, or under none (0). The one that it was under.
pub fn set(label: u32) -> u32 {
    match entry::enter() {
        Entry::Heap(entered) => entered.heap.sampling.marks.set_label(label),
        _ => 0,
    }
}

/// Sets the limit of a label in bytes, and what is done when it is passed; 0 for none.
///
/// # Safety
/// A function in `over` may be called by any thread at any time, with what is given for it.
pub unsafe fn limit(label: u32, bytes: u64, over: Over) {
    if let Entry::Heap(entered) = entry::enter() {
        sampler::with_labels(entered.slow, |labels| labels.limit(label, bytes, over));
    }
}

/// Bytes in use of what was allocated under a label, estimated from samples unless every allocation is recorded.
pub fn in_use(label: u32) -> u64 {
    match entry::enter() {
        Entry::Heap(entered) => sampler::with_labels(entered.slow, |labels| labels.in_use(label)),
        _ => 0,
    }
}
