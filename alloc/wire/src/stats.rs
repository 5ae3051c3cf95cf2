//! The statistics of a pool: one model, filled by the process itself from its live counters and by a reader from the
//! segment, and shown by [`text`] and [`json`].
//!
//! # What a byte counts as
//!
//! ```text
//! virtual = physical + unmapped
//! physical = in use + page heap + central cache + transfer cache + thread caches + metadata
//! ```
//!
//! The pages that the page heap ever had are in slabs, in large blocks, or free; free ones have memory behind them
//! ("page heap") or not ("unmapped"). The blocks of slabs are in use, or free in one of three tiers, or they were never
//! cut from memory that the system has not given yet ("unmapped", too). What is left over at a slab's end, too small for a
//! block, counts as the central cache's.
//!
//! # What is exact, and what is not
//!
//! Counters of the process, of large blocks, slabs and samples are up to date. A thread publishes the counters of a
//! class when it has to refill it, and not at each allocation: between two refills, the blocks that it takes from its
//! list count as cached, and those that it frees as in use. Bytes in use may be off by that, and those in thread caches by
//! the same in the other direction; their sum is exact. The thread that asks for the statistics of its own process publishes
//! its counters first, so that those of a program with one thread are exact. Counters are read one by one while other threads
//! go on: where they contradict each other, differences are cut at 0. A block's memory counts as physical from when it is
//! cut, whether the program touches it or not.
//!
//! A process that was forked and runs on without `exec` has its parent's counters as of the fork.

pub mod json;
pub mod text;

use crate::{CLASS_COUNTERS, ClassCounter, ClassCounters, ClassRecord, MAX_CLASSES, TIER_COUNTERS, TierCounter};

/// One size class: its row of the table and what all threads did with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of each block.
    pub block_bytes: u64,
    /// Bytes of each slab.
    pub slab_bytes: u64,
    /// Blocks in each slab.
    pub slab_blocks: u64,
    /// The counters of all threads added up, samples left out.
    pub threads: ClassCounters,
    /// The counters that are no thread's, indexed by [`ClassCounter`].
    pub shared: [u64; CLASS_COUNTERS.len()],
}

impl ClassStats {
    /// A class that nobody used.
    pub const EMPTY: ClassStats = ClassStats {
        block_bytes: 0,
        slab_bytes: 0,
        slab_blocks: 0,
        threads: ClassCounters::ZERO,
        shared: [0; CLASS_COUNTERS.len()],
    };

    /// A class as its record says it, without what the threads count.
    pub fn new(record: &ClassRecord) -> ClassStats {
        ClassStats {
            block_bytes: record.block_bytes.into(),
            slab_bytes: record.slab_bytes.into(),
            slab_blocks: record.slab_blocks.into(),
            shared: record.shared,
            ..ClassStats::EMPTY
        }
    }

    /// Adds the counters of one thread.
    pub fn add_thread(&mut self, counters: &ClassCounters) {
        let sum = &mut self.threads;
        sum.allocs = sum.allocs.saturating_add(counters.allocs);
        sum.frees = sum.frees.saturating_add(counters.frees);
        sum.refills = sum.refills.saturating_add(counters.refills);
        sum.cached = sum.cached.saturating_add(counters.cached);
        sum.untouched = sum.untouched.wrapping_add(counters.untouched);
        sum.sent = sum.sent.saturating_add(counters.sent);
        sum.returned = sum.returned.saturating_add(counters.returned);
    }

    /// A counter that is no thread's.
    pub fn shared(&self, counter: ClassCounter) -> u64 {
        self.shared[counter as usize]
    }

    /// Whether anybody ever allocated from it.
    pub fn is_used(&self) -> bool {
        self.threads.refills > 0 || self.shared(ClassCounter::SlabsTaken) > 0
    }

    /// Blocks made ready for allocation, or allocated as samples: an upper bound of the allocations.
    pub fn allocs(&self) -> u64 {
        self.threads.allocs.saturating_add(self.shared(ClassCounter::SampledAllocs))
    }

    /// Blocks gathered in after they were freed: a lower bound of the frees.
    pub fn frees(&self) -> u64 {
        self.threads.frees.saturating_add(self.shared(ClassCounter::SharedFrees))
    }

    /// Allocations that no list of a thread had a block for.
    pub fn misses(&self) -> u64 {
        self.threads.refills.saturating_add(self.shared(ClassCounter::SampledAllocs))
    }

    /// Allocations that a list of a thread served.
    pub fn hits(&self) -> u64 {
        self.allocs().saturating_sub(self.misses())
    }

    /// Share of allocations that the thread caches served, 0 to 1; `None` before the first.
    pub fn hit_rate(&self) -> Option<f64> {
        let allocs = self.allocs();
        (allocs > 0).then(|| self.hits() as f64 / allocs as f64)
    }

    /// Slabs that the page heap gave out for this class.
    pub fn slabs(&self) -> u64 {
        self.shared(ClassCounter::SlabsTaken).saturating_sub(self.shared(ClassCounter::SlabsReturned))
    }

    /// Blocks that one thread freed, on their way to the thread that owns their slab.
    pub fn in_transfer_blocks(&self) -> u64 {
        self.threads.sent.saturating_sub(self.threads.returned)
    }

    /// Blocks that the program has.
    pub fn in_use_blocks(&self) -> u64 {
        let cached = self.threads.cached.saturating_add(self.in_transfer_blocks());
        self.allocs().saturating_sub(self.frees()).saturating_sub(cached)
    }

