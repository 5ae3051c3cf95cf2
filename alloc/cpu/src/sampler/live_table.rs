//! The live table: every sampled block that is allocated now.
//!
//! The table itself is private memory, so that a forked child has its own copy as of the fork; each change is
//! published to the segment. Pages in which no block is left go back, of both: to a reader they are free slots,
//! as before.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;

use poolscope_wire::{LiveRecord, Region, kind};

use crate::layout::slab::NO_SLOT;
use crate::pages::slot_table::{PAGE_SLOTS, SlotTable};
use crate::segment::Segment;
use crate::segment::sequence;

/// Pages that are made to exist again at once: each time takes system calls.
const RESTORED: u32 = 16;

/// The private table.
pub struct LiveTable {
    slots: SlotTable,
    /// Times that pages were made to exist again: their records' sequence numbers begin where no earlier one was.
    restored: u32,
}

impl LiveTable {
    /// Before [`LiveTable::start`].
    pub const fn new() -> Self {
        LiveTable { slots: SlotTable::new(), restored: 0 }
    }

    /// Makes room for as many records as the segment can take. False if there is no address space.
    pub fn start(&mut self, segment: &Segment) -> bool {
        self.slots.start(segment.capacity(Region::Live) as u32)
    }

    /// Gives back the addresses of records that the segment has no room for any more.
    pub fn fit(&mut self, segment: &Segment) {
        self.slots.fit(segment.capacity(Region::Live) as u32);
    }

    /// A slot's record.
    pub fn get(&self, slot: u32) -> Option<&LiveRecord> {
        // SAFETY: slots that were ever taken can be read; what has gone back reads as none.
        (slot < self.slots.high()).then(|| unsafe { &*self.slots.place(slot) })
    }

    /// All slots that were ever used.
    pub fn len(&self) -> u32 {
        self.slots.high()
    }

    /// Adds a record; [`NO_SLOT`] if the table, or its part of the segment, is full.
    pub fn insert(&mut self, segment: &Segment, record: LiveRecord) -> u32 {
        let Some(slot) = self.slots.lowest().filter(|slot| self.make_room(segment, *slot)) else {
            segment.header().dropped_live += 1;
            return NO_SLOT;
        };
        self.slots.take(slot);
        // SAFETY: the slot is usable, and free until now.
        unsafe { self.slots.place::<LiveRecord>(slot).write(record) };
        publish(segment, slot, record);
        segment.raise_count(Region::Live, slot + 1);
        slot
    }

    /// Makes a slot usable, here and in the segment.
    #[inline]
    fn make_room(&mut self, segment: &Segment, slot: u32) -> bool {
        self.slots.is_present(slot / PAGE_SLOTS) || self.make_page(segment, slot)
    }

    #[cold]
    fn make_page(&mut self, segment: &Segment, slot: u32) -> bool {
        let page = slot / PAGE_SLOTS;
        if page < self.slots.seen() {
            let pages = self.slots.absent_from(page, RESTORED);
            let first = page * PAGE_SLOTS;
            let count = segment.restore(Region::Live, first, pages * PAGE_SLOTS, PAGE_SLOTS);
            if count == 0 {
                return false;
            }
            self.slots.restore(page, count / PAGE_SLOTS);
            self.restored = self.restored.wrapping_add(1);
            for slot in first..first + count {
                // SAFETY: the records exist again, and the caller holds the sampler's lock.
                unsafe { (*segment.record::<LiveRecord>(Region::Live, slot)).seq = self.restored << 16 };
            }
            return true;
        }
        let usable = slot < self.slots.usable() || self.slots.grow();
        if !usable || !segment.commit(Region::Live, slot + 1) {
            return false;
        }
        self.slots.see(self.pages_of(segment));
        true
    }

    /// Pages that are usable here and in the segment.
    fn pages_of(&self, segment: &Segment) -> u32 {
        self.slots.usable().min(segment.committed(Region::Live)) / PAGE_SLOTS
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
        unsafe { self.slots.place::<LiveRecord>(slot).write(LiveRecord::ZERO) };
        self.slots.give(slot);
        Some(record)
    }

    /// Changes the size of a record, and what it stands for.
    pub fn resize(&mut self, segment: &Segment, slot: u32, size: u64, weight: u64) {
        if self.get(slot).is_some() {
            // SAFETY: `get` found the slot.
            let place = unsafe { &mut *self.slots.place::<LiveRecord>(slot) };
            (place.size, place.weight) = (size, weight);
            publish(segment, slot, *place);
        }
    }

    /// Changes a record by `f`, which says whether there is anything new to publish.
    pub fn change(&mut self, segment: &Segment, slot: u32, f: impl FnOnce(&mut LiveRecord) -> bool) {
        if self.get(slot).is_none_or(|record| record.kind == kind::NONE) {
            return;
        }
        // SAFETY: `get` found the slot.
        let place = unsafe { &mut *self.slots.place::<LiveRecord>(slot) };
        if f(place) {
            publish(segment, slot, *place);
        }
    }

    /// Where the table lies: the first address and the one behind the last.
    pub fn addresses(&self) -> (usize, usize) {
        self.slots.addresses()
    }

    /// Publishes the whole table to a new segment; what it has no room for is dropped and counted.
    pub fn publish_all(&mut self, segment: &Segment) {
        for slot in 0..self.len() {
            let Some(record) = self.get(slot).filter(|record| record.kind != kind::NONE) else { continue };
            if !segment.commit(Region::Live, slot + 1) {
                segment.header().dropped_live += 1;
                continue;
            }
            publish(segment, slot, *record);
            segment.raise_count(Region::Live, slot + 1);
        }
        self.slots.see_only(self.pages_of(segment));
    }

    /// Bytes of the table and the segment that nobody needs.
    pub fn empty_bytes(&self) -> usize {
        2 * self.slots.empty_bytes()
    }

    /// Of the table's, how many may stay for now.
    pub fn allowed(&mut self, now_ms: u64, delay_ms: u64) -> usize {
        self.slots.allowed(now_ms, delay_ms)
    }

    /// Gives some of them back, until `allowed` bytes of the table's are left. Whether there is more to do.
    pub fn release(&mut self, segment: &Segment, allowed: usize) -> bool {
        self.slots.release(allowed, |first, count| segment.release(Region::Live, first, count))
    }
}

/// Writes a record to the segment under its sequence number.
fn publish(segment: &Segment, slot: u32, record: LiveRecord) {
    const WORDS: usize = 8;
    if !segment.is_committed(Region::Live, slot + 1) {
        return;
    }
    const { assert!(offset_of!(LiveRecord, seq) == 0 && size_of::<LiveRecord>() == WORDS * size_of::<u64>()) };
    let place = segment.record::<LiveRecord>(Region::Live, slot);
    // Word by word: field by field each goes by way of the stack.
    // SAFETY: the slot is committed, its number aligned; the caller holds the sampler's lock, so there is one writer.
    // A record has no padding, and words and the number are aligned as it is.
    unsafe {
        let seq = AtomicU32::from_ptr(&raw mut (*place).seq);
        let words = &*(&raw const record).cast::<[u64; WORDS]>();
        sequence::change(seq, |_| {
            (&raw mut (*place).stack).write_volatile(record.stack);
            for (word, from) in words.iter().enumerate().skip(1) {
                place.cast::<u64>().add(word).write_volatile(*from);
            }
        });
    }
}
