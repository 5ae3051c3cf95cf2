//! Where the memory of a process is: every byte that it has counts once, in a part that has a name.
//!
//! ```text
//! in use + caches + free + metadata + not the pool = resident set + swapped out + explicit huge pages
//! ```
//!
//! Of the pool's parts only what has memory behind it counts: blocks that were never touched are no memory. `stats`,
//! its JSON, `/metrics` and the dashboard show this.

use crate::model::snapshot::Snapshot;

/// A part of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Part {
    /// Blocks that the program has.
    InUse,
    /// Free blocks that threads keep.
    ThreadCaches,
    /// Free blocks on their way between threads.
    TransferCache,
    /// Free blocks that no thread keeps.
    CentralCache,
    /// Free pages.
    Free,
    /// The pool's own.
    Metadata,
    /// Files that the program maps.
    Files,
    /// Everything else that is not the pool's.
    Other,
}

impl Part {
    /// Every part, in the order in which they are shown.
    pub const ALL: [Part; 8] = [
        Part::InUse,
        Part::ThreadCaches,
        Part::TransferCache,
        Part::CentralCache,
        Part::Free,
        Part::Metadata,
        Part::Files,
        Part::Other,
    ];

    /// The word for it in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Part::InUse => "in_use",
            Part::ThreadCaches => "thread_caches",
            Part::TransferCache => "transfer_cache",
            Part::CentralCache => "central_cache",
            Part::Free => "free",
            Part::Metadata => "metadata",
            Part::Files => "files",
            Part::Other => "other",
        }
    }

    /// The word for it in tables.
    pub fn label(self) -> &'static str {
        match self {
            Part::InUse => "in use",
            Part::ThreadCaches => "thread caches",
            Part::TransferCache => "transfer cache",
            Part::CentralCache => "central cache",
            Part::Free => "free pages",
            Part::Metadata => "metadata",
            Part::Files => "files",
            Part::Other => "not the pool",
        }
    }

    /// What it is, in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Part::InUse => "Blocks that the program has, as far as it touched them.",
            Part::ThreadCaches => "Free blocks that threads keep for their next allocations.",
            Part::TransferCache => "Blocks that one thread freed, on their way to the thread that they came from.",
            Part::CentralCache => "Free blocks that no thread keeps, in slabs that still hold others.",
            Part::Free => "Free pages that were not given back to the system yet.",
            Part::Metadata => "What the pool keeps of its own, the profile that readers see included.",
            Part::Files => "Code and constants of the program and its libraries, and files that it maps.",
            Part::Other => "Stacks, globals and what the program mapped itself.",
        }
    }

    /// It is free memory that the pool keeps.
    pub fn is_cache(self) -> bool {
        matches!(self, Part::ThreadCaches | Part::TransferCache | Part::CentralCache)
    }

    /// It is no memory of the pool's.
    pub fn is_outside(self) -> bool {
        matches!(self, Part::Files | Part::Other)
    }
}

/// Where the memory of a process is, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    parts: [u64; Part::ALL.len()],
    /// Memory that the process has: its resident set, what is swapped out of it, and its explicit huge pages. `None` if
    /// nobody knows: of a process that is gone.
    pub memory: Option<u64>,
    /// Its resident set.
    pub rss: Option<u64>,
    /// Bytes of blocks in use, touched or not: the pool's exact counter.
    pub in_use: u64,
    /// Of those, what was never touched and is no memory.
    pub untouched: u64,
}

impl Accounting {
    /// Of a snapshot. The parts come to [`memory`](Self::memory), if that is known.
    pub fn of(snapshot: &Snapshot) -> Accounting {
        let usage = snapshot.stats().usage();
        let mut accounting = Accounting { in_use: usage.in_use, untouched: usage.untouched, ..Accounting::default() };
        accounting.set(Part::InUse, usage.in_use.saturating_sub(usage.untouched));
        accounting.set(Part::ThreadCaches, usage.thread_caches);
        accounting.set(Part::TransferCache, usage.transfer_cache);
        accounting.set(Part::CentralCache, usage.central_cache);
        accounting.set(Part::Free, usage.page_heap);
        accounting.set(Part::Metadata, usage.metadata);
        let Some(residence) = snapshot.residence else { return accounting };
        // The counter is of what exists of the segment, most of which nobody may have touched yet.
        let own = usage.metadata.saturating_sub(snapshot.segment_bytes).saturating_add(residence.segment);
        accounting.set(Part::Metadata, own);
        let memory = residence.rss.saturating_add(residence.swapped).saturating_add(residence.huge);
        accounting.memory = Some(memory);
        accounting.rss = Some(residence.rss);
        // The kernel's figures and the pool's are not of the very same moment: it is the kernel's that hold.
        let mut surplus = accounting.sum_of(|_| true).saturating_sub(memory);
        for part in [Part::InUse, Part::ThreadCaches, Part::CentralCache, Part::Free, Part::Metadata] {
            let less = surplus.min(accounting.get(part));
            accounting.set(part, accounting.get(part) - less);
            surplus -= less;
        }
        let outside = memory.saturating_sub(accounting.sum_of(|_| true));
        accounting.set(Part::Files, residence.files.min(outside));
        accounting.set(Part::Other, outside.saturating_sub(residence.files));
        accounting
    }

