//! What is known of each block: a hash table by address, outside the blocks, so that no overflow reaches it.

use core::ptr::null_mut;

use crate::os;

/// Whether a block is the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Allocated.
    Live,
    /// Freed, and in the quarantine or on its way there.
    Freed,
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
    /// Next record of the bucket, or of the list of unused ones; 0 ends it.
    next: u32,
}

const _: () = assert!(size_of::<Record>() <= 64);

impl Record {
    /// A block that was just allocated; what isn't given here is the caller's to fill in.
    pub fn live(address: *mut u8, size: usize, align: usize, allocated: Call) -> Record {
        Record {
            address: address as usize,
            size,
            len: 0,
            front: 0,
            slot: crate::slab::NO_SLOT,
            sequence: 0,
            allocated,
            freed: Call { stack: 0, thread: 0 },
            align_shift: align.max(16).trailing_zeros() as u8,
            state: State::Live,
            guarded: false,
            next: 0,
        }
    }

    /// Alignment that was asked for, at least 16.
    pub fn align(&self) -> usize {
        1 << self.align_shift
    }

    /// Start of the tiers' block, or of the mapping.
    pub fn base(&self) -> *mut u8 {
        (self.address - self.front as usize * 16) as *mut u8
    }
}

/// Records in a chunk of memory: 1 MiB.
const CHUNK: usize = 16 * 1024;
const CHUNKS: usize = 8192;
const FIRST_BUCKETS: usize = 4096;

/// The table. Its memory only grows.
pub struct Records {
    chunks: [*mut Record; CHUNKS],
    /// Records ever taken from the chunks.
    taken: u32,
    /// First unused one, plus 1.
    unused: u32,
    count: usize,
    buckets: *mut u32,
    bucket_count: usize,
    sequence: u32,
}

impl Records {
    /// An empty table.
    pub const fn new() -> Self {
        Records {
            chunks: [null_mut(); CHUNKS],
            taken: 0,
            unused: 0,
            count: 0,
            buckets: null_mut(),
            bucket_count: 0,
            sequence: 0,
        }
    }

    /// The record with a number from 1 on.
    fn at(&self, number: u32) -> Option<*mut Record> {
        let index = number.checked_sub(1)? as usize;
        let chunk = *self.chunks.get(index / CHUNK)?;
        // SAFETY: a chunk holds so many records.
        (!chunk.is_null()).then(|| unsafe { chunk.add(index % CHUNK) })
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

    /// Adds a block whose address the table does not have. False without memory.
    pub fn insert(&mut self, mut record: Record) -> bool {
        if self.count >= self.bucket_count && !self.grow() {
            return false;
        }
        let number = if self.unused != 0 { self.unused } else { self.taken + 1 };
        if number > self.taken && !self.make_room(number) {
            return false;
        }
        let (Some(place), Some(bucket)) = (self.at(number), self.bucket(record.address)) else { return false };
        self.sequence = self.sequence.wrapping_add(1);
        record.sequence = self.sequence;
        // SAFETY: the place is unused or new; both pointers are the table's.
        unsafe {
            if number == self.unused {
                self.unused = (*place).next;
            } else {
                self.taken = number;
            }
            record.next = *bucket;
            place.write(record);
            *bucket = number;
        }
        self.count += 1;
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
                    (*record).next = self.unused;
                    self.unused = number;
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
        // SAFETY: records up to `taken` were written.
        (1..=self.taken)
            .filter_map(|number| self.at(number).map(|record| unsafe { *record }))
            .find(|record| record.address != 0 && (address as usize).wrapping_sub(record.base() as usize) < record.len)
    }

    fn make_room(&mut self, number: u32) -> bool {
        let Some(chunk) = self.chunks.get_mut((number as usize - 1) / CHUNK) else { return false };
        if chunk.is_null() {
            *chunk = os::map(CHUNK * size_of::<Record>()).cast();
        }
        !chunk.is_null()
    }

    /// Doubles the buckets.
    fn grow(&mut self) -> bool {
        let (old, old_count) = (self.buckets, self.bucket_count);
        let count = (old_count * 2).max(FIRST_BUCKETS);
        let buckets: *mut u32 = os::map(count * size_of::<u32>()).cast();
        if buckets.is_null() {
            return false;
        }
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

    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        let mut records = Box::new(Records::new());
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
        let taken = records.taken;
        for at in (1..20_000).step_by(2) {
            assert!(records.insert(record(at)));
        }
        assert_eq!(records.taken, taken, "removed records are used again");
    }

    #[test]
    fn an_address_inside_a_block_finds_it() {
        let mut records = Box::new(Records::new());
        assert!((1..100).all(|at| records.insert(record(at))));
        assert_eq!(records.around((50 * 32 + 31) as *const u8).map(|record| record.size), Some(50));
        assert!(records.around((200 * 32) as *const u8).is_none());
    }
}