    /// Bytes of the blocks that the program has.
    pub fn in_use_bytes(&self) -> u64 {
        self.bytes(self.in_use_blocks())
    }

    /// Free blocks, in all tiers together.
    pub fn free_blocks(&self) -> u64 {
        self.slabs().saturating_mul(self.slab_blocks).saturating_sub(self.in_use_blocks())
    }

    /// Free blocks that no memory is behind yet, because nobody ever had them.
    pub fn untouched_blocks(&self) -> u64 {
        let blocks = self.threads.untouched.wrapping_add(self.shared(ClassCounter::Untouched)) as i64;
        (blocks.max(0) as u64).min(self.free_blocks())
    }

    /// Free blocks that threads have: in their lists, and in the slabs that they own.
    pub fn thread_blocks(&self) -> u64 {
        let shared = self.shared(ClassCounter::CentralFree).saturating_add(self.in_transfer_blocks());
        self.free_blocks().saturating_sub(shared).saturating_sub(self.untouched_blocks())
    }

    /// Bytes of `blocks` blocks.
    pub fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(self.block_bytes)
    }

    /// Bytes at the ends of slabs that are too small for a block.
    pub fn slack_bytes(&self) -> u64 {
        self.slabs().saturating_mul(self.slab_bytes.saturating_sub(self.bytes(self.slab_blocks)))
    }
}

impl Default for ClassStats {
    fn default() -> Self {
        ClassStats::EMPTY
    }
}

/// What a pool has done up to one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Process-wide counters, indexed by [`TierCounter`].
    pub tiers: [u64; TIER_COUNTERS.len()],
    /// Size classes; those behind `class_count` are empty.
    pub classes: [ClassStats; MAX_CLASSES],
    /// Size classes that there are.
    pub class_count: usize,
    /// Thread heaps that were ever made. A heap outlives its thread and serves the next one.
    pub heaps: u64,
    /// Bytes of a page of the page heap.
    pub page_bytes: u64,
    /// Mean bytes between two samples; 1 when every allocation is recorded.
    pub period_bytes: u64,
}

/// Where the bytes of a pool are; see [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// In blocks that the program has.
    pub in_use: u64,
    /// In free pages that have memory behind them.
    pub page_heap: u64,
    /// In free blocks of slabs that no thread owns, and at the ends of slabs.
    pub central_cache: u64,
    /// In blocks on their way from the thread that freed them to the one that owns their slab.
    pub transfer_cache: u64,
    /// In free blocks that threads have.
    pub thread_caches: u64,
    /// Of the pool's own.
    pub metadata: u64,
    /// In free pages and blocks that have no memory behind them.
    pub unmapped: u64,
}

impl Usage {
    /// What the system has given memory for (at most: it does so when memory is touched).
    pub fn physical(&self) -> u64 {
        let caches = [self.page_heap, self.central_cache, self.transfer_cache, self.thread_caches, self.metadata];
        caches.into_iter().fold(self.in_use, u64::saturating_add)
    }

    /// Addresses in use.
    pub fn virtual_bytes(&self) -> u64 {
        self.physical().saturating_add(self.unmapped)
    }
}

impl Stats {
    /// A pool that nobody used.
    pub const EMPTY: Stats = Stats {
        tiers: [0; TIER_COUNTERS.len()],
        classes: [ClassStats::EMPTY; MAX_CLASSES],
        class_count: 0,
        heaps: 0,
        page_bytes: 0,
        period_bytes: 0,
    };

    /// A process-wide counter.
    pub fn tier(&self, counter: TierCounter) -> u64 {
        self.tiers[counter as usize]
    }

    /// The size classes that there are.
    pub fn classes(&self) -> &[ClassStats] {
        self.classes.get(..self.class_count).unwrap_or(&self.classes)
    }

    /// Adds up over the size classes.
    pub fn sum(&self, of: impl Fn(&ClassStats) -> u64) -> u64 {
        self.classes().iter().map(of).fold(0, u64::saturating_add)
    }

    /// Where the bytes are.
    pub fn usage(&self) -> Usage {
        let free = self.tier(TierCounter::PageHeapFree);
        let unmapped = self.tier(TierCounter::SystemReleased).min(free);
        let central = self.sum(|class| class.bytes(class.shared(ClassCounter::CentralFree)));
        let central_cache = central.saturating_add(self.sum(ClassStats::slack_bytes));
        let transfer_cache = self.sum(|class| class.bytes(class.in_transfer_blocks()));
        let thread_caches = self.sum(|class| class.bytes(class.thread_blocks()));
        let untouched = self.sum(|class| class.bytes(class.untouched_blocks()));
        let caches = [central_cache, transfer_cache, thread_caches, untouched];
        let elsewhere = caches.into_iter().fold(free, u64::saturating_add);
        Usage {
            in_use: self.tier(TierCounter::SystemUsed).saturating_sub(elsewhere),
            page_heap: free - unmapped,
            central_cache,
            transfer_cache,
            thread_caches,
            metadata: self.tier(TierCounter::MetadataBytes),
            unmapped: unmapped.saturating_add(untouched),
        }
    }

    /// Spans that the page heap has given out: slabs and large blocks.
    pub fn spans_in_use(&self) -> u64 {
        self.tier(TierCounter::PageHeapAllocs).saturating_sub(self.tier(TierCounter::PageHeapFrees))
    }
}

#[cfg(test)]
mod tests;
