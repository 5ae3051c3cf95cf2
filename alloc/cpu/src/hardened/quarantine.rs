//! The quarantine: freed blocks wait before they are used again, first in, first out.

use core::ptr::null_mut;

use super::records::Record;
use crate::kernel::os;
use crate::segment::counters::{self, TierCounter};

/// Blocks of the tiers in it at most.
const BLOCKS: usize = 32 * 1024;
/// Blocks between guard pages in it at most: half of all that there may be.
const GUARDED: usize = 2048;
/// Bytes of memory that blocks of the tiers in it hold, at most.
pub const BYTES: usize = 16 << 20;
/// Bytes of addresses that blocks between guard pages in it hold, at most.
const GUARDED_BYTES: usize = 4 << 30;

/// Which block of which age.
#[derive(Clone, Copy)]
pub struct Waiting {
    /// The block's address.
    pub address: usize,
    /// Its [`Record::sequence`].
    pub sequence: u32,
    len: usize,
}

/// A queue with bounds.
struct Queue {
    ring: *mut Waiting,
    first: usize,
    count: usize,
    bytes: usize,
    max_count: usize,
    max_bytes: usize,
    /// Blocks that ever left it.
    left: u64,
}

impl Queue {
    const fn new(max_count: usize, max_bytes: usize) -> Self {
        Queue { ring: null_mut(), first: 0, count: 0, bytes: 0, max_count, max_bytes, left: 0 }
    }

    fn push(&mut self, waiting: Waiting) -> bool {
        if self.ring.is_null() {
            self.ring = os::map(self.max_count * size_of::<Waiting>()).cast();
            if !self.ring.is_null() {
                counters::add(TierCounter::MetadataBytes, (self.max_count * size_of::<Waiting>()) as u64);
            }
        }
        if self.ring.is_null() || self.count == self.max_count {
            return false;
        }
        // SAFETY: the ring has `max_count` places.
        unsafe { self.ring.add((self.first + self.count) % self.max_count).write(waiting) };
        self.count += 1;
        self.bytes += waiting.len;
        true
    }

    fn pop(&mut self) -> Option<Waiting> {
        if self.count == 0 {
            return None;
        }
        // SAFETY: `count` places from `first` on were written.
        let waiting = unsafe { self.ring.add(self.first).read() };
        self.first = (self.first + 1) % self.max_count;
        self.count -= 1;
        self.bytes -= waiting.len;
        self.left += 1;
        Some(waiting)
    }

    fn iter(&self) -> impl Iterator<Item = Waiting> {
        // SAFETY: `count` places from `first` on were written.
        (0..self.count).map(|at| unsafe { self.ring.add((self.first + at) % self.max_count).read() })
    }

    /// Room for one more is part of the bound.
    fn is_over(&self) -> bool {
        self.count >= self.max_count || self.bytes > self.max_bytes
    }
}

/// The quarantine: blocks of the tiers hold memory, those between guard pages addresses.
pub struct Quarantine {
    plain: Queue,
    guarded: Queue,
    /// How many blocks of the tiers had ever come when it was looked at last, and when that was, in milliseconds.
    mark: (u64, u64),
    /// And the time before.
    old: u64,
}

impl Quarantine {
    /// An empty one.
    pub const fn new() -> Self {
        Quarantine {
            plain: Queue::new(BLOCKS, BYTES),
            guarded: Queue::new(GUARDED, GUARDED_BYTES),
            mark: (0, 0),
            old: 0,
        }
    }

    /// Adds a freed block. False if there is no memory for the queue.
    pub fn push(&mut self, record: &Record) -> bool {
        let waiting = Waiting { address: record.address, sequence: record.sequence, len: record.len };
        if record.guarded { self.guarded.push(waiting) } else { self.plain.push(waiting) }
    }

    /// Takes the oldest block out of a queue that is over its bounds.
    pub fn pop_over(&mut self) -> Option<Waiting> {
        [&mut self.plain, &mut self.guarded].into_iter().find(|queue| queue.is_over())?.pop()
    }

    /// Lets time pass: what has been there for `age_ms`, and for no more than twice as long, is old.
    pub fn age(&mut self, now_ms: u64, age_ms: u64) {
        if now_ms - self.mark.1 >= age_ms {
            self.old = self.mark.0;
            self.mark = (self.plain.left + self.plain.count as u64, now_ms);
        }
    }

    /// Takes the oldest block of the tiers out if it is old.
    pub fn pop_old(&mut self) -> Option<Waiting> {
        if self.plain.left < self.old { self.plain.pop() } else { None }
    }

    /// Whether no block of the tiers is in it.
    pub fn is_empty(&self) -> bool {
        self.plain.count == 0
    }

    /// The blocks of the tiers that wait.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        self.plain.iter()
    }

    /// Takes the oldest block out.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.plain.pop().or_else(|| self.guarded.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardened::records::Call;

    fn record(address: usize, len: usize) -> Record {
        let mut record = Record::live(address as *mut u8, len, 16, Call { stack: 0, thread: 0 });
        record.len = len;
        record
    }

    #[test]
    fn the_oldest_block_leaves_when_there_are_too_many_bytes() {
        let mut quarantine = Quarantine::new();
        for at in 1..=16 {
            assert!(quarantine.push(&record(at * 16, 1 << 20)));
            assert!(quarantine.pop_over().is_none());
        }
        assert!(quarantine.push(&record(17 * 16, 1 << 20)));
        assert_eq!(quarantine.pop_over().map(|waiting| waiting.address), Some(16));
        assert!(quarantine.pop_over().is_none());
    }

    #[test]
    fn blocks_are_old_after_a_time_and_after_twice_the_time_at_the_latest() {
        let mut quarantine = Quarantine::new();
        let old = |quarantine: &mut Quarantine| core::iter::from_fn(|| quarantine.pop_old()).count();
        for second in 0..20 {
            quarantine.age(1000 + second * 1000, 5000);
            // It looks at the seconds 4, 9, 14 and 19: old is what was there at the look before.
            let expected = [(9, 40), (14, 50), (19, 50)].into_iter().find(|(at, _)| *at == second);
            assert_eq!(old(&mut quarantine), expected.map_or(0, |(_, blocks)| blocks), "second {second}");
            for at in 1..=10 {
                assert!(quarantine.push(&record((second as usize * 10 + at) * 16, 32)));
            }
        }
    }

    #[test]
    fn the_oldest_block_leaves_when_there_are_too_many() {
        let mut quarantine = Quarantine::new();
        for at in 1..BLOCKS {
            assert!(quarantine.push(&record(at * 16, 32)));
            assert!(quarantine.pop_over().is_none());
        }
        assert!(quarantine.push(&record(BLOCKS * 16, 32)));
        assert_eq!(quarantine.pop_over().map(|waiting| waiting.address), Some(16));
        assert_eq!(quarantine.pop().map(|waiting| waiting.address), Some(32));
    }
}
