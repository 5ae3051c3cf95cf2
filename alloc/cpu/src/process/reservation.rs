//! What the pool has reserved and not used, given back.

use crate::entry::{self, Entry, capture};
use crate::hardened;
use crate::pages::page_heap;
use crate::sampler;

/// To be called before the process limits its address space to `limit` bytes (`RLIMIT_AS`): gives back what the pool
/// has reserved and not used, so that the limit leaves room for the program's own mappings.
pub fn fit(limit: usize) {
    if let Entry::Heap(entered) = entry::enter() {
        capture::fit(entered.heap, limit);
        page_heap::fit_reservation(entered.slow, limit);
        sampler::fit(entered.slow, limit);
        hardened::fit(entered.slow, limit);
    }
}
