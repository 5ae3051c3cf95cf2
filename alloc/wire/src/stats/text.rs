//! Statistics as Google's tcmalloc prints them, so that scripts which read its output read this one too: the lines that
//! begin with `MALLOC:`, and the table of size classes. What no tcmalloc prints follows, in a section of its own.

use core::fmt::{self, Write};

use super::{ClassStats, Stats};
use crate::{ClassCounter, TierCounter};

const RULE: &str = "------------------------------------------------\n";

/// Writes the statistics as text. Allocates nothing.
pub fn write(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    write_usage(stats, out)?;
    write_classes(stats, out)?;
    write_tiers(stats, out)
}

fn write_usage(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    let usage = stats.usage();
    out.write_str(RULE)?;
    for (sign, bytes, what) in [
        (' ', usage.in_use, "Bytes in use by application"),
        ('-', usage.untouched, "Bytes of these that were never touched"),
        ('+', usage.page_heap, "Bytes in page heap freelist"),
        ('+', usage.central_cache, "Bytes in central cache freelist"),
        ('+', usage.transfer_cache, "Bytes in transfer cache freelist"),
        ('+', usage.thread_caches, "Bytes in thread cache freelists"),
        ('+', usage.metadata, "Bytes in malloc metadata"),
        ('=', usage.physical(), "Actual memory used (physical + swap)"),
        ('+', usage.unmapped, "Bytes released to OS (aka unmapped)"),
        ('=', usage.virtual_bytes(), "Virtual address space used"),
    ] {
        if sign == '=' {
            out.write_str("MALLOC:   ------------\n")?;
        }
        let (whole, tenth) = mib(bytes);
        writeln!(out, "MALLOC: {sign} {bytes:>12} ({whole:>5}.{tenth} MiB) {what}")?;
    }
    out.write_str("MALLOC:\n")?;
    for (number, what) in [
        (stats.spans_in_use(), "Spans in use"),
        (stats.tier(TierCounter::PageHeapAllocs), "Spans created"),
        (stats.tier(TierCounter::ThreadsLive), "Thread heaps in use"),
        (stats.heaps, "Thread heaps created"),
        (stats.page_bytes, "Tcmalloc page size"),
    ] {
        writeln!(out, "MALLOC:   {number:>12}               {what}")?;
    }
    out.write_str(RULE)?;
    out.write_str("malloc_trim(0) gives the page heap's freelist back to the OS (by madvise).\n")?;
    out.write_str("What was given back takes addresses and no memory.\n")
}

fn write_classes(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    out.write_str(RULE)?;
    out.write_str("Free blocks of each size class, in thread caches, transfer cache and central cache together;\n")?;
    out.write_str("pages of its slabs; slabs returned to and requested from the page heap\n")?;
    out.write_str(RULE)?;
    let mut all_free = 0u64;
    for (number, class) in used(stats) {
        let free = class.free_blocks();
        let free_bytes = class.bytes(free);
        all_free = all_free.saturating_add(free_bytes);
        let (whole, tenth) = mib(free_bytes);
        let (all_whole, all_tenth) = mib(all_free);
        let pages = class.slabs().saturating_mul(class.slab_bytes) / stats.page_bytes.max(1);
        let returned = class.shared(ClassCounter::SlabsReturned);
        let requested = class.shared(ClassCounter::SlabsTaken);
        let share = u128::from(returned.min(requested)) * 10_000 / u128::from(requested.max(1));
        writeln!(
            out,
            "class {number:>3} [ {:>8} bytes ] : {free:>8} objs; {whole:>3}.{tenth} MiB; \
             {all_whole:>4}.{all_tenth} cum MiB; {pages:>8} live pages; \
             spans: {returned:>10} ret / {requested:>10} req = {}.{:04};",
            class.block_bytes,
            share / 10_000,
            share % 10_000,
        )?;
    }
    Ok(())
}

fn write_tiers(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    out.write_str(RULE)?;
    out.write_str("Allocations of each size class: blocks in use; hits and misses of the thread caches and, where\n")?;
    out.write_str("these missed and had no slab of their own, of the central cache\n")?;
    out.write_str(RULE)?;
    for (number, class) in used(stats) {
        writeln!(
            out,
            "class {number:>3} [ {:>8} bytes ] : {:>12} allocs; {:>12} frees; {:>10} in use; \
             thread cache: {:>12} hits / {:>9} misses; central cache: {:>8} hits / {:>8} misses;",
            class.block_bytes,
            class.allocs(),
            class.frees(),
            class.in_use_blocks(),
            class.hits(),
            class.misses(),
            class.shared(ClassCounter::CentralHits),
            class.shared(ClassCounter::CentralMisses),
        )?;
    }
    let tier = |counter| stats.tier(counter);
    writeln!(
        out,
        "large blocks                   : {:>12} allocs; {:>12} frees; {:>10} in use; {} bytes",
        tier(TierCounter::LargeAllocs),
        tier(TierCounter::LargeFrees),
        tier(TierCounter::LargeObjects),
        tier(TierCounter::LargeBytes),
    )?;
    writeln!(
        out,
        "transfer cache                 : {:>12} blocks in {} batches",
        tier(TierCounter::TransferBlocks),
        tier(TierCounter::TransferBatches),
    )?;
    writeln!(
        out,
        "system                         : {:>12} calls; {} bytes of addresses reserved",
        tier(TierCounter::SystemCalls),
        tier(TierCounter::SystemReserved),
    )?;
    let samples = tier(TierCounter::Samples);
    writeln!(out, "sampler                        : {samples:>12} samples, one in {} bytes", stats.period_bytes)
}

fn used(stats: &Stats) -> impl Iterator<Item = (usize, &ClassStats)> {
    stats.classes().iter().enumerate().filter(|(_, class)| class.is_used())
}

/// Whole mebibytes and tenths, rounded. Without floating point, whose printing is much code for a library that needs it
/// nowhere else.
fn mib(bytes: u64) -> (u64, u64) {
    let tenths = (u128::from(bytes) * 10 + (1 << 19)) >> 20;
    ((tenths / 10) as u64, (tenths % 10) as u64)
}
