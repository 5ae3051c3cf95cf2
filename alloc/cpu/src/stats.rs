//! Process-wide counters. Kept in private memory; the segment gets a copy when the page heap is used.

use core::sync::atomic::{AtomicU64, Ordering};

pub use poolscope_wire::TierCounter;
use poolscope_wire::{TIER_COUNTERS, TierCounterInfo};

static COUNTERS: [AtomicU64; TIER_COUNTERS.len()] = [const { AtomicU64::new(0) }; TIER_COUNTERS.len()];

/// Adds to a counter.
pub fn add(counter: TierCounter, n: u64) {
    COUNTERS[counter as usize].fetch_add(n, Ordering::Relaxed);
}

/// Takes from a counter.
pub fn sub(counter: TierCounter, n: u64) {
    COUNTERS[counter as usize].fetch_sub(n, Ordering::Relaxed);
}

/// A counter's value.
pub fn get(counter: TierCounter) -> u64 {
    COUNTERS[counter as usize].load(Ordering::Relaxed)
}

/// Every counter with its description.
pub fn all() -> impl Iterator<Item = (&'static TierCounterInfo, u64)> {
    TIER_COUNTERS.iter().zip(TierCounter::ALL).map(|(info, counter)| (info, get(*counter)))
}