    fn set(&mut self, part: Part, bytes: u64) {
        self.parts[part as usize] = bytes;
    }

    /// Bytes of a part.
    pub fn get(&self, part: Part) -> u64 {
        self.parts[part as usize]
    }

    /// The parts with their bytes, in order; what is outside of the pool only where that is known.
    pub fn parts(&self) -> impl Iterator<Item = (Part, u64)> {
        let known = self.memory.is_some();
        Part::ALL.into_iter().filter(move |part| known || !part.is_outside()).map(|part| (part, self.get(part)))
    }

    /// Free memory that the pool keeps in its three caches.
    pub fn caches(&self) -> u64 {
        self.sum_of(Part::is_cache)
    }

    /// All memory of the pool.
    pub fn pool(&self) -> u64 {
        self.sum_of(|part| !part.is_outside())
    }

    /// Memory that is not the pool's; `None` if nobody knows.
    pub fn not_the_pool(&self) -> Option<u64> {
        self.memory.map(|_| self.sum_of(Part::is_outside))
    }

    fn sum_of(&self, is_meant: impl Fn(Part) -> bool) -> u64 {
        Part::ALL.into_iter().filter(|part| is_meant(*part)).fold(0, |sum, part| sum.saturating_add(self.get(part)))
    }
}

#[cfg(test)]
mod tests {
    use poolscope_wire::{TIER_COUNTERS, TierCounter};

    use super::*;
    use crate::model::snapshot::{Residence, Tiers};

    const MIB: u64 = 1 << 20;

    fn snapshot(residence: Option<Residence>) -> Snapshot {
        let mut tiers = vec![0; TIER_COUNTERS.len()];
        tiers[TierCounter::SystemUsed as usize] = 64 * MIB;
        tiers[TierCounter::PageHeapFree as usize] = 10 * MIB;
        tiers[TierCounter::SystemReleased as usize] = 4 * MIB;
        tiers[TierCounter::LargeBytes as usize] = 40 * MIB;
        tiers[TierCounter::MetadataBytes as usize] = 3 * MIB;
        Snapshot { tiers: Tiers::new(tiers), residence, segment_bytes: 2 * MIB, ..Snapshot::default() }
    }

    #[test]
    fn parts_come_to_the_memory_of_the_process() {
        let residence = Residence { rss: 60 * MIB, swapped: 2 * MIB, huge: 0, segment: MIB / 2, files: 4 * MIB };
        let accounting = Accounting::of(&snapshot(Some(residence)));
        let figures: Vec<u64> = accounting.parts().map(|(_, bytes)| bytes).collect();
        assert_eq!(figures.iter().sum::<u64>(), 62 * MIB);
        assert_eq!(accounting.get(Part::InUse), 40 * MIB);
        assert_eq!(accounting.get(Part::Free), 6 * MIB, "what was given back is no memory");
        assert_eq!(accounting.get(Part::Metadata), 3 * MIB / 2, "what nobody touched of the segment is none");
        assert_eq!(accounting.get(Part::Files), 4 * MIB);
        assert_eq!(accounting.not_the_pool(), Some(62 * MIB - 40 * MIB - 6 * MIB - 3 * MIB / 2));
        assert_eq!(accounting.pool() + accounting.not_the_pool().unwrap_or(0), 62 * MIB);
    }

    /// A program that frees between two looks.
    #[test]
    fn what_the_kernel_does_not_have_is_nobodys() {
        let residence = Residence { rss: 30 * MIB, files: 4 * MIB, ..Residence::default() };
        let accounting = Accounting::of(&snapshot(Some(residence)));
        assert_eq!(accounting.parts().map(|(_, bytes)| bytes).sum::<u64>(), 30 * MIB);
        assert_eq!((accounting.in_use, accounting.not_the_pool()), (40 * MIB, Some(0)));
    }

    #[test]
    fn of_the_dead_the_pools_parts_are_known() {
        let accounting = Accounting::of(&snapshot(None));
        assert_eq!((accounting.memory, accounting.not_the_pool()), (None, None));
        assert_eq!(accounting.parts().count(), 6);
        assert_eq!(accounting.pool(), 49 * MIB);
    }

    #[test]
    fn every_part_has_a_name_and_a_sentence() {
        for part in Part::ALL {
            assert!(part.sentence().ends_with('.') && !part.label().is_empty() && !part.name().contains(' '));
        }
    }
}
