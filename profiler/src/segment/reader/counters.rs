//! The counters of the process, of its classes and of its threads, as of one census.

use std::time::Duration;

use poolscope_wire::{
    ClassCounters, ClassRecord, Region, RegionEntry, TIER_COUNTERS, ThreadRecord, TierCounter, thread_state,
};

use super::asks::Begun;
use super::{SegmentReader, words};
use crate::model::snapshot::{ClassStats, Dropped, ProcessState, Residence, ThreadStats, Tiers};
use crate::process::residence::residence;
use crate::segment::read_error::ReadError;

/// How long a census is waited for that is just being written.
const CENSUS_WAIT: Duration = Duration::from_millis(1);
const CENSUS_TRIES: u32 = 8;

/// The counters of one census, and the memory of the process then.
pub(super) struct Counters {
    pub(super) tiers: Tiers,
    pub(super) classes: Vec<ClassStats>,
    pub(super) threads: Vec<ThreadStats>,
    pub(super) residence: Option<Residence>,
}

impl SegmentReader {
    /// The counters of one census, of the process, of its classes and of its threads.
    pub(super) fn read_counters(&mut self, state: ProcessState, dropped: &mut Dropped) -> Result<Counters, ReadError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.read_same_header()?;
            let mut invalid = Dropped::default();
            let tiers = self.read_tiers(before.region(Region::Tiers))?;
            let mut classes = self.read_classes(before.region(Region::Classes))?;
            let threads = self.read_threads(before.region(Region::Threads), &mut classes, &mut invalid)?;
            // Single words are right also while a census is written; they are only not of one moment.
            let is_whole =
                before.census_seq.is_multiple_of(2) && self.read_same_header()?.census_seq == before.census_seq;
            if is_whole || tries > CENSUS_TRIES || state != ProcessState::Running {
                dropped.invalid += invalid.invalid;
                let (mut pages, mut of_process) = (None, None);
                if state == ProcessState::Running && self.asks.is_due() {
                    let file = self.file.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    let begun = Begun::now();
                    (pages, of_process) = residence(self.pid, &before.grounds, file);
                    self.asks.asked(begun);
                }
                let resident = pages.filter(|_| before.census_ns > 0);
                // A thread publishes each sample at once where no census does, and the total follows.
                let samples = threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.samples));
                let tiers = tiers.at_least(TierCounter::Samples, samples);
                let census_ns = (before.is_watched == 1).then_some(before.census_ns);
                let tiers = tiers.with_memory(before.unbacked, resident).of_census(census_ns);
                return Ok(Counters { tiers, classes, threads, residence: of_process });
            }
            std::thread::sleep(CENSUS_WAIT);
        }
    }

    fn read_tiers(&mut self, entry: RegionEntry) -> Result<Tiers, ReadError> {
        let entry = RegionEntry { count: entry.count.min(TIER_COUNTERS.len() as u64), ..entry };
        let Self { file, copies: [buffer, _], .. } = self;
        let mut counters = Vec::with_capacity(TIER_COUNTERS.len());
        file.for_each_chunk(entry, Region::Tiers, 0, buffer, |_, chunk| {
            counters.extend(words(chunk));
            Ok(())
        })?;
        Ok(Tiers::new(counters))
    }

    fn read_classes(&mut self, entry: RegionEntry) -> Result<Vec<ClassStats>, ReadError> {
        let Self { file, copies: [buffer, _], .. } = self;
        let mut classes = Vec::with_capacity(entry.count as usize);
        file.for_each_chunk(entry, Region::Classes, 0, buffer, |_, chunk| {
            let records = chunk.chunks_exact(ClassRecord::LEN).filter_map(ClassRecord::from_bytes);
            classes.extend(records.map(|record| ClassStats::new(&record)));
            Ok(())
        })?;
        Ok(classes)
    }

    fn read_threads(
        &mut self,
        entry: RegionEntry,
        classes: &mut [ClassStats],
        dropped: &mut Dropped,
    ) -> Result<Vec<ThreadStats>, ReadError> {
        let Self { file, copies: [buffer, _], .. } = self;
        let mut threads = Vec::new();
        file.for_each_chunk(entry, Region::Threads, 0, buffer, |_, chunk| {
            for bytes in chunk.chunks_exact(Region::Threads.record_len()) {
                let Some(record) = ThreadRecord::from_bytes(bytes) else { continue };
                match record.state {
                    thread_state::UNUSED => continue,
                    thread_state::LIVE | thread_state::EXITED => {}
                    _ => {
                        dropped.invalid += 1;
                        continue;
                    }
                }
                threads.push(thread(&record, &bytes[ThreadRecord::LEN..], classes));
            }
            Ok(())
        })?;
        Ok(threads)
    }
}

fn thread(record: &ThreadRecord, counters: &[u8], classes: &mut [ClassStats]) -> ThreadStats {
    let mut stats = ThreadStats {
        tid: record.tid,
        live: record.state == thread_state::LIVE,
        samples: record.samples,
        remote_frees: record.remote_frees,
        allocs: record.uncached_allocs,
        alloc_bytes: record.uncached_bytes,
        uncached_allocs: record.uncached_allocs,
        uncached_bytes: record.uncached_bytes,
        ..ThreadStats::default()
    };
    for (class, bytes) in classes.iter_mut().zip(counters.chunks_exact(ClassCounters::LEN)) {
        let Some(counter) = ClassCounters::from_bytes(bytes) else { continue };
        class.add_thread(&counter);
        stats.allocs = stats.allocs.saturating_add(counter.allocated());
        stats.frees = stats.frees.saturating_add(counter.frees);
        stats.refills = stats.refills.saturating_add(counter.refills);
        stats.alloc_bytes = stats.alloc_bytes.saturating_add(counter.allocated().saturating_mul(class.block_bytes));
    }
    stats
}
