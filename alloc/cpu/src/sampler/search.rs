//! The records of blocks for who looks for unreachable ones ([`crate::reach`]).

use core::sync::atomic::Ordering;

use poolscope_wire::reach::{outcome, verdict};
use poolscope_wire::{LiveRecord, ReachRecord, flags, kind};

use super::sampled_slabs::{FREE, slot};
use super::{SAMPLER, Sampler, period, stack_table};
use crate::kernel::os;
use crate::layout::arena;
use crate::layout::block::BlockPtr;
use crate::layout::slab::{Slab, owner};
use crate::segment::Segment;
use crate::segment::ownership::own_segment;
use crate::sync::spin_lock::{Guard, SlowPath};

/// The records. Nothing changes in them, or in slabs of recorded blocks, as long as this is there.
pub struct Records {
    sampler: Guard<'static, Sampler>,
    segment: Segment,
}

/// A block of host memory that is in use.
#[derive(Clone, Copy)]
pub struct Recorded {
    /// Where it lies.
    pub address: usize,
    /// Bytes that the program asked for.
    pub size: usize,
}

/// The records of this process, or one of [`outcome`] that says why there are none to search by. `None` if it has no
/// segment of its own.
pub fn records(slow: SlowPath) -> Option<Result<Records, u32>> {
    of(SAMPLER.lock(slow))
}

/// The same while other threads are stopped: the outer `None` if one of them holds the records.
pub fn try_records(slow: SlowPath) -> Option<Option<Result<Records, u32>>> {
    SAMPLER.try_lock(slow).map(of)
}

fn of(sampler: Guard<'static, Sampler>) -> Option<Result<Records, u32>> {
    // A child of `vfork` runs in its parent's memory, but it is not the process of this segment.
    let segment = sampler.segment.filter(|segment| own_segment() && segment.is_of(os::process_id()))?;
    let header = segment.header();
    let is_exact = header.flags & flags::EXACT != 0 && period() <= 1;
    let has_all = header.dropped_live == 0;
    let records = Records { sampler, segment };
    let outcome = match (is_exact, has_all) {
        (false, _) => outcome::SAMPLED,
        (true, false) => outcome::NO_ROOM,
        (true, true) => return Some(Ok(records)),
    };
    records.report(ReachRecord { state: outcome, ..ReachRecord::ZERO });
    Some(Err(outcome))
}

/// What the last search of this process reported. `None` if the process has no segment of its own.
pub fn last(slow: SlowPath) -> Option<ReachRecord> {
    let sampler = SAMPLER.lock(slow);
    let segment = sampler.segment.filter(|segment| own_segment() && segment.is_of(os::process_id()))?;
    Some(segment.header().reach)
}

/// Says that the block that an address lies in is no leak. False if that was said before; `None` if there is no
/// recorded block.
pub fn ignore(slow: SlowPath, address: usize) -> Option<bool> {
    let mut sampler = SAMPLER.lock(slow);
    let segment = sampler.segment.filter(|segment| own_segment() && segment.is_of(os::process_id()))?;
    let page = arena::page_of(address as *mut u8)?;
    let number = match page.owner.load(Ordering::Relaxed) {
        owner::LARGE => page.live_slot(),
        owner::SAMPLED => {
            let slab = page.head();
            let (base, size) = (slab.address() as usize, slab.class.get().block());
            let index = (address - base) / size;
            if index >= usize::from(slab.carved.get()) {
                return None;
            }
            slot(slab, (base + index * size) as *mut u8).get()
        }
        _ => return None,
    };
    let record = sampler.live.get(number).filter(|record| number < FREE && record.kind == kind::HOST)?;
    let is_new = record.verdict != verdict::IGNORED;
    sampler.live.change(&segment, number, |record| {
        (record.verdict, record.leader) = (verdict::IGNORED, 0);
        is_new
    });
    Some(is_new)
}

impl Records {
    /// Numbers of records are below this.
    pub fn len(&self) -> u32 {
        self.sampler.live.len()
    }

