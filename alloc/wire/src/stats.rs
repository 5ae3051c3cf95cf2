//! The statistics of a pool: one model, filled by the process itself from its live counters and by a reader from the
//! segment, and shown by [`text`] and [`json`].
//!
//! # What a byte counts as
//!
//! ```text
//! virtual = physical + unmapped
//! physical = in use - untouched + page heap + central cache + transfer cache + thread caches + metadata
//! ```
//!
//! The pages that the page heap ever had are in slabs, in large blocks, or free. The blocks of slabs are in use, or
//! free in one of three tiers. What is left over at a slab's end, too small for a block, counts as the central cache's.
//! A block is in use from `malloc` to `free`, with all bytes of its class, or with all its pages if it is a large one.
//!
//! Only what has memory behind it counts in a tier, and all that has none is "unmapped". Blocks in use count in full;
//! what the program never touched of them is "untouched", and unmapped, too. The kernel says what has memory, page by
//! page. Within the blocks of a slab that were ever handed out, untouched bytes count as in use, in proportion to the
//! blocks that are.
//!
//! # What is exact, and what is not
//!
//! A program that makes few calls counts each of them: all figures are exact at any moment. A program that makes many
//! is looked at by the pool's own thread: it takes a *census* of all blocks each 80 ms, or at longer intervals where
//! that takes more than a hundredth of a processor (some 3 ms for each gigabyte of small blocks in use, and some
//! 10 us for each thread that uses many classes). The figures of the segment are those of the last census, also after
//! the process was killed. A census does not stop the program, so that each of its counters is off by at most what the
//! threads do while it runs. When nothing has changed between two censuses, calls are counted again, beginning with an
//! exact count of everything, and the thread ends: an idle program has no wake-ups, and its figures are exact.
//!
//! `malloc_stats`, `mallinfo2`, `malloc_info` and `stats()` take a census themselves. Batches of
//! the transfer cache count 64 at a time.
//!
//! While calls are counted, a call takes a census of its own when the pool's pages have doubled since the last one,
//! with each large block, and when the system was asked for something: how much memory there is follows at once, and
//! how much of it is in which tier is as of then.
//!
//! What a program touches for the first time is seen by the next census. A reader of a living process of its own
//! user asks the kernel again (`/proc/PID/smaps`, `/proc/PID/pagemap`): what it finds more or less than the last census
//! is more or less of the blocks in use, since an idle program touches no others.
//!
//! Where there is no such thread (`POOLSCOPE_PLAIN=1`, valgrind, processors other than x86-64, where `clone` is
//! refused), a thread publishes the counters of a class when it has to refill it: between two refills, the blocks that
//! it takes from its list count as cached, and those that it frees as in use. There, the program's own calls, and no
//! reader, see exact figures. A process that was forked and runs on without `exec` has a segment from its first sample
//! on, and counts as its own what its parent had in use. In the hardened mode, freed blocks in quarantine count as in
//! use, those between guards left out, which have no memory any more. There, readers keep to the last census.

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
    /// The counters of all threads added up, samples left out. `allocs` is of blocks that the program has got
    /// ([`ClassCounters::allocated`]).
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
        sum.allocs = sum.allocs.saturating_add(counters.allocated());
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

    /// Blocks that the program has got.
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
        self.allocs().saturating_sub(self.frees()).saturating_sub(self.in_transfer_blocks())
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

/// Bytes that the pool has beside each page of its page heap, to know what it is.
pub const DESCRIPTOR_BYTES: u64 = 64;

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
    /// For each [`Unbacked`], the bytes that the counters say have memory and that had none at the last census, in
    /// two's complement.
    pub unbacked: [u64; Unbacked::COUNT],
    /// Bytes of the pool's pages and their descriptors that have memory now, as the kernel says; `None` if nobody asked
    /// since the last census.
    pub resident: Option<u64>,
}

/// Parts of the memory of which the counters don't know how much of it has memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Unbacked {
    /// Blocks in use.
    InUse,
    /// Free pages.
    PageHeap,
    /// Free blocks that no thread owns, and the ends of slabs.
    CentralCache,
    /// Free blocks that threads have.
    ThreadCaches,
    /// Descriptors of pages.
    Metadata,
}

impl Unbacked {
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// Where the bytes of a pool are; see [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// In blocks that the program has, touched or not.
    pub in_use: u64,
    /// Of those, what has no memory behind it.
    pub untouched: u64,
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
    /// Pages, or parts of them, that have no memory behind them.
    pub unmapped: u64,
}

impl Usage {
    /// What has memory behind it.
    pub fn physical(&self) -> u64 {
        self.pages().saturating_add(self.metadata)
    }

    /// The same without metadata.
    fn pages(&self) -> u64 {
        let caches = [self.page_heap, self.central_cache, self.transfer_cache, self.thread_caches];
        caches.into_iter().fold(self.in_use.saturating_sub(self.untouched), u64::saturating_add)
    }

