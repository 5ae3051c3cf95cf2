//! What a pool counts.

use std::fmt;

/// A pool's counters at one moment. Bytes of blocks are those that the blocks take, rounding included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of all blocks that were allocated, since the counters were last reset.
    pub total_allocated: u64,
    /// Bytes of all blocks that were freed, since then.
    pub total_freed: u64,
    /// Bytes of the blocks that are allocated now.
    pub current_usage: u64,
    /// The most that blocks took at once since the last reset, counted where memory leaves the reserve: free small blocks in
    /// the caches of threads, and in the global one, are part of it.
    pub peak_usage: u64,
    /// Blocks that were allocated, since the last reset.
    pub allocation_count: u64,
    /// Blocks that were freed, since then.
    pub free_count: u64,
    /// Allocations that memory served which the pool had: the four below.
    pub cache_hits: u64,
    /// Small blocks from the thread's own cache.
    pub thread_hits: u64,
    /// Small blocks for which a batch came from the global cache.
    pub global_hits: u64,
    /// Small blocks for which a batch came from the reserve, the free blocks of slabs.
    pub reserve_hits: u64,
    /// Large blocks that fitted into free memory.
    pub large_hits: u64,
    /// Allocations that a new slab had to be made for, or memory mapped or created.
    pub cache_misses: u64,
    /// Free bytes, mapped and in no block, in pieces smaller than the largest request since the last round of background
    /// work: they cannot serve such a request where they lie.
    pub fragmentation_bytes: u64,
    /// Bytes of device memory that the pool holds: blocks, free memory and granules that are mapped nowhere.
    pub held: u64,
    /// The most that it held.
    pub peak_held: u64,
    /// Bytes that are mapped and in no block.
    pub free: u64,
    /// Granules of 2 MiB that were mapped under a second address, to serve what fitted nowhere.
    pub granules_remapped: u64,
    /// Granules that were created.
    pub granules_created: u64,
    /// Granules that were given back.
    pub granules_released: u64,
    /// Requests that such second addresses served again, without a call.
    pub stitches_reused: u64,
    /// Requests that took memory which another stream had freed.
    pub from_other_streams: u64,
    /// Calls to the driver.
    pub driver_calls: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("total_allocated", self.total_allocated),
            ("total_freed", self.total_freed),
            ("current_usage", self.current_usage),
            ("peak_usage", self.peak_usage),
            ("allocation_count", self.allocation_count),
            ("free_count", self.free_count),
            ("cache_hits", self.cache_hits),
            ("thread_hits", self.thread_hits),
            ("global_hits", self.global_hits),
            ("reserve_hits", self.reserve_hits),
            ("large_hits", self.large_hits),
            ("cache_misses", self.cache_misses),
            ("fragmentation_bytes", self.fragmentation_bytes),
            ("held", self.held),
            ("peak_held", self.peak_held),
            ("free", self.free),
            ("granules_remapped", self.granules_remapped),
            ("granules_created", self.granules_created),
            ("granules_released", self.granules_released),
            ("stitches_reused", self.stitches_reused),
            ("from_other_streams", self.from_other_streams),
            ("driver_calls", self.driver_calls),
        ];
        rows.iter().try_for_each(|(name, value)| writeln!(f, "{name:<20} {value:>20}"))
    }
}