    /// The block of a record; `None` if it is free, or of another memory than the host's.
    #[inline]
    pub fn get(&self, number: u32) -> Option<Recorded> {
        let record = self.sampler.live.get(number).filter(|record| record.kind == kind::HOST)?;
        Some(Recorded { address: record.address as usize, size: record.size as usize })
    }

    /// To be called when a record is needed soon: its memory comes into the processor's cache.
    #[inline]
    pub fn fetch(&self, number: u32) {
        if let Some(record) = self.sampler.live.get(number) {
            BlockPtr::new((&raw const *record).cast_mut().cast()).prefetch();
        }
    }

    /// The block of a record of a device's memory, or of memory that is pinned for one; and whether it is pinned.
    pub fn get_of_device(&self, number: u32) -> Option<(Recorded, bool)> {
        let is_one = |record: &&LiveRecord| [kind::DEVICE, kind::PINNED].contains(&record.kind);
        let record = self.sampler.live.get(number).filter(is_one)?;
        let block = Recorded { address: record.address as usize, size: record.size as usize };
        Some((block, record.kind == kind::PINNED))
    }

    /// Where the block of a record lies, of whichever memory; 0 if it is free.
    pub fn address(&self, number: u32) -> usize {
        let record = self.sampler.live.get(number).filter(|record| record.kind != kind::NONE);
        record.map_or(0, |record| record.address as usize)
    }

    /// The return addresses of the stack that allocated a record's block, innermost first.
    pub fn frames(&self, number: u32) -> impl Iterator<Item = u64> {
        let record = self.sampler.live.get(number);
        record.map(|record| stack_table::frames(&self.segment, record.stack)).into_iter().flatten()
    }

    /// Bytes of the block of a record, of whichever memory.
    pub fn bytes(&self, number: u32) -> u64 {
        self.sampler.live.get(number).map_or(0, |record| record.size)
    }

    /// When a record's block was allocated, in nanoseconds of `CLOCK_MONOTONIC`; `None` if it is free.
    pub fn time_ns(&self, number: u32) -> Option<u64> {
        self.sampler.live.get(number).filter(|record| record.kind != kind::NONE).map(|record| record.time_ns)
    }

    /// Whether the program has said that a block is no leak.
    pub fn is_ignored(&self, number: u32) -> bool {
        self.sampler.live.get(number).is_some_and(|record| record.verdict == verdict::IGNORED)
    }

    /// The record of the block at `index` of a slab of recorded blocks. `None` if that is free, or not recorded.
    #[inline]
    pub fn of_slab(&self, slab: &'static Slab, block: usize) -> Option<u32> {
        let number = slot(slab, block as *mut u8).get();
        (number < FREE).then_some(number)
    }

    /// Where records lie, and what is known of Python's functions: addresses of blocks that hold nothing. Each range ends with the second address.
    pub fn own_memory(&self) -> [(usize, usize); 4] {
        let [known, scratch] = self.sampler.functions.addresses();
        [self.sampler.live.addresses(), self.segment.addresses(), known, scratch]
    }

    /// Says of a block what was found.
    pub fn judge(&mut self, number: u32, verdict: u16, leader: u64) {
        let segment = self.segment;
        self.sampler.live.change(&segment, number, |record: &mut LiveRecord| {
            let is_new = (record.verdict, record.leader) != (verdict, leader);
            (record.verdict, record.leader) = (verdict, leader);
            is_new
        });
    }

    /// Says what the search looked at.
    pub fn report(&self, report: ReachRecord) {
        let header = self.segment.header();
        header.reach = ReachRecord { searches: header.reach.searches + 1, ..report };
    }
}

/// Bytes of a new block that are wiped.
const WIPED: usize = 16 << 10;

/// Takes out of a new block what an earlier one left there: a search for unreachable blocks would find pointers that
/// the program has long forgotten, as in the rest of a buffer, and what lies where they point now would not be lost.
#[inline]
pub(super) fn wipe(p: *mut u8, size: usize) {
    // SAFETY: the block is nobody's yet, and holds `size` bytes.
    unsafe { p.write_bytes(0, size.min(WIPED)) };
}
