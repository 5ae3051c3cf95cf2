//! glibc's extensions that report or tune, answered as far as they make sense for another allocator.

use core::ffi::c_int;

use poolscope_cpu as pool;
use poolscope_wire::{ClassStats, Stats, TierCounter};

/// `struct mallinfo2` of glibc. As there, `arena` is `uordblks` and `fordblks` together, and large blocks come on top.
#[repr(C)]
#[derive(Default)]
pub struct Mallinfo2 {
    /// Bytes of slabs and of free pages that have memory behind them.
    pub arena: usize,
    /// Free blocks.
    pub ordblks: usize,
    /// Free blocks that threads have.
    pub smblks: usize,
    /// Live large blocks.
    pub hblks: usize,
    /// Bytes in live large blocks.
    pub hblkhd: usize,
    /// 0, as in glibc.
    pub usmblks: usize,
    /// Bytes in free blocks that threads have.
    pub fsmblks: usize,
    /// Bytes in use, those of large blocks left out.
    pub uordblks: usize,
    /// Free bytes that have memory behind them.
    pub fordblks: usize,
    /// Bytes that `malloc_trim` could give back.
    pub keepcost: usize,
}

fn info(stats: &Stats) -> Mallinfo2 {
    let usage = stats.usage();
    let large = stats.tier(TierCounter::LargeBytes);
    let used = usage.in_use.saturating_sub(large);
    let free = usage.thread_caches + usage.transfer_cache + usage.central_cache + usage.page_heap;
    Mallinfo2 {
        arena: (used + free) as usize,
        ordblks: stats.sum(ClassStats::free_blocks) as usize,
        smblks: stats.sum(ClassStats::thread_blocks) as usize,
        hblks: stats.tier(TierCounter::LargeObjects) as usize,
        hblkhd: large as usize,
        usmblks: 0,
        fsmblks: usage.thread_caches as usize,
        uordblks: used as usize,
        fordblks: free as usize,
        keepcost: usage.page_heap as usize,
    }
}

/// `mallinfo2` (glibc 2.33).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    pool::with_stats(info).unwrap_or_default()
}

/// `struct mallinfo` of glibc: the same in `int`s, cut to fit.
#[repr(C)]
pub struct Mallinfo([c_int; 10]);

/// `mallinfo` (SVID).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let info = pool::with_stats(info).unwrap_or_default();
    let cut = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    Mallinfo([
        cut(info.arena),
        cut(info.ordblks),
        cut(info.smblks),
        cut(info.hblks),
        cut(info.hblkhd),
        cut(info.usmblks),
        cut(info.fsmblks),
        cut(info.uordblks),
        cut(info.fordblks),
        cut(info.keepcost),
    ])
}

/// Parameters of `mallopt` in glibc's `malloc.h`: `M_MXFAST`, which has a range of its own, ...
const M_MXFAST: c_int = 1;
/// ... `M_NLBLKS`, `M_GRAIN` and `M_KEEP`, and from `M_TRIM_THRESHOLD` (-1) to `M_ARENA_MAX` (-8).
const OTHERS: [core::ops::RangeInclusive<c_int>; 2] = [2..=4, -8..=-1];
/// The largest value of `M_MXFAST` that glibc takes.
const MAX_FAST: c_int = 80 * size_of::<usize>() as c_int / 4;

/// `mallopt` (SVID): glibc's parameters are accepted, and have no effect on this allocator; 0 for any other.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    let accepted = match parameter {
        M_MXFAST => (0..=MAX_FAST).contains(&value),
        _ => OTHERS.iter().any(|range| range.contains(&parameter)),
    };
    c_int::from(accepted)
}

/// `malloc_trim` (glibc): gives all memory back to the kernel that no block is in; 1 if there was any.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(pool::release_unused() > 0)
}
