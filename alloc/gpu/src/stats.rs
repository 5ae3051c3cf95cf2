//! What a pool counts.

use std::fmt;

/// Declares the counters once: the structure, and its rows for those who write them.
macro_rules! stats {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A pool's counters at one moment. Bytes of blocks are those that the blocks take, rounding included.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Each counter's name and value.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

stats! {
    /// Bytes of all blocks that were allocated, since the counters were last reset.
    total_allocated,
    /// Bytes of all blocks that were freed, since then.
    total_freed,
    /// Bytes of the blocks that are allocated now.
    current_usage,
    /// The most that blocks took at once since the last reset, counted where memory leaves the reserve: free small blocks in
    /// the caches of threads, and in the global one, are part of it.
    peak_usage,
    /// Blocks that were allocated, since the last reset.
    allocation_count,
    /// Blocks that were freed, since then.
    free_count,
    /// Allocations that memory served which the pool had: the four below.
    cache_hits,
    /// Small blocks from the thread's own cache.
    thread_hits,
    /// Small blocks for which a batch came from the global cache.
    global_hits,
    /// Small blocks for which a batch came from the reserve, the free blocks of slabs.
    reserve_hits,
    /// Large blocks that fitted into free memory.
    large_hits,
    /// Allocations that a new slab had to be made for, or memory mapped or created.
    cache_misses,
    /// Free bytes that cannot serve the largest recent request, that of the last second or more: those in smaller pieces, but for
    /// whole granules where these together are enough, since they are mapped side by side then.
    fragmentation_bytes,
    /// Bytes of device memory that the pool holds: blocks, free memory and granules that are mapped nowhere.
    held,
    /// The most that it held.
    peak_held,
    /// Bytes that are mapped and in no block.
    free,
    /// Bytes of the largest free piece.
    largest_hole,
    /// Granules of 2 MiB that were mapped under a second address, to serve what fitted nowhere.
    granules_remapped,
    /// Granules that were created. Memory in segments is counted in granules, too.
    granules_created,
    /// Granules that were given back.
    granules_released,
    /// Requests that such second addresses served again, without a call.
    stitches_reused,
    /// Requests that took memory which another stream had freed.
    from_other_streams,
    /// Calls to the driver.
    driver_calls,
    /// Requests that found no memory at first and climbed the ladder, since the last reset.
    ladder_climbed,
    /// Of them, those that were served after the thread's own cache and the global ones had been emptied.
    ladder_own_caches_served,
    /// Those that were tried again after the caches of all threads had been emptied.
    ladder_all_caches_tried,
    /// Those that were served then.
    ladder_all_caches_served,
    /// Of them, those that were tried again after the host had waited for work that freed memory waited for.
    ladder_pending_frees_tried,
    /// Those that were served then.
    ladder_pending_frees_served,
    /// Of them, those that were tried again after free memory of different streams had been merged.
    ladder_defragment_tried,
    /// Those that were served then.
    ladder_defragment_served,
    /// Of them, those that were tried again after free segments had gone back to the device (only without virtual memory).
    ladder_release_tried,
    /// Those that were served then.
    ladder_release_served,
    /// Those that were tried in pinned host memory.
    ladder_pinned_host_tried,
    /// Those that were served from it.
    ladder_pinned_host_served,
    /// Those that were refused.
    ladder_refused,
}

impl Stats {
    /// One JSON object with a number for each counter.
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = self.rows().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", rows.join(","))
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows().try_for_each(|(name, value)| writeln!(f, "{name:<20} {value:>20}"))
    }
}
