//! What is known of each block: a hash table by address, outside the blocks, so that no overflow reaches it.

use core::ptr::null_mut;

use crate::kernel::os;
use crate::layout::size_class::MEDIUM_MAX;
use crate::pages::slot_table::{PAGE_SLOTS, RECORD, SlotTable};
use crate::segment::counters::{self, TierCounter};

/// Whether a block is the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Allocated.
    Live,
    /// Freed, and in the quarantine or on its way there.
    Freed,
}

/// What allocated a block, and has to be what frees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Origin {
    /// `malloc` and its relatives.
    Malloc,
    /// C++'s `operator new`.
    New,
    /// C++'s `operator new[]`.
    NewArray,
}

/// A call: by which thread, with which stack.
#[derive(Clone, Copy)]
pub struct Call {
    /// Number of the stack in [`super::stacks::Stacks`].
    pub stack: u32,
    /// Kernel id of the thread.
    pub thread: u32,
}

/// A block.
#[derive(Clone, Copy)]
pub struct Record {
    /// What the program has.
    pub address: usize,
    /// Bytes that it asked for.
    pub size: usize,
    /// Bytes of the tiers' block, or of the mapping with its guard pages.
    pub len: usize,
    /// Distance of `address` from the start of those, in units of 16 bytes.
    pub front: u32,
    /// Entry in the sampler's live table.
    pub slot: u32,
    /// Tells blocks apart that have the same address, one after the other.
    pub sequence: u32,
    /// Who allocated it.
    pub allocated: Call,
    /// Who freed it, if anybody did.
    pub freed: Call,
    /// Logarithm of the alignment, at least that of 16.
    pub align_shift: u8,
    /// Whether it is the program's.
    pub state: State,
    /// Whether it has a mapping of its own between guard pages.
    pub guarded: bool,
    /// What allocated it.
    pub origin: Origin,
    /// Next record of the bucket; 0 ends it.
    next: u32,
}

const _: () = assert!(size_of::<Record>() == RECORD);

impl Record {
    /// A block that was just allocated; what isn't given here is the caller's to fill in.
    pub fn live(address: *mut u8, size: usize, align: usize, allocated: Call) -> Record {
        Record {
            address: address as usize,
            size,
            len: 0,
            front: 0,
            slot: crate::layout::slab::NO_SLOT,
            sequence: 0,
            allocated,
            freed: Call { stack: 0, thread: 0 },
            align_shift: align.max(16).trailing_zeros() as u8,
            state: State::Live,
            guarded: false,
            origin: Origin::Malloc,
            next: 0,
        }
    }

    /// Alignment that was asked for, at least 16.
    pub fn align(&self) -> usize {
        1 << self.align_shift
    }

    fn bytes_in_slabs(&self) -> usize {
        if self.guarded || self.len > MEDIUM_MAX { 0 } else { self.len }
    }

    /// Start of the tiers' block, or of the mapping.
    pub fn base(&self) -> *mut u8 {
        (self.address - self.front as usize * 16) as *mut u8
    }
}

/// Records at most: 4 GiB of them, for which only addresses are taken,
/// and no more than a 32nd of a limited address space.
const CAPACITY: usize = 1 << 26;
const FIRST_BUCKETS: usize = 4096;

/// The table. What is not needed any more goes back, but for the buckets.
pub struct Records {
    slots: SlotTable,
    count: usize,
    /// Bytes of slabs that live blocks hold.
    in_slabs: usize,
    /// Each holds the number of its first record: a slot's, plus 1.
    buckets: *mut u32,
    bucket_count: usize,
    sequence: u32,
}

impl Records {
    /// An empty table.
    pub const fn new() -> Self {
        Records { slots: SlotTable::new(), count: 0, in_slabs: 0, buckets: null_mut(), bucket_count: 0, sequence: 0 }
    }

    /// Takes addresses for it. Without, there is no room.
    pub fn start(&mut self) {
        let limit = os::address_space_limit() / 32 / size_of::<Record>();
        let _ = self.slots.start(limit.clamp(1 << 12, CAPACITY).next_multiple_of(PAGE_SLOTS as usize) as u32);
    }

