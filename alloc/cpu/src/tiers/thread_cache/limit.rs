//! How much the caches of all threads may hold, and how much one of them.

use crate::segment::counters::{self, TierCounter};
use crate::settings;

/// What a thread has of [`cache_limit`] however many there are.
const SHARE_MIN: usize = 1 << 20;
/// What all caches together may hold, if nobody has said how much: so much in a small program, which can't hold much
/// more than it used at its largest, and whose blocks of any size soon come again; less and less in one of up to twice
/// the size; a part of what is in use in a larger one.
const SMALL_PROGRAM: usize = 32 << 20;
const SMALL_CACHE: usize = 16 << 20;
const CACHE_MIN: usize = 4 << 20;
const CACHE_SHARE: usize = 32;
/// What each thread but one adds, however large the program is, and what all of them add at most: a thread that replaces
/// blocks of some MiB needs room for what it frees until it asks for as much again.
const EACH_THREAD: usize = 8 << 20;
const ALL_THREADS: usize = 128 << 20;

/// Bytes of slabs and large blocks.
pub fn in_use() -> usize {
    (counters::get(TierCounter::SlabBytes) + counters::get(TierCounter::LargeBytes)) as usize
}

/// Bytes that a thread's cache may hold beyond what is in use: its share of what was asked for, or else of what the
/// program's size allows.
pub fn cache_limit() -> usize {
    let settings = settings::current();
    let most = settings.thread_cache() as usize;
    let in_use = in_use();
    let share = small_program_share(in_use).max(CACHE_MIN).max(in_use / CACHE_SHARE);
    let threads = threads();
    let share = share.max(((threads - 1) * EACH_THREAD).min(ALL_THREADS));
    let all = if settings.thread_cache_is_said() { most } else { share.min(most) };
    if all <= SHARE_MIN {
        return all;
    }
    (all / threads).max(SHARE_MIN)
}

/// What a thread of a small program may keep in slabs that have pages without a block; nothing in a larger one.
pub fn small_program_keeps() -> usize {
    if in_use() <= SMALL_PROGRAM { SMALL_CACHE / threads() } else { 0 }
}

/// What all caches of a small program may hold: less the more is in use beyond that, and nothing at twice as much.
fn small_program_share(in_use: usize) -> usize {
    let beyond = in_use.saturating_sub(SMALL_PROGRAM);
    SMALL_CACHE.saturating_sub(beyond / (SMALL_PROGRAM / SMALL_CACHE))
}

/// Threads that have a heap, at least one.
pub fn threads() -> usize {
    counters::get(TierCounter::ThreadsLive).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that grows by a block has no step at which it holds much less.
    #[test]
    fn what_a_small_program_holds_shrinks_little_by_little() {
        let shares: Vec<usize> = (0..100).map(|mib| small_program_share(mib << 20)).collect();
        assert!(shares[..=32].iter().all(|share| *share == SMALL_CACHE));
        assert!(shares.windows(2).all(|pair| (0..=1 << 20).contains(&(pair[0] as isize - pair[1] as isize))));
        assert_eq!((shares[48], shares[64], shares[99]), (SMALL_CACHE / 2, 0, 0));
    }
}