    /// Counts `now` bytes of pages as having memory, and not [`Usage::pages`]: more or less of the blocks in use, as
    /// far as that can be. Before those, `fresh` bytes of free blocks in thread caches may be what has none. What has
    /// memory beyond all blocks was a free page without any at the last census, and counts as one with memory.
    fn settle(&mut self, now: u64, fresh: u64) {
        let missing = now.saturating_sub(self.pages());
        let of_blocks = missing.min(self.untouched);
        self.untouched -= of_blocks;
        self.page_heap = self.page_heap.saturating_add(missing - of_blocks);
        let mut surplus = self.pages().saturating_sub(now);
        let of_fresh = surplus.min(fresh).min(self.thread_caches);
        self.thread_caches -= of_fresh;
        surplus -= of_fresh;
        let of_blocks = surplus.min(self.in_use.saturating_sub(self.untouched));
        self.untouched += of_blocks;
        surplus -= of_blocks;
        for tier in [&mut self.page_heap, &mut self.thread_caches, &mut self.central_cache] {
            let less = surplus.min(*tier);
            *tier -= less;
            surplus -= less;
        }
    }

    /// Addresses in use.
    pub fn virtual_bytes(&self) -> u64 {
        self.physical().saturating_add(self.unmapped)
    }
}

/// What the size classes come to, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    in_use: u64,
    central: u64,
    transfer: u64,
    thread_caches: u64,
    /// The same without the first page of each block: of a block that was cut and never handed out, only that one was
    /// written to.
    beyond: u64,
}

impl Sums {
    /// Adds a class.
    pub fn add(&mut self, class: &ClassStats) {
        let free = class.thread_blocks();
        let sum = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
        sum(&mut self.in_use, class.in_use_bytes());
        sum(
            &mut self.central,
            class.bytes(class.shared(ClassCounter::CentralFree)).saturating_add(class.slack_bytes()),
        );
        sum(&mut self.transfer, class.bytes(class.in_transfer_blocks()));
        sum(&mut self.thread_caches, class.bytes(free));
        sum(&mut self.beyond, free.saturating_mul(class.block_bytes.saturating_sub(4096)));
    }
}

/// What is known of the memory behind a pool's pages.
#[derive(Clone, Copy, Debug)]
pub struct Backing<'a> {
    /// [`Stats::unbacked`].
    pub unbacked: &'a [u64; Unbacked::COUNT],
    /// [`Stats::resident`].
    pub resident: Option<u64>,
    /// [`Stats::page_bytes`].
    pub page_bytes: u64,
}

impl Usage {
    /// Where the bytes are, by the sums over the classes and the counters of the process.
    pub fn of(sums: &Sums, tier: impl Fn(TierCounter) -> u64, backing: &Backing<'_>) -> Usage {
        let unbacked = |part| backing.unbacked[part as usize] as i64;
        let backed = |bytes: u64, part| bytes.saturating_add_signed(unbacked(part).wrapping_neg());
        let free = tier(TierCounter::PageHeapFree);
        let in_use = sums.in_use.saturating_add(tier(TierCounter::LargeBytes));
        let mut usage = Usage {
            in_use,
            untouched: in_use - backed(in_use, Unbacked::InUse).min(in_use),
            page_heap: backed(free - tier(TierCounter::SystemReleased).min(free), Unbacked::PageHeap),
            central_cache: backed(sums.central, Unbacked::CentralCache),
            transfer_cache: sums.transfer,
            thread_caches: backed(sums.thread_caches, Unbacked::ThreadCaches),
            metadata: backed(tier(TierCounter::MetadataBytes), Unbacked::Metadata),
            unmapped: 0,
        };
        let used = tier(TierCounter::SystemUsed);
        if let Some(resident) = backing.resident {
            let descriptors = backed(used / backing.page_bytes.max(1) * DESCRIPTOR_BYTES, Unbacked::Metadata);
            let known = unbacked(Unbacked::ThreadCaches).max(0) as u64;
            usage.settle(resident.saturating_sub(descriptors), sums.beyond.saturating_sub(known));
        }
        usage.unmapped = used.saturating_sub(usage.pages());
        usage
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
        unbacked: [0; Unbacked::COUNT],
        resident: None,
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
        let mut sums = Sums::default();
        self.classes().iter().for_each(|class| sums.add(class));
        let backing = Backing { unbacked: &self.unbacked, resident: self.resident, page_bytes: self.page_bytes };
        Usage::of(&sums, |counter| self.tier(counter), &backing)
    }

    /// Spans that the page heap has given out: slabs and large blocks.
    pub fn spans_in_use(&self) -> u64 {
        self.tier(TierCounter::PageHeapAllocs).saturating_sub(self.tier(TierCounter::PageHeapFrees))
    }
}

#[cfg(test)]
mod tests;