    /// Gives addresses back that an address space of `limit` bytes has no place for.
    pub fn fit(&mut self, limit: usize) {
        self.slots.fit((limit / 32 / size_of::<Record>()).min(CAPACITY) as u32);
    }

    /// The record with a number from 1 on.
    fn at(&self, number: u32) -> Option<*mut Record> {
        Some(self.slots.place(number.checked_sub(1)?))
    }

    fn bucket(&self, address: usize) -> Option<*mut u32> {
        let hash = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // SAFETY: the number of buckets is a power of two.
        (self.bucket_count > 0).then(|| unsafe { self.buckets.add(hash as usize & (self.bucket_count - 1)) })
    }

    /// The block that begins at `address`.
    pub fn find(&mut self, address: *mut u8) -> Option<&mut Record> {
        // SAFETY: buckets hold numbers of records; both are the table's, and `self` is borrowed alone.
        unsafe {
            let mut number = *self.bucket(address as usize)?;
            while let Some(record) = self.at(number) {
                if (*record).address == address as usize {
                    return Some(&mut *record);
                }
                number = (*record).next;
            }
        }
        None
    }

    /// A copy of that record.
    pub fn get(&self, address: usize) -> Option<Record> {
        // SAFETY: as in `find`.
        unsafe {
            let mut number = *self.bucket(address)?;
            while let Some(record) = self.at(number) {
                if (*record).address == address {
                    return Some(*record);
                }
                number = (*record).next;
            }
        }
        None
    }

    /// Adds a block whose address the table does not have. False without memory.
    pub fn insert(&mut self, mut record: Record) -> bool {
        if self.count >= self.bucket_count && !self.grow() {
            return false;
        }
        let Some(slot) = self.slots.lowest().filter(|slot| self.make_room(*slot)) else { return false };
        let Some(bucket) = self.bucket(record.address) else { return false };
        self.slots.take(slot);
        self.sequence = self.sequence.wrapping_add(1);
        record.sequence = self.sequence;
        // SAFETY: the slot is usable and was free; both pointers are the table's.
        unsafe {
            record.next = bucket.replace(slot + 1);
            self.slots.place::<Record>(slot).write(record);
        }
        self.count += 1;
        self.in_slabs += record.bytes_in_slabs();
        true
    }

    /// Takes a block out.
    pub fn remove(&mut self, address: usize) -> Option<Record> {
        // SAFETY: links and buckets are the table's and hold numbers of records.
        unsafe {
            let mut link = self.bucket(address)?;
            while let Some(record) = self.at(*link) {
                if (*record).address == address {
                    let number = *link;
                    let found = *record;
                    *link = found.next;
                    (*record).address = 0;
                    self.slots.give(number - 1);
                    self.count -= 1;
                    return Some(found);
                }
                link = &raw mut (*record).next;
            }
        }
        None
    }

    /// The block whose memory, with what lies around it, holds `address`. Looks at every record: for reports only.
    pub fn around(&self, address: *const u8) -> Option<Record> {
        // SAFETY: slots that were ever taken can be read; a free one has no address.
        (0..self.slots.high())
            .map(|slot| unsafe { self.slots.place::<Record>(slot).read() })
            .find(|record| record.address != 0 && (address as usize).wrapping_sub(record.base() as usize) < record.len)
    }

    /// The live blocks, one after the other.
    pub fn live(&self) -> impl Iterator<Item = Record> {
        // SAFETY: slots that were ever taken can be read; a free one has no address.
        let all = (0..self.slots.high()).map(|slot| unsafe { self.slots.place::<Record>(slot).read() });
        all.filter(|record| record.address != 0 && record.state == State::Live)
    }

    fn make_room(&mut self, slot: u32) -> bool {
        let page = slot / PAGE_SLOTS;
        if self.slots.is_present(page) {
            return true;
        }
        if page < self.slots.seen() {
            self.slots.restore(page, 1);
            return true;
        }
        let usable = slot < self.slots.usable() || self.slots.grow();
        if usable {
            self.slots.see(page + 1);
        }
        usable
    }

