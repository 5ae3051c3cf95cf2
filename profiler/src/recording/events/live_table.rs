//! The blocks that are in use while a program is recorded: by address, each with a small number.
//!
//! Numbers are handed out like a stack hands them out: the one given back last comes first. A recording then needs no
//! number with an allocation, and few bits with a free.

use crate::recording::events::prefetch::prefetch;

/// Most blocks that are followed: 13 bytes each, times what hashing leaves empty, keep the recorder small.
pub const MAX_BLOCKS: usize = 7 << 20;

const FIRST_BUCKETS: usize = 1 << 10;
/// Tables of fewer buckets are half full at most, so that nearly every block is found in its own bucket; larger ones,
/// of which the processor's caches hold only parts anyway, up to four fifths.
const ROOMY_BUCKETS: usize = 1 << 18;
/// Blocks of a bucket.
const WAYS: usize = 5;
/// Both halves of a free way's address. No block has such an upper half: there are too few memories.
const FREE: u32 = u32::MAX;

/// A line of the processor's caches. All of its blocks are compared at once: which one it is can't be foreseen, so that
/// looking at one after the other costs more for wrong guesses than for the comparisons.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// The halves of the blocks' addresses.
    low: [u32; WAYS],
    high: [u32; WAYS],
    number: [u32; WAYS],
    /// Blocks that found this bucket full, and lie in a later one.
    passed: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Bucket = Bucket { low: [FREE; WAYS], high: [FREE; WAYS], number: [0; WAYS], passed: 0 };

    /// The way that has this address.
    #[inline(always)]
    fn way_of(&self, Halves { low, high }: Halves) -> Option<usize> {
        let mut candidates = equal(&self.low, low);
        while candidates != 0 {
            let way = candidates.trailing_zeros() as usize;
            if self.high.get(way) == Some(&high) {
                return Some(way);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// A way that has no block.
    #[inline(always)]
    fn free_way(&self) -> Option<usize> {
        let free = equal(&self.high, FREE);
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Its blocks: address and number.
    fn blocks(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let used = (0..WAYS).filter(|&way| self.high[way] != FREE);
        used.map(|way| (u64::from(self.low[way]) | u64::from(self.high[way]) << 32, self.number[way]))
    }
}

/// A bit for each word that is equal to `word`, without a branch.
#[inline(always)]
fn equal(words: &[u32; WAYS], word: u32) -> u32 {
    words.iter().enumerate().fold(0, |bits, (way, &known)| bits | u32::from(known == word) << way)
}

/// An address, as buckets have it.
#[derive(Clone, Copy)]
struct Halves {
    low: u32,
    high: u32,
}

impl Halves {
    #[inline(always)]
    fn of(address: u64) -> Halves {
        Halves { low: address as u32, high: (address >> 32) as u32 }
    }
}

/// Address to number, by hashing to buckets.
#[derive(Debug)]
pub struct LiveTable {
    /// A power of two.
    buckets: Vec<Bucket>,
    /// What leaves a bucket's index of a hash.
    shift: u32,
    len: usize,
    given_back: Vec<u32>,
    next: u32,
}

impl Default for LiveTable {
    fn default() -> Self {
        let shift = u64::BITS - FIRST_BUCKETS.trailing_zeros();
        Self { buckets: vec![Bucket::EMPTY; FIRST_BUCKETS], shift, len: 0, given_back: Vec::new(), next: 0 }
    }
}

impl LiveTable {
    /// Blocks in it.
    pub fn count(&self) -> usize {
        self.len
    }

    /// It holds no more.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.numbers_in_use() >= MAX_BLOCKS
    }

    fn numbers_in_use(&self) -> usize {
        self.next as usize - self.given_back.len()
    }

    /// The number that the next block gets.
    #[inline]
    pub fn take_number(&mut self) -> u32 {
        self.given_back.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives a number back.
    #[inline]
    pub fn give_number(&mut self, number: u32) {
        self.given_back.push(number);
    }

    /// Blocks that it holds before it grows.
    #[inline]
    fn most(&self) -> usize {
        let buckets = self.buckets.len();
        if buckets < ROOMY_BUCKETS { buckets * WAYS / 2 } else { buckets * (WAYS - 1) }
    }

    /// The bucket of an address, unless that was full.
    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        ((address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }

    /// Says that an address is about to be asked for.
    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        prefetch(&self.buckets[self.home(address)]);
    }

    /// The bucket and the way that has an address.
    #[inline(always)]
    fn find(&self, address: u64) -> Option<(usize, usize)> {
        let mut at = self.home(address);
        loop {
            let bucket = &self.buckets[at];
            if let Some(way) = bucket.way_of(Halves::of(address)) {
                return Some((at, way));
            }
            if bucket.passed == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    /// The number of the block at an address.
    #[cfg(test)]
    fn get(&self, address: u64) -> Option<u32> {
        self.find(address).map(|(at, way)| self.buckets[at].number[way])
    }

    /// Puts a block there, in the place of one that may be there: that one's number.
    #[inline]
    pub fn insert(&mut self, address: u64, number: u32) -> Option<u32> {
        if let Some((at, way)) = self.find(address) {
            return Some(std::mem::replace(&mut self.buckets[at].number[way], number));
        }
        if self.len >= self.most() {
            self.grow();
        }
        self.put(address, number);
        None
    }

    /// Puts a block there that is not in it.
    #[inline(always)]
    fn put(&mut self, address: u64, number: u32) {
        let mut at = self.home(address);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(way) = bucket.free_way() {
                let Halves { low, high } = Halves::of(address);
                (bucket.low[way], bucket.high[way], bucket.number[way]) = (low, high, number);
                self.len += 1;
                return;
            }
            bucket.passed += 1;
            at = self.after(at);
        }
    }

    /// Takes a block out: its number.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<u32> {
        let (at, way) = self.find(address)?;
        let bucket = &mut self.buckets[at];
        (bucket.low[way], bucket.high[way]) = (FREE, FREE);
        let number = bucket.number[way];
        self.len -= 1;
        let mut passed = self.home(address);
        while passed != at {
            self.buckets[passed].passed -= 1;
            passed = self.after(passed);
        }
        Some(number)
    }

    #[cold]
    fn grow(&mut self) {
        let more = self.buckets.len() * 2;
        let buckets = std::mem::replace(&mut self.buckets, vec![Bucket::EMPTY; more]);
        (self.len, self.shift) = (0, self.shift - 1);
        for bucket in buckets {
            bucket.blocks().for_each(|(address, number)| self.put(address, number));
        }
    }

    /// Every block: address and number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.buckets.iter().flat_map(Bucket::blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_does_what_a_plain_map_does(steps in prop::collection::vec((any::<bool>(), 0u64..400), 1..2000)) {
            let mut table = LiveTable::default();
            let mut model = BTreeMap::new();
            for (step, (insert, at)) in steps.into_iter().enumerate() {
                let address = at * 16 + 0x7f00_0000_0000;
                if insert {
                    prop_assert_eq!(table.insert(address, step as u32), model.insert(address, step as u32));
                } else {
                    prop_assert_eq!(table.remove(address), model.remove(&address));
                }
                prop_assert_eq!(table.get(address), model.get(&address).copied());
                prop_assert_eq!(table.count(), model.len());
            }
            prop_assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), model);
        }
    }

    #[test]
    fn it_grows_and_keeps_what_it_holds() {
        let mut table = LiveTable::default();
        for n in 0..100_000u32 {
            table.insert(u64::from(n) * 48, n);
        }
        assert!((0..100_000u32).all(|n| table.get(u64::from(n) * 48) == Some(n)));
    }

    #[test]
    fn the_number_given_back_last_is_the_next() {
        let mut table = LiveTable::default();
        let numbers: Vec<u32> = (0..3).map(|_| table.take_number()).collect();
        assert_eq!(numbers, [0, 1, 2]);
        table.give_number(1);
        table.give_number(0);
        assert_eq!((table.take_number(), table.take_number(), table.take_number()), (0, 1, 3));
    }
}
