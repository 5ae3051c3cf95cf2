//! Who is told of blocks: the interface to a sampler and to a segment, neither of which this crate knows.
//!
//! The pool decides which allocations are sampled ([`crate::sampling`]) and finds them again when they are freed. The recorder
//! captures stacks and keeps records. It is called without any of the pool's locks, but for [`Recorder::publish`].

use poolscope_wire::{DEVICE_COUNTERS, DeviceCounter};

use crate::stats::Stats;

/// A recorder's name for a block that it has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub u32);

/// A sampled block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Where it lies.
    pub address: u64,
    /// Bytes that were asked for.
    pub size: u64,
    /// Objects that it stands for, in units of 1/65536: `1 / p` for the probability `p` that a block of its size is sampled.
    pub weight: u64,
}

/// What a pool says of itself, now and then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Its counters.
    pub stats: Stats,
    /// Bytes of memory that the device has.
    pub memory: u64,
    /// What lies where: values of `poolscope_wire::cell`.
    pub cells: Vec<u8>,
    /// Bytes that a cell stands for.
    pub cell_bytes: u64,
}

impl Picture {
    /// The counters in the order of the segment.
    pub fn counters(&self) -> [u64; DEVICE_COUNTERS.len()] {
        let stats = &self.stats;
        let mut counters = [0; DEVICE_COUNTERS.len()];
        let values = [
            (DeviceCounter::InUse, stats.current_usage),
            (DeviceCounter::PeakInUse, stats.peak_usage),
            (DeviceCounter::Reserved, stats.held),
            (DeviceCounter::PeakReserved, stats.peak_held),
            (DeviceCounter::Free, stats.free),
            (DeviceCounter::LargestFree, stats.largest_hole),
            (DeviceCounter::Fragmentation, stats.fragmentation_bytes),
            (DeviceCounter::Allocated, stats.total_allocated),
            (DeviceCounter::Freed, stats.total_freed),
            (DeviceCounter::Allocs, stats.allocation_count),
            (DeviceCounter::Frees, stats.free_count),
            (DeviceCounter::ThreadHits, stats.thread_hits),
            (DeviceCounter::GlobalHits, stats.global_hits),
            (DeviceCounter::ReserveHits, stats.reserve_hits),
            (DeviceCounter::LargeHits, stats.large_hits),
            (DeviceCounter::Misses, stats.cache_misses),
            (DeviceCounter::FromOtherStreams, stats.from_other_streams),
            (DeviceCounter::GranulesCreated, stats.granules_created),
            (DeviceCounter::GranulesReleased, stats.granules_released),
            (DeviceCounter::GranulesRemapped, stats.granules_remapped),
            (DeviceCounter::StitchesReused, stats.stitches_reused),
            (DeviceCounter::DriverCalls, stats.driver_calls),
            (DeviceCounter::OomClimbs, stats.ladder_climbed),
            (DeviceCounter::OomCaches, stats.ladder_all_caches_tried),
            (DeviceCounter::OomWaits, stats.ladder_pending_frees_tried),
            (DeviceCounter::OomDefragments, stats.ladder_defragment_tried),
            (DeviceCounter::OomReleases, stats.ladder_release_tried),
            (DeviceCounter::OomFallbacks, stats.ladder_pinned_host_served),
            (DeviceCounter::OomFailures, stats.ladder_refused),
        ];
        for (counter, value) in values {
            counters[counter as usize] = value;
        }
        counters
    }
}

/// Keeps records of a pool's sampled blocks. No method may call the pool.
pub trait Recorder: Send + Sync {
    /// Mean bytes between two samples for the calling thread: 1 where every block is to be recorded, `None` where none is.
    fn period(&self) -> Option<u64>;

    /// Samples a second that all threads together may take before their periods are raised; 0: any number.
    fn samples_per_second(&self) -> u64;

    /// Records a block, with the calling thread's stack. `None` if there is no room.
    fn allocated(&self, sample: &Sample) -> Option<Token>;

    /// The block is about to be freed.
    fn freed(&self, token: Token, address: u64);

    /// Whether [`publish`](Self::publish) is of any use.
    fn wants_pictures(&self) -> bool {
        true
    }

    /// Shows what the pool says of itself. The pool's lock is held.
    fn publish(&self, picture: &Picture);

    /// What holds the most memory of the pool by the stacks that allocated it, at most so many, a line each: for the message
    /// where there is none left.
    fn holders(&self, most: usize) -> Vec<String> {
        let _ = most;
        Vec::new()
    }

    /// The pool is gone.
    fn closed(&self);
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {
    fn period(&self) -> Option<u64> {
        None
    }

    fn samples_per_second(&self) -> u64 {
        0
    }

    fn allocated(&self, _: &Sample) -> Option<Token> {
        None
    }

    fn freed(&self, _: Token, _: u64) {}

    fn wants_pictures(&self) -> bool {
        false
    }

    fn publish(&self, _: &Picture) {}

    fn closed(&self) {}
}
