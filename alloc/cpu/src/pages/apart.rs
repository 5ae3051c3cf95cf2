//! Blocks in use that have mappings of their own, outside of the arenas: those between guards, of the hardened mode.
//!
//! In the figures they are large blocks. Their addresses count as handed out until the mapping goes, and as in use
//! until the block is freed. A census asks the kernel what of them has memory; so it has to know where they lie.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::kernel::os;
use crate::segment::counters::{self, TierCounter};

/// Places for mappings: twice as many as there may be at a time.
const PLACES: usize = 8192;

struct Place {
    /// The first byte that may be touched; 0 if the place is free.
    from: AtomicUsize,
    len: AtomicUsize,
}

/// [`PLACES`] of them in memory of their own, which is there from the first such block on: most programs have none.
static TABLE: AtomicPtr<Place> = AtomicPtr::new(null_mut());
static EVER: AtomicBool = AtomicBool::new(false);

/// All places; none before the first block.
fn table() -> &'static [Place] {
    let first = TABLE.load(Ordering::Acquire);
    if first.is_null() {
        return &[];
    }
    // SAFETY: `make_table` alone writes the pointer: to so many places, which are never unmapped.
    unsafe { core::slice::from_raw_parts(first, PLACES) }
}

/// Sees to it that there are places. Without memory for them there are none, and a census sees less.
fn make_table() {
    if !TABLE.load(Ordering::Relaxed).is_null() {
        return;
    }
    let len = PLACES * size_of::<Place>();
    let made = os::map(len);
    if made.is_null() {
        return;
    }
    // New memory is zeroed: every place is free.
    if TABLE.compare_exchange(null_mut(), made.cast(), Ordering::Release, Ordering::Relaxed).is_err() {
        // SAFETY: mapped above; another thread was first, and nobody has seen this one's.
        unsafe { os::unmap(made, len) };
    }
}

/// The places in the order in which those of an address are looked for.
fn places(from: usize) -> impl Iterator<Item = &'static Place> {
    let hash = (from as u64 >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let table = table();
    (0..table.len()).map(move |at| &table[(hash as usize + at) % table.len()])
}

/// Counts a new block of `len` bytes from `from` on, in a mapping of `mapped` bytes.
pub fn begin(from: usize, len: usize, mapped: usize) {
    EVER.store(true, Ordering::Relaxed);
    make_table();
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
    // A block of no bytes has no place, and would be looked for in all of them.
    if len > 0
        && let Some(place) = places(from).find(|place| place.from.load(Ordering::Relaxed) == from)
    {
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
    for place in table() {
        let from = place.from.load(Ordering::Acquire);
        if from != 0 {
            f(from, place.len.load(Ordering::Acquire));
        }
    }
}
