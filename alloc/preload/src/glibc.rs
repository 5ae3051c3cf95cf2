//! glibc's extensions that report or tune, answered as far as they make sense for another allocator.

use core::ffi::c_int;

use poolscope_cpu::{self as pool, TierCounter, counter};

/// `struct mallinfo2` of glibc.
#[repr(C)]
#[derive(Default)]
pub struct Mallinfo2 {
    /// Bytes of spans, in use and free.
    pub arena: usize,
    /// Free spans are not counted one by one: 0.
    pub ordblks: usize,
    /// 0.
    pub smblks: usize,
    /// Live large blocks.
    pub hblks: usize,
    /// Bytes in live large blocks.
    pub hblkhd: usize,
    /// 0.
    pub usmblks: usize,
    /// 0.
    pub fsmblks: usize,
    /// Bytes in slabs and large blocks.
    pub uordblks: usize,
    /// Bytes in free spans.
    pub fordblks: usize,
    /// Bytes that `malloc_trim` could give back.
    pub keepcost: usize,
}

/// `mallinfo2` (glibc 2.33).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    let large = counter(TierCounter::LargeBytes) as usize;
    let free = counter(TierCounter::PageHeapFree) as usize;
    let used = large + counter(TierCounter::SlabBytes) as usize + counter(TierCounter::SampledBytes) as usize;
    Mallinfo2 {
        arena: used + free,
        hblks: counter(TierCounter::LargeObjects) as usize,
        hblkhd: large,
        uordblks: used,
        fordblks: free,
        keepcost: free - (counter(TierCounter::SystemReleased) as usize).min(free),
        ..Mallinfo2::default()
    }
}

/// `struct mallinfo` of glibc: the same in `int`s, cut to fit.
#[repr(C)]
pub struct Mallinfo([c_int; 10]);

/// `mallinfo` (SVID).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let info = mallinfo2();
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

/// `mallopt` (SVID): the parameters are those of another allocator; accepted and without effect.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    1
}

/// `malloc_trim` (glibc): gives the memory of free spans back to the kernel; 1 if there was any.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(pool::release_free_memory() > 0)
}

/// `malloc_stats` (glibc): prints the counters to standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    for (info, value) in pool::counters() {
        pool::Message::new("").text(info.name).text(" ").number(value).print();
    }
}
