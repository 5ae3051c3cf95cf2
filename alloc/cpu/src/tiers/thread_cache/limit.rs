//! How much the caches of all threads may hold, and how much one of them.

use crate::segment::counters::{self, TierCounter};
use crate::settings;

/// What a thread has of [`cache_limit`] however many there are.
const SHARE_MIN: usize = 1 << 20;
/// What all caches together may hold however little is in use, and the part of what is in use that they may hold, if
/// nobody has said how much.
const CACHE_MIN: usize = 4 << 20;
const CACHE_SHARE: usize = 32;

/// Bytes of slabs and large blocks.
pub fn in_use() -> usize {
    (counters::get(TierCounter::SlabBytes) + counters::get(TierCounter::LargeBytes)) as usize
}

/// Bytes that a thread's cache may hold beyond what is in use: its share of what was asked for, or else of what the
/// program's size allows.
pub fn cache_limit() -> usize {
    let settings = settings::current();
    let most = settings.thread_cache() as usize;
    let share = (in_use() / CACHE_SHARE).max(CACHE_MIN);
    let all = if settings.thread_cache_is_said() { most } else { share.min(most) };
    if all <= SHARE_MIN {
        return all;
    }
    (all / counters::get(TierCounter::ThreadsLive).max(1) as usize).max(SHARE_MIN)
}
