//! Blocks in use that have mappings of their own, outside of the arenas: those between guards, of the hardened mode.
//!
//! In the figures they are large blocks. Their addresses count as handed out until the mapping goes, and as in use
//! until the block is freed. A census asks the kernel what of them has memory; so it has to know where they lie.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::segment::counters::{self, TierCounter};

/// Places for mappings: twice as many as there may be at a time.
const PLACES: usize = 8192;

struct Place {
    /// The first byte that may be touched; 0 if the place is free.
    from: AtomicUsize,
    len: AtomicUsize,
}

static TABLE: [Place; PLACES] = [const { Place { from: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; PLACES];
static EVER: AtomicBool = AtomicBool::new(false);

/// The places in the order in which those of an address are looked for.
fn places(from: usize) -> impl Iterator<Item = &'static Place> {
    let hash = (from as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PLACES).map(move |at| &TABLE[(hash as usize + at) % PLACES])
}

/// Counts a new block of `len` bytes from `from` on, in a mapping of `mapped` bytes.
pub fn begin(from: usize, len: usize, mapped: usize) {
    EVER.store(true, Ordering::Relaxed);
    counters::add(TierCounter::SystemReserved, mapped as u64);
    counters::add(TierCounter::SystemUsed, len as u64);
    counters::add(TierCounter::LargeBytes, len as u64);
    counters::add(TierCounter::LargeObjects, 1);
    counters::add(TierCounter::LargeAllocs, 1);
    let takes = |place: &&Place| place.from.compare_exchange(0, from, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if len > 0
        && let Some(place) = places(from).find(takes)
    {
        place.len.store(len, Ordering::Release);
    }
}

/// Counts that the block is the program's no more. Nothing of it has memory from now on.
pub fn end(from: usize, len: usize) {
    if let Some(place) = places(from).find(|place| len > 0 && place.from.load(Ordering::Relaxed) == from) {
        place.len.store(0, Ordering::Relaxed);
        place.from.store(0, Ordering::Release);
    }
    counters::sub(TierCounter::LargeBytes, len as u64);
    counters::sub(TierCounter::LargeObjects, 1);
    counters::add(TierCounter::LargeFrees, 1);
}

/// Counts that its addresses are gone.
pub fn unmapped(len: usize, mapped: usize) {
    counters::sub(TierCounter::SystemUsed, len as u64);
    counters::sub(TierCounter::SystemReserved, mapped as u64);
}

/// Whether there ever was one.
pub fn is_used() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// Calls `f` with the first byte and the length of each. One that ends meanwhile may be unmapped by then.
pub fn for_each(mut f: impl FnMut(usize, usize)) {
    for place in &TABLE {
        let from = place.from.load(Ordering::Acquire);
        if from != 0 {
            f(from, place.len.load(Ordering::Acquire));
        }
    }
}
