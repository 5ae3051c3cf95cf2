//! How much the caches of all threads may hold, and how much one of them.

use crate::segment::counters::{self, TierCounter};
use crate::settings;

/// What a thread has of [`cache_limit`] however many there are.
const SHARE_MIN: usize = 1 << 20;
/// What all caches together may hold however little is in use, and the part of what is in use that they may hold.
const CACHE_MIN: usize = 4 << 20;
const CACHE_SHARE: usize = 32;

/// Bytes that a thread's cache may hold beyond what is in use.
pub fn cache_limit() -> usize {
    let in_use = counters::get(TierCounter::SlabBytes) + counters::get(TierCounter::LargeBytes);
    let share = (in_use as usize / CACHE_SHARE).max(CACHE_MIN);
    let all = share.min(settings::current().thread_cache() as usize);
    if all <= SHARE_MIN {
        return all;
    }
    (all / counters::get(TierCounter::ThreadsLive).max(1) as usize).max(SHARE_MIN)
}
