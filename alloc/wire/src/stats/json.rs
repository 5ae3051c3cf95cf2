//! Statistics as JSON: one schema, whether the process writes them itself or a reader does.
//!
//! Field names are stable: a field is never renamed or given another meaning, and new ones may be added. Every value is
//! a whole number; names that end with `_bytes` are bytes, and so are all of `usage`. `classes` has the size classes
//! that were ever used, `class` being the class's number. `counters` are the raw process-wide ones
//! ([`TIER_COUNTERS`]).

use core::fmt::{self, Write};

use super::Stats;
use crate::{ClassCounter, TIER_COUNTERS, TierCounter};

/// The version of the JSON, in its field `version`.
pub const VERSION: u64 = 1;

/// Writes the statistics as JSON. Allocates nothing.
pub fn write(stats: &Stats, out: &mut impl Write) -> fmt::Result {
    let usage = stats.usage();
    let tier = |counter| stats.tier(counter);
    let mut json = Object::begin(out)?;
    json.number("version", VERSION)?;
    json.number("page_bytes", stats.page_bytes)?;
    json.number("period_bytes", stats.period_bytes)?;
    json.object("usage", |json| {
        json.number("in_use", usage.in_use)?;
        json.number("untouched", usage.untouched)?;
        json.number("page_heap", usage.page_heap)?;
        json.number("central_cache", usage.central_cache)?;
        json.number("transfer_cache", usage.transfer_cache)?;
        json.number("thread_caches", usage.thread_caches)?;
        json.number("metadata", usage.metadata)?;
        json.number("physical", usage.physical())?;
        json.number("unmapped", usage.unmapped)?;
        json.number("virtual", usage.virtual_bytes())
    })?;
    json.object("thread_caches", |json| {
        json.number("allocs", stats.sum(|class| class.threads.allocs))?;
        json.number("frees", stats.sum(|class| class.threads.frees))?;
        json.number("hits", stats.sum(|class| class.threads.allocs.saturating_sub(class.threads.refills)))?;
        json.number("misses", stats.sum(|class| class.threads.refills))?;
        json.number("heaps", stats.heaps)?;
        json.number("heaps_in_use", tier(TierCounter::ThreadsLive))
    })?;
    json.object("transfer_cache", |json| {
        json.number("batches", tier(TierCounter::TransferBatches))?;
        json.number("blocks", tier(TierCounter::TransferBlocks))
    })?;
    json.object("central_cache", |json| {
        json.number("hits", tier(TierCounter::CentralHits))?;
        json.number("misses", tier(TierCounter::CentralMisses))?;
        json.number("slabs", tier(TierCounter::CentralSlabs))
    })?;
    json.object("page_heap", |json| {
        json.number("allocs", tier(TierCounter::PageHeapAllocs))?;
        json.number("frees", tier(TierCounter::PageHeapFrees))?;
        json.number("spans_in_use", stats.spans_in_use())?;
        json.number("free_bytes", tier(TierCounter::PageHeapFree))
    })?;
    json.object("large", |json| {
        json.number("allocs", tier(TierCounter::LargeAllocs))?;
        json.number("frees", tier(TierCounter::LargeFrees))?;
        json.number("in_use", tier(TierCounter::LargeObjects))?;
        json.number("in_use_bytes", tier(TierCounter::LargeBytes))
    })?;
    json.object("system", |json| {
        json.number("calls", tier(TierCounter::SystemCalls))?;
        json.number("reserved_bytes", tier(TierCounter::SystemReserved))?;
        json.number("used_bytes", tier(TierCounter::SystemUsed))
    })?;
    json.object("counters", |json| {
        TIER_COUNTERS.iter().zip(stats.tiers).try_for_each(|(info, value)| json.number(info.name, value))
    })?;
    json.key("classes")?;
    json.out.write_char('[')?;
    let mut separator = "";
    for (number, class) in stats.classes().iter().enumerate().filter(|(_, class)| class.is_used()) {
        json.out.write_str(core::mem::replace(&mut separator, ","))?;
        let mut json = Object::begin(json.out)?;
        json.number("class", number as u64)?;
        json.number("block_bytes", class.block_bytes)?;
        json.number("slab_bytes", class.slab_bytes)?;
        json.number("slab_blocks", class.slab_blocks)?;
        json.number("allocs", class.allocs())?;
        json.number("frees", class.frees())?;
        json.number("hits", class.hits())?;
        json.number("misses", class.misses())?;
        json.number("in_use", class.in_use_blocks())?;
        json.number("in_use_bytes", class.in_use_bytes())?;
        json.number("free", class.free_blocks())?;
        json.number("thread_free", class.thread_blocks())?;
        json.number("untouched_free", class.untouched_blocks())?;
        json.number("slabs", class.slabs())?;
        json.number("slabs_taken", class.shared(ClassCounter::SlabsTaken))?;
        json.number("slabs_returned", class.shared(ClassCounter::SlabsReturned))?;
        json.number("central_free", class.shared(ClassCounter::CentralFree))?;
        json.number("central_hits", class.shared(ClassCounter::CentralHits))?;
        json.number("central_misses", class.shared(ClassCounter::CentralMisses))?;
        json.number("in_transfer", class.in_transfer_blocks())?;
        json.number("sampled_allocs", class.shared(ClassCounter::SampledAllocs))?;
        json.end()?;
    }
    json.out.write_char(']')?;
    json.end()?;
    out.write_char('\n')
}

/// An object that is being written. All keys are plain names.
struct Object<'a, W> {
    out: &'a mut W,
    empty: bool,
}

impl<'a, W: Write> Object<'a, W> {
    fn begin(out: &'a mut W) -> Result<Self, fmt::Error> {
        out.write_char('{')?;
        Ok(Object { out, empty: true })
    }

    fn end(self) -> fmt::Result {
        self.out.write_char('}')
    }

    fn key(&mut self, key: &str) -> fmt::Result {
        let separator = if core::mem::replace(&mut self.empty, false) { "" } else { "," };
        write!(self.out, "{separator}\"{key}\":")
    }

    fn number(&mut self, key: &str, value: u64) -> fmt::Result {
        self.key(key)?;
        write!(self.out, "{value}")
    }

    fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_, W>) -> fmt::Result) -> fmt::Result {
        self.key(key)?;
        let mut inner = Object::begin(self.out)?;
        fill(&mut inner)?;
        inner.end()
    }
}
