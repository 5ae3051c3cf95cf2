//! The live table: every sampled block that is allocated now.
//!
//! The table itself is private memory, so that a forked child has its own copy as of the fork; each change is
//! published to the segment.

use core::sync::atomic::AtomicU32;

use poolscope_wire::{LiveRecord, Region, kind};

use super::sequence;
use crate::os;
use crate::segment::Segment;
use crate::slab::NO_SLOT;
use crate::stats::{self, TierCounter};

/// The private table.
pub struct LiveTable {
    records: *mut LiveRecord,
    capacity: u32,
    /// Records whose memory is usable.
    committed: u32,
    /// Slots below this were used at some time.
    high: u32,
    /// First of the free slots below `high`, linked through [`LiveRecord::stack`].
    free: u32,
}

impl LiveTable {
    /// Before [`LiveTable::start`].
    pub const fn new() -> Self {
        LiveTable { records: core::ptr::null_mut(), capacity: 0, committed: 0, high: 0, free: NO_SLOT }
    }

    /// Makes room for as many records as the segment can take. False if there is no address space.
    pub fn start(&mut self, segment: &Segment) -> bool {
        self.capacity = segment.capacity(Region::Live) as u32;
        self.records = os::reserve(self.capacity as usize * LiveRecord::LEN).cast();
        !self.records.is_null()
    }

    /// Gives back the addresses of records that the segment has no room for any more.
    pub fn fit(&mut self, segment: &Segment) {
        let capacity = (segment.capacity(Region::Live) as u32).max(self.committed);
        if capacity >= self.capacity {
            return;
        }
        let keep = (capacity as usize * LiveRecord::LEN).next_multiple_of(4096);
        let all = self.capacity as usize * LiveRecord::LEN;
        // SAFETY: nothing behind the committed records is in use.
        unsafe { os::unmap(self.records.cast::<u8>().add(keep), all - keep) };
        self.capacity = capacity;
    }

    /// A slot's record.
    pub fn get(&self, slot: u32) -> Option<&LiveRecord> {
        // SAFETY: slots below `high` lie inside the table.
        (slot < self.high).then(|| unsafe { &*self.records.add(slot as usize) })
    }

    /// All slots that were ever used.
    pub fn len(&self) -> u32 {
        self.high
    }

    /// Adds a record; [`NO_SLOT`] if the table, or its part of the segment, is full.
    pub fn insert(&mut self, segment: &Segment, record: LiveRecord) -> u32 {
        let slot = if self.free != NO_SLOT { self.free } else { self.high };
        // A forked child's segment may not have the slots that the table freed before.
        if slot == self.capacity || !self.commit() || !segment.commit(Region::Live, slot + 1) {
            segment.header().dropped_live += 1;
            return NO_SLOT;
        }
        // SAFETY: `slot` is below the capacity.
        let place = unsafe { &mut *self.records.add(slot as usize) };
        if slot == self.high {
            self.high += 1;
        } else {
            self.free = place.stack;
        }
        *place = record;
        publish(segment, slot, record);
        segment.raise_count(Region::Live, slot + 1);
        slot
    }

    /// Makes the record behind those in use usable.
    fn commit(&mut self) -> bool {
        if self.high < self.committed || self.high == self.capacity {
            return true;
        }
        let wanted = (self.committed * 2).max(1024).min(self.capacity);
        // SAFETY: the table reserved the range for these records.
        let done = unsafe { os::commit(self.records.cast(), wanted as usize * LiveRecord::LEN) };
        if done {
            stats::add(TierCounter::MetadataBytes, u64::from(wanted - self.committed) * LiveRecord::LEN as u64);
            self.committed = wanted;
        }
        done
    }

    /// Takes a record out.
    pub fn remove(&mut self, segment: &Segment, slot: u32) -> Option<LiveRecord> {
        let record = self.drop_unpublished(slot)?;
        publish(segment, slot, LiveRecord::ZERO);
        Some(record)
    }

    /// Takes a record out that the segment does not have.
    pub fn drop_unpublished(&mut self, slot: u32) -> Option<LiveRecord> {
        let record = *self.get(slot)?;
        // SAFETY: `get` found the slot.
        let place = unsafe { &mut *self.records.add(slot as usize) };
        *place = LiveRecord { stack: self.free, kind: kind::NONE, ..LiveRecord::ZERO };
        self.free = slot;
        Some(record)
    }

    /// Changes the size of a record; the record as it was.
    pub fn resize(&mut self, segment: &Segment, slot: u32, size: u64) -> Option<LiveRecord> {
        let before = *self.get(slot)?;
        // SAFETY: `get` found the slot.
        let place = unsafe { &mut *self.records.add(slot as usize) };
        place.size = size;
        publish(segment, slot, *place);
        Some(before)
    }

    /// Publishes the whole table to a new segment; what it has no room for is dropped and counted.
    pub fn publish_all(&self, segment: &Segment) {
        for slot in 0..self.high {
            let Some(record) = self.get(slot).filter(|record| record.kind != kind::NONE) else { continue };
            if !segment.commit(Region::Live, slot + 1) {
                segment.header().dropped_live += 1;
                continue;
            }
            publish(segment, slot, *record);
            segment.raise_count(Region::Live, slot + 1);
        }
    }
}

/// Writes a record to the segment under its sequence number.
fn publish(segment: &Segment, slot: u32, record: LiveRecord) {
    if !segment.is_committed(Region::Live, slot + 1) {
        return;
    }
    let place = segment.record::<LiveRecord>(Region::Live, slot);
    // SAFETY: the slot is committed, its number aligned; the caller holds the sampler's lock, so there is one writer.
    unsafe {
        let seq = AtomicU32::from_ptr(&raw mut (*place).seq);
        sequence::change(seq, |seq| place.write_volatile(LiveRecord { seq, ..record }));
    }
}
