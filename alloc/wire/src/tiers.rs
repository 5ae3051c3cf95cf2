//! The counters of the process and of its size classes: declared once, read by the writer, the reader, the dashboard and
//! the documentation.

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things or events.
    Count,
}

/// A row of a table of counters.
#[derive(Clone, Copy, Debug)]
pub struct CounterInfo {
    /// Stable name.
    pub name: &'static str,
    /// Bytes or a count.
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
        $( $variant:ident $name:literal $unit:ident $monotonic:literal $help:literal; )*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $enum {
            $( #[doc = $help] $variant, )*
        }

        #[doc = concat!("What each [`", stringify!($enum), "`] counts, in the order of the segment.")]
        pub const $table: &[CounterInfo] = &[
            $( CounterInfo { name: $name, unit: Unit::$unit, monotonic: $monotonic, help: $help }, )*
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
    SystemReserved "system_reserved_bytes" Bytes false "Address space reserved for arenas.";
    SystemUsed "system_used_bytes" Bytes false "Bytes of arenas that were ever handed to the page heap.";
    SystemReleased "system_released_bytes" Bytes false "Free bytes of the page heap with no memory behind them: given back to the kernel, or never touched.";
    SystemCalls "system_calls" Count true "Calls to mmap, munmap, mprotect, mremap, madvise and mbind.";
    PageHeapFree "page_heap_free_bytes" Bytes false "Bytes in free spans.";
    PageHeapAllocs "page_heap_allocs" Count true "Spans taken from the page heap.";
    PageHeapFrees "page_heap_frees" Count true "Spans given back to the page heap.";
    LargeBytes "large_bytes" Bytes false "Bytes in live spans of single large blocks.";
    LargeObjects "large_objects" Count false "Live large blocks.";
    LargeAllocs "large_allocs" Count true "Large blocks ever allocated.";
    LargeFrees "large_frees" Count true "Large blocks ever freed.";
    SlabBytes "slab_bytes" Bytes false "Bytes in slabs of small and medium blocks.";
    CentralHits "central_hits" Count true "Refills served by a slab that another thread had left in the central cache.";
    CentralMisses "central_misses" Count true "Refills for which the central cache had no slab.";
    CentralSlabs "central_slabs" Count false "Slabs with free blocks that wait in the central cache.";
    TransferBatches "transfer_batches" Count true "Batches of freed blocks handed to their owner's heap.";
    TransferBlocks "transfer_blocks" Count true "Blocks in these batches.";
    SampledBytes "sampled_slab_bytes" Bytes false "Bytes in slabs that hold sampled blocks only.";
    Samples "samples" Count true "Samples taken.";
    ThreadsLive "threads_live" Count false "Threads that have a heap.";
    ThreadsStarted "threads_started" Count true "Threads that ever had one.";
    MetadataBytes "metadata_bytes" Bytes false "Bytes of the pool's own: descriptors, heaps, the live table and the segment.";
    HugeAdvised "huge_advised_bytes" Bytes false "Bytes of arenas for which transparent huge pages were asked.";
    HugeExplicit "huge_explicit_bytes" Bytes false "Bytes of arenas that are explicit huge pages (hugetlb).";
    PlacementRefused "placement_refused" Count true "Times that the system refused huge pages or a NUMA policy.";
}

counters! {
    /// A counter of one size class that is not a thread's; the discriminant is its index in
    /// [`ClassRecord::shared`](crate::ClassRecord::shared).
    ClassCounter, CLASS_COUNTERS;
    SlabsTaken "slabs_taken" Count true "Slabs taken from the page heap.";
    SlabsReturned "slabs_returned" Count true "Slabs given back to the page heap.";
    CentralHits "central_hits" Count true "Refills served by a slab of the central cache.";
    CentralMisses "central_misses" Count true "Refills for which the central cache had no slab.";
    CentralFree "central_free" Count false "Free blocks in slabs that no thread owns.";
    SampledAllocs "sampled_allocs" Count true "Blocks allocated as samples, which no thread's cache serves.";
    SharedFrees "shared_frees" Count true "Blocks freed that no thread counts: samples, and those of slabs that no thread owns.";
    Untouched "untouched" Count false "Blocks without memory, because nobody ever had them; what threads count of them comes on top.";
}

counters! {
    /// A counter of a pool of device memory; the discriminant is its index in
    /// [`DeviceRecord::counters`](crate::DeviceRecord::counters). Bytes are those that blocks take, rounding included.
    DeviceCounter, DEVICE_COUNTERS;
    InUse "in_use_bytes" Bytes false "Bytes of the blocks that are allocated.";
    PeakInUse "peak_in_use_bytes" Bytes false "The most that blocks took at once, free small blocks in caches included.";
    Reserved "reserved_bytes" Bytes false "Bytes of device memory that the pool holds.";
    PeakReserved "peak_reserved_bytes" Bytes false "The most that it held.";
    Free "free_bytes" Bytes false "Bytes that are mapped and in no block.";
    LargestFree "largest_free_bytes" Bytes false "The largest free piece.";
    Fragmentation "fragmentation_bytes" Bytes false "Free bytes in pieces smaller than the largest recent request.";
    Allocated "allocated_bytes" Bytes true "Bytes of all blocks ever allocated.";
    Freed "freed_bytes" Bytes true "Bytes of all blocks ever freed.";
    Allocs "allocs" Count true "Blocks ever allocated.";
    Frees "frees" Count true "Blocks ever freed.";
    ThreadHits "thread_hits" Count true "Small blocks from the thread's own cache.";
    GlobalHits "global_hits" Count true "Small blocks for which a batch came from the global cache.";
    ReserveHits "reserve_hits" Count true "Small blocks for which a batch came from the free blocks of slabs.";
    LargeHits "large_hits" Count true "Large blocks that fitted into free memory.";
    Misses "misses" Count true "Allocations that memory had to be mapped or created for, or a slab cut.";
    FromOtherStreams "from_other_streams" Count true "Requests that took memory which another stream had freed.";
    GranulesCreated "granules_created" Count true "Granules of 2 MiB that were created.";
    GranulesReleased "granules_released" Count true "Granules that were given back.";
    GranulesRemapped "granules_remapped" Count true "Granules that were mapped under a second address.";
    StitchesReused "stitches_reused" Count true "Requests that such second addresses served again, without a call.";
    DriverCalls "driver_calls" Count true "Calls to the driver.";
    OomClimbs "oom_climbs" Count true "Requests that found no memory, and climbed the ladder of what can be done then.";
    OomCaches "oom_cache_drains" Count true "Of them, those for which the caches of all threads were emptied.";
    OomWaits "oom_waits" Count true "Of them, those for which freed memory was waited for.";
    OomDefragments "oom_defragments" Count true "Of them, those for which free memory was merged.";
    OomReleases "oom_releases" Count true "Of them, those for which free segments went back to the device.";
    OomFallbacks "oom_fallbacks" Count true "Of them, those that were served from pinned host memory.";
    OomFailures "oom_failures" Count true "Of them, those that were refused.";
}
