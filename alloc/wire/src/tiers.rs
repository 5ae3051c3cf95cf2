//! The process-wide counters: declared once, read by the writer, the reader, the dashboard and the documentation.

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Things or events.
    Count,
}

/// A row of the table of counters.
#[derive(Clone, Copy, Debug)]
pub struct TierCounterInfo {
    /// Stable name: `TIER_WHAT`.
    pub name: &'static str,
    /// Bytes or a count.
    pub unit: Unit,
    /// Whether it only grows.
    pub monotonic: bool,
    /// What it says.
    pub help: &'static str,
}

macro_rules! tier_counters {
    ($( $variant:ident $name:literal $unit:ident $monotonic:literal $help:literal; )*) => {
        /// A process-wide counter; the discriminant is its index in [`Region::Tiers`](crate::Region::Tiers).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum TierCounter {
            $( #[doc = $help] $variant, )*
        }

        /// Every counter, in the order of the segment.
        pub const TIER_COUNTERS: &[TierCounterInfo] = &[
            $( TierCounterInfo { name: $name, unit: Unit::$unit, monotonic: $monotonic, help: $help }, )*
        ];

        impl TierCounter {
            /// Every counter, in the order of the segment.
            pub const ALL: &[TierCounter] = &[ $( TierCounter::$variant, )* ];
        }
    };
}

tier_counters! {
    SystemReserved "system_reserved_bytes" Bytes false "Address space reserved for arenas.";
    SystemUsed "system_used_bytes" Bytes false "Bytes of arenas that were ever handed to the page heap.";
    SystemReleased "system_released_bytes" Bytes false "Free bytes of the page heap with no memory behind them: given back to the kernel, or never touched.";
    SystemCalls "system_calls" Count true "Calls to mmap, munmap, mremap and madvise.";
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
}
