//! The counters of the process and of its size classes: declared once, read by the writer, the reader, the dashboard
//! and the documentation.

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things or events.
    Count,
    /// Nanoseconds.
    Nanoseconds,
}

/// A row of a table of counters.
#[derive(Clone, Copy, Debug)]
pub struct CounterInfo {
    /// Stable name.
    pub name: &'static str,
    /// Bytes, a count or a time.
    pub unit: Unit,
    /// Whether it only grows.
    pub monotonic: bool,
    /// What it says.
    pub help: &'static str,
}

macro_rules! counters {
    (
        $(#[$meta:meta])*
        $enum:ident, $table:ident;
        $( $variant:ident $name:ident $unit:ident $monotonic:literal $help:literal; )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $enum {
            $( #[doc = $help] $variant, )*
        }

        #[doc = concat!("What each [`", stringify!($enum), "`] counts, in the order of the segment.")]
        pub const $table: &[CounterInfo] = &[
            $( CounterInfo { name: stringify!($name), unit: Unit::$unit, monotonic: $monotonic, help: $help }, )*
        ];

        impl $enum {
            /// Every counter, in the order of the segment.
            pub const ALL: &[$enum] = &[ $( $enum::$variant, )* ];
        }
    };
}

counters! {
    /// A process-wide counter; the discriminant is its index in [`Region::Tiers`](crate::Region::Tiers).
    TierCounter, TIER_COUNTERS;
    SystemReserved system_reserved_bytes Bytes false "Address space reserved for arenas.";
    SystemUsed system_used_bytes Bytes false "Bytes of arenas that were ever handed to the page heap.";
    SystemReleased system_released_bytes Bytes false
        "Free bytes of the page heap with no memory behind them: given back to the kernel, or never touched.";
    SystemCalls system_calls Count true "Calls to mmap, munmap, mprotect, mremap, madvise and mbind.";
    PageHeapFree page_heap_free_bytes Bytes false "Bytes in free spans.";
    PageHeapAllocs page_heap_allocs Count true "Spans taken from the page heap.";
    PageHeapFrees page_heap_frees Count true "Spans given back to the page heap.";
    LargeBytes large_bytes Bytes false "Bytes in live spans of single large blocks.";
    LargeObjects large_objects Count false "Live large blocks.";
    LargeAllocs large_allocs Count true "Large blocks ever allocated.";
    LargeFrees large_frees Count true "Large blocks ever freed.";
    SlabBytes slab_bytes Bytes false "Bytes in slabs of small and medium blocks.";
    CentralHits central_hits Count true "Refills served by a slab that another thread had left in the central cache.";
    CentralMisses central_misses Count true "Refills for which the central cache had no slab.";
    CentralSlabs central_slabs Count false "Slabs with free blocks that wait in the central cache.";
    TransferBatches transfer_batches Count true "Batches of freed blocks handed to their owner's heap.";
    TransferBlocks transfer_blocks Count true "Blocks in these batches.";
    SampledBytes sampled_slab_bytes Bytes false "Bytes in slabs that hold sampled blocks only.";
    Samples samples Count true "Samples taken.";
    ThreadsLive threads_live Count false "Threads that have a heap.";
    ThreadsStarted threads_started Count true "Threads that ever had one.";
    MetadataBytes metadata_bytes Bytes false
        "Bytes of the pool's own: descriptors, heaps, the live table and the segment.";
    HugeAdvised huge_advised_bytes Bytes false "Bytes of arenas for which transparent huge pages were asked.";
    HugeExplicit huge_explicit_bytes Bytes false "Bytes of arenas that are explicit huge pages (hugetlb).";
    PlacementRefused placement_refused Count true "Times that the system refused huge pages or a NUMA policy.";
}

counters! {
    /// A counter of one size class that is not a thread's; the discriminant is its index in
    /// [`ClassRecord::shared`](crate::ClassRecord::shared).
    ClassCounter, CLASS_COUNTERS;
    SlabsTaken slabs_taken Count true "Slabs taken from the page heap.";
    SlabsReturned slabs_returned Count true "Slabs given back to the page heap.";
    CentralHits central_hits Count true "Refills served by a slab of the central cache.";
    CentralMisses central_misses Count true "Refills for which the central cache had no slab.";
    CentralFree central_free Count false "Free blocks in slabs that no thread owns.";
    SampledAllocs sampled_allocs Count true "Blocks allocated as samples, which no thread's cache serves.";
    SharedFrees shared_frees Count true
        "Blocks freed that no thread counts: samples, and those of slabs that no thread owns.";
    Untouched untouched Count false
        "Blocks without memory, because nobody ever had them; what threads count of them comes on top.";
}

/// Hands the table of the counters of a pool of device memory to a macro: for each its name in the segment's table, its
/// name everywhere else, its unit, whether it only grows, and what it says. Bytes of blocks are those that the blocks
/// take, rounding included.
#[macro_export]
#[doc(hidden)]
macro_rules! device_counters {
    ($then:ident) => {
        $then! {
            TotalAllocated total_allocated Bytes true
                "Bytes of all blocks that were allocated, since the counters were last reset.";
            TotalFreed total_freed Bytes true "Bytes of all blocks that were freed, since then.";
            CurrentUsage current_usage Bytes false "Bytes of the blocks that are allocated now.";
            PeakUsage peak_usage Bytes false
                "The most that blocks took at once since the last reset, free small blocks in caches included.";
            AllocationCount allocation_count Count true "Blocks that were allocated, since the last reset.";
            FreeCount free_count Count true "Blocks that were freed, since then.";
            CacheHits cache_hits Count true "Allocations that memory served which the pool had: the four below.";
            ThreadHits thread_hits Count true "Small blocks from the thread's own cache.";
            GlobalHits global_hits Count true "Small blocks for which a batch came from the global cache.";
            ReserveHits reserve_hits Count true
                "Small blocks for which a batch came from the reserve, the free blocks of slabs.";
            LargeHits large_hits Count true "Large blocks that fitted into free memory.";
            CacheMisses cache_misses Count true
                "Allocations that a new slab had to be made for, or memory mapped or created.";
            FragmentationBytes fragmentation_bytes Bytes false
                "Free bytes that cannot serve the largest request of the last second or more. Whole granules are not \
among them where they are enough together.";
            Held held Bytes false
                "Bytes of device memory that the pool holds: blocks, free memory and granules that are mapped nowhere.";
            PeakHeld peak_held Bytes false "The most that it held, since the last reset.";
            Free free Bytes false "Bytes that are mapped and in no block.";
            LargestHole largest_hole Bytes false "Bytes of the largest free piece.";
            GranulesRemapped granules_remapped Count true
                "Granules of 2 MiB that were mapped under a second address, to serve what fitted nowhere.";
            GranulesCreated granules_created Count true
                "Granules that were created. Memory in segments is counted in granules, too.";
            GranulesReleased granules_released Count true "Granules that were given back.";
            StitchesReused stitches_reused Count true
                "Requests that such second addresses served again, without a call.";
            FromOtherStreams from_other_streams Count true "Requests that took memory which another stream had freed.";
            StreamWaits stream_waits Count true
                "Times that a stream was made to wait for another one's work, for the memory that it had freed.";
            StreamsHeldUp streams_held_up_ns Nanoseconds true
                "Time in all for which streams were held up by that, as far as one could tell when they began to wait.";
            DriverCalls driver_calls Count true "Calls to the driver.";
            SamplePeriod sample_period Bytes false
                "Mean bytes between two samples, for the thread that is sampled the least; 0 where none are taken, 1 \
where every block is recorded.";
            LadderClimbed ladder_climbed Count true
                "Requests that found no memory at first and climbed the ladder, since the last reset.";
            LadderOwnCachesServed ladder_own_caches_served Count true
                "Of them, those that were served after the thread's own cache and the global ones had been emptied.";
            LadderAllCachesTried ladder_all_caches_tried Count true
                "Those that were tried again after the caches of all threads had been emptied.";
            LadderAllCachesServed ladder_all_caches_served Count true "Those that were served then.";
            LadderPendingFreesTried ladder_pending_frees_tried Count true
                "Of them, those that were tried again after the host had waited for work that freed memory waited for.";
            LadderPendingFreesServed ladder_pending_frees_served Count true "Those that were served then.";
            LadderDefragmentTried ladder_defragment_tried Count true
                "Of them, those that were tried again after free memory of different streams had been merged.";
            LadderDefragmentServed ladder_defragment_served Count true "Those that were served then.";
            LadderReleaseTried ladder_release_tried Count true
                "Of them, those that were tried again after free segments had gone back to the device (only without \
virtual memory).";
            LadderReleaseServed ladder_release_served Count true "Those that were served then.";
            LadderPinnedHostTried ladder_pinned_host_tried Count true "Those that were tried in pinned host memory.";
            LadderPinnedHostServed ladder_pinned_host_served Count true "Those that were served from it.";
            LadderRefused ladder_refused Count true "Those that were refused.";
            HeldUp held_up Count true
                "Allocations and frees that waited for the lock, or for memory that was put together or created, since the \
last reset.";
            WaitMedian wait_p50_ns Nanoseconds false
                "Half of all allocations and frees were held up for at most so long; 0: not at all.";
            WaitP99 wait_p99_ns Nanoseconds false "The same of 99 in 100.";
            WaitP999 wait_p999_ns Nanoseconds false "The same of 999 in 1,000.";
            WaitLongest wait_longest_ns Nanoseconds false "The longest that one was held up, since the last reset.";
            WaitedForLock waited_for_lock_ns Nanoseconds true
                "Time in all that they waited for other threads, the pool's own among them.";
            WaitedForDriver waited_for_driver_ns Nanoseconds true "Time in all that they waited for the driver.";
            WaitedForWork waited_for_work_ns Nanoseconds true
                "Time in all in which free memory was merged or put together, or the pool's picture was made.";
        }
    };
}

macro_rules! device_table {
    ($($rows:tt)*) => {
        counters! {
            /// A counter of a pool of device memory; the discriminant is its index in
            /// [`DeviceRecord::counters`](crate::DeviceRecord::counters).
            DeviceCounter, DEVICE_COUNTERS;
            $($rows)*
        }
    };
}

device_counters!(device_table);