    /// Bytes of slabs that live blocks hold.
    pub fn in_slabs(&self) -> usize {
        self.in_slabs
    }

    /// Counts that a block is the program's no more.
    pub fn end(&mut self, record: &Record) {
        self.in_slabs -= record.bytes_in_slabs();
    }

    /// Bytes of records that nobody needs.
    pub fn empty_bytes(&self) -> usize {
        self.slots.empty_bytes()
    }

    /// Of these, how many may stay for now.
    pub fn allowed(&mut self, now_ms: u64, delay_ms: u64) -> usize {
        self.slots.allowed(now_ms, delay_ms)
    }

    /// Gives some of them back, until `allowed` bytes are left. Whether there is more to do.
    pub fn release(&mut self, allowed: usize) -> bool {
        self.slots.release(allowed, |_, _| true)
    }

    /// Doubles the buckets.
    fn grow(&mut self) -> bool {
        let (old, old_count) = (self.buckets, self.bucket_count);
        let count = (old_count * 2).max(FIRST_BUCKETS);
        let buckets: *mut u32 = os::map(count * size_of::<u32>()).cast();
        if buckets.is_null() {
            return false;
        }
        counters::add(TierCounter::MetadataBytes, ((count - old_count) * size_of::<u32>()) as u64);
        (self.buckets, self.bucket_count) = (buckets, count);
        for at in 0..old_count {
            // SAFETY: the old buckets are still there, and hold numbers of records; the new ones begin at 0.
            unsafe {
                let mut number = *old.add(at);
                while let Some(record) = self.at(number) {
                    let next = (*record).next;
                    if let Some(bucket) = self.bucket((*record).address) {
                        (*record).next = bucket.replace(number);
                    }
                    number = next;
                }
            }
        }
        if !old.is_null() {
            // SAFETY: nobody looks at them any more.
            unsafe { os::unmap(old.cast(), old_count * size_of::<u32>()) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: usize) -> Record {
        let mut record = Record::live((at * 32) as *mut u8, at, 16, Call { stack: 1, thread: 1 });
        record.len = 32;
        record
    }

    fn records() -> Records {
        let mut records = Records::new();
        records.start();
        records
    }

    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        let mut records = records();
        for at in 1..20_000 {
            assert!(records.insert(record(at)));
        }
        for at in (1..20_000).step_by(2) {
            assert_eq!(records.remove(at * 32).map(|record| record.size), Some(at));
            assert!(records.remove(at * 32).is_none());
        }
        for at in 1..20_000 {
            let found = records.find((at * 32) as *mut u8).map(|record| record.size);
            assert_eq!(found, (at % 2 == 0).then_some(at));
        }
        let high = records.slots.high();
        for at in (1..20_000).step_by(2) {
            assert!(records.insert(record(at)));
        }
        assert_eq!(records.slots.high(), high, "removed records are used again");
    }

    #[test]
    fn the_memory_of_records_goes_back() {
        let mut records = records();
        assert!((1..20_000).all(|at| records.insert(record(at))));
        (1..20_000).filter(|at| at % 5000 != 0).for_each(|at| assert!(records.remove(at * 32).is_some()));
        assert!(records.empty_bytes() > 19_000 * RECORD);
        while records.release(0) {}
        assert_eq!(records.empty_bytes(), 0);
        assert!(records.find((5000 * 32) as *mut u8).is_some());
        assert!(records.around((10_000 * 32 + 5) as *const u8).is_some());
        assert!((1..5000).all(|at| records.insert(record(at))));
        assert!((1..=5000).all(|at| records.find((at * 32) as *mut u8).is_some()));
    }

    #[test]
    fn an_address_inside_a_block_finds_it() {
        let mut records = records();
        assert!((1..100).all(|at| records.insert(record(at))));
        assert_eq!(records.around((50 * 32 + 31) as *const u8).map(|record| record.size), Some(50));
        assert!(records.around((200 * 32) as *const u8).is_none());
    }
}
