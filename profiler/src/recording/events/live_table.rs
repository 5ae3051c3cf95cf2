//! The blocks that are in use while a program is recorded: by address, each with a small number.
//!
//! Numbers are handed out like a stack hands them out: the one given back last comes first. A recording then needs no
//! number with an allocation, and few bits with a free.

use std::collections::HashMap;

use crate::recording::events::processor::{equal, prefetch};

/// Most blocks that are followed: 9 bytes each, times what hashing leaves empty, keep the recorder small.
pub const MAX_BLOCKS: usize = 7 << 20;

/// Bits of an address that a bucket tells apart: those of host memory, in steps of 16 bytes.
const ADDRESS_BITS: u32 = 44;
const STEP_BITS: u32 = 4;
/// The least number of buckets leaves 32 bits of an address to its key.
const FIRST_BUCKETS: usize = 1 << (ADDRESS_BITS - u32::BITS);
/// Blocks of a bucket. On average it has half of them, so that one in a hundred blocks finds its bucket full.
const WAYS: u32 = 7;
/// The bits of all ways.
const ALL: u32 = (1 << WAYS) - 1;
/// Where a bucket's keys end: the bits of its ways that are taken, and above them how many of its blocks lie elsewhere.
const STATE: usize = WAYS as usize;

/// A line of the processor's caches. All of its blocks are compared at once: which one it is can't be foreseen, so that
/// looking at one after the other costs more for wrong guesses than for the comparisons.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// A key for each way, and [`STATE`].
    keys: [u32; 8],
    numbers: [u32; 8],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Bucket = Bucket { keys: [0; 8], numbers: [0; 8] };

    /// The ways that are taken, as bits.
    #[inline(always)]
    fn taken(&self) -> u32 {
        self.keys[STATE] & ALL
    }

    /// The bit of the way that has this key; 0 if there is none.
    #[inline(always)]
    fn way_of(&self, key: u32) -> u32 {
        equal(&self.keys, key) & self.taken()
    }

    /// How many of its blocks lie elsewhere.
    #[inline(always)]
    fn passed(&self) -> u32 {
        self.keys[STATE] >> WAYS
    }

    /// Counts a block that lies elsewhere, or one that does so no more.
    fn pass(&mut self, more: bool) {
        self.keys[STATE] = self.keys[STATE].wrapping_add(if more { ALL + 1 } else { 0u32.wrapping_sub(ALL + 1) });
    }
}

/// Where a block is looked for.
#[derive(Clone, Copy)]
struct Home {
    bucket: usize,
    key: u32,
}

/// Address to number, by hashing to buckets. The hash can be undone: bucket and key together are the address, so that
/// equal keys of a bucket are one block.
#[derive(Debug)]
pub struct LiveTable {
    /// A power of two.
    buckets: Vec<Bucket>,
    /// Bits of a hash below those of the bucket.
    key_bits: u32,
    /// Blocks that found their bucket full, and those whose address no bucket can tell: a device's.
    elsewhere: HashMap<u64, u32>,
    len: usize,
    given_back: Vec<u32>,
    next: u32,
}

impl Default for LiveTable {
    fn default() -> Self {
        let key_bits = ADDRESS_BITS - FIRST_BUCKETS.trailing_zeros();
        Self {
            buckets: vec![Bucket::EMPTY; FIRST_BUCKETS],
            key_bits,
            elsewhere: HashMap::new(),
            len: 0,
            given_back: Vec::new(),
            next: 0,
        }
    }
}

const HASH_MASK: u64 = (1 << ADDRESS_BITS) - 1;
/// The golden ratio's digits, and the number that undoes the multiplication by them: see `hashes_can_be_undone`.
const FACTOR: u64 = 0x9e3_779b_97f5;
const INVERSE: u64 = inverse(FACTOR);

/// The number of which the product with an odd one is 1, modulo any power of two up to 2^64.
const fn inverse(odd: u64) -> u64 {
    // Newton's method: each step doubles the bits that are right, of which there are three at first.
    let (mut inverse, mut step) = (odd, 0);
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
}

impl LiveTable {
    /// Blocks in it.
    pub fn count(&self) -> usize {
        self.len + self.elsewhere.len()
    }

    /// It holds no more.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.numbers_in_use() >= MAX_BLOCKS
    }

    #[inline(always)]
    fn numbers_in_use(&self) -> usize {
        self.next as usize - self.given_back.len()
    }

    /// The number that the next block gets.
    #[inline(always)]
    pub fn take_number(&mut self) -> u32 {
        self.given_back.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives a number back.
    #[inline(always)]
    pub fn give_number(&mut self, number: u32) {
        self.given_back.push(number);
    }

    /// Where a block of host memory is looked for, as are others that look like one.
    #[inline(always)]
    fn home(&self, address: u64) -> Home {
        let hash = (address >> STEP_BITS).wrapping_mul(FACTOR) & HASH_MASK;
        // The mask says nothing new: the length is a power of two, of which the hash has no bit more.
        let bucket = (hash >> self.key_bits) as usize & (self.buckets.len() - 1);
        Home { bucket, key: (hash & ((1 << self.key_bits) - 1)) as u32 }
    }

    /// The address of a block by where it is looked for.
    fn address(&self, Home { bucket, key }: Home) -> u64 {
        let hash = (bucket as u64) << self.key_bits | u64::from(key);
        (hash.wrapping_mul(INVERSE) & HASH_MASK) << STEP_BITS
    }

    /// Whether buckets tell the address from all others.
    #[inline(always)]
    fn is_told(address: u64) -> bool {
        address & !(HASH_MASK << STEP_BITS) == 0
    }

    /// Says that an address is about to be asked for.
    #[inline(always)]
    pub fn prefetch(&self, address: u64) {
        prefetch(&self.buckets[self.home(address).bucket]);
    }

    /// The number of the block at an address.
    #[cfg(test)]
    fn get(&self, address: u64) -> Option<u32> {
        let Home { bucket, key } = self.home(address);
        let (bucket, way) = (&self.buckets[bucket], self.buckets[bucket].way_of(key));
        let found = Self::is_told(address) && way != 0;
        if found { Some(bucket.numbers[way.trailing_zeros() as usize]) } else { self.elsewhere.get(&address).copied() }
    }

    /// Puts a block there, in the place of one that may be there: that one's number.
    #[inline(always)]
    pub fn insert(&mut self, address: u64, number: u32) -> Option<u32> {
        let Home { bucket, key } = self.home(address);
        let bucket = &mut self.buckets[bucket];
        let taken = bucket.taken();
        if Self::is_told(address) && bucket.way_of(key) == 0 && bucket.passed() == 0 && taken != ALL {
            let way = (!taken).trailing_zeros() as usize & 7;
            (bucket.keys[way], bucket.numbers[way]) = (key, number);
            bucket.keys[STATE] |= 1 << way;
            self.len += 1;
            return None;
        }
        self.insert_slowly(address, number)
    }

    /// The same, where the address is taken, or its bucket full or told of as full.
    #[cold]
    #[inline(never)]
    fn insert_slowly(&mut self, address: u64, number: u32) -> Option<u32> {
        if !Self::is_told(address) {
            return self.elsewhere.insert(address, number);
        }
        if self.len >= self.buckets.len() / 2 * WAYS as usize {
            self.grow();
        }
        let Home { bucket, key } = self.home(address);
        let bucket = &mut self.buckets[bucket];
        let way = bucket.way_of(key);
        if way != 0 {
            return Some(std::mem::replace(&mut bucket.numbers[way.trailing_zeros() as usize], number));
        }
        if bucket.passed() != 0
            && let Some(known) = self.elsewhere.get_mut(&address)
        {
            return Some(std::mem::replace(known, number));
        }
        self.put(address, number);
        None
    }

    /// Puts a block there that is not in it, and that buckets can tell.
    fn put(&mut self, address: u64, number: u32) {
        let Home { bucket, key } = self.home(address);
        let bucket = &mut self.buckets[bucket];
        let free = !bucket.taken() & ALL;
        if free == 0 {
            bucket.pass(true);
            self.elsewhere.insert(address, number);
            return;
        }
        let way = free.trailing_zeros() as usize;
        (bucket.keys[way], bucket.numbers[way]) = (key, number);
        bucket.keys[STATE] |= 1 << way;
        self.len += 1;
    }

    /// Takes a block out: its number.
    #[inline(always)]
    pub fn remove(&mut self, address: u64) -> Option<u32> {
        let Home { bucket, key } = self.home(address);
        let bucket = &mut self.buckets[bucket];
        let way = bucket.way_of(key);
        if way != 0 && Self::is_told(address) {
            bucket.keys[STATE] &= !way;
            self.len -= 1;
            return Some(bucket.numbers[way.trailing_zeros() as usize & 7]);
        }
        self.remove_elsewhere(address)
    }

    #[cold]
    #[inline(never)]
    fn remove_elsewhere(&mut self, address: u64) -> Option<u32> {
        let number = self.elsewhere.remove(&address)?;
        if Self::is_told(address) {
            let home = self.home(address);
            self.buckets[home.bucket].pass(false);
        }
        Some(number)
    }

    /// Doubles the number of buckets.
    fn grow(&mut self) {
        let more = Self {
            buckets: vec![Bucket::EMPTY; self.buckets.len() * 2],
            key_bits: self.key_bits - 1,
            given_back: std::mem::take(&mut self.given_back),
            next: self.next,
            elsewhere: HashMap::new(),
            len: 0,
        };
        let before = std::mem::replace(self, more);
        for (address, number) in before.iter() {
            if Self::is_told(address) {
                self.put(address, number);
            } else {
                self.elsewhere.insert(address, number);
            }
        }
    }

    /// Every block: address and number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let of_bucket = move |(at, bucket): (usize, &Bucket)| {
            let (bucket, taken) = (*bucket, bucket.taken());
            let used = (0..WAYS as usize).filter(move |way| taken >> way & 1 != 0);
            used.map(move |way| (self.address(Home { bucket: at, key: bucket.keys[way] }), bucket.numbers[way]))
        };
        let elsewhere = self.elsewhere.iter().map(|(&address, &number)| (address, number));
        self.buckets.iter().enumerate().flat_map(of_bucket).chain(elsewhere)
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
                // Some are a device's, which need be no multiple of anything.
                let address = if at % 5 == 0 { at << 57 | at } else { at * 16 + 0x7f00_0000_0000 };
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
    fn hashes_can_be_undone() {
        let table = LiveTable::default();
        for address in [16, 0x5555_5555_5550, 0x7fff_ffff_fff0, HASH_MASK << STEP_BITS] {
            assert!(LiveTable::is_told(address));
            assert_eq!(table.address(table.home(address)), address);
        }
        assert!(!LiveTable::is_told(8) && !LiveTable::is_told(1 << 48));
    }

    #[test]
    fn blocks_of_a_full_bucket_are_found_elsewhere() {
        let mut table = LiveTable::default();
        let addresses: Vec<u64> = (0..20).map(|key| table.address(Home { bucket: 77, key })).collect();
        for (number, &address) in (0..).zip(&addresses) {
            assert_eq!(table.insert(address, number), None);
        }
        assert_eq!((table.len, table.elsewhere.len(), table.count()), (7, 13, 20));
        for (number, &address) in (0..).zip(&addresses) {
            assert_eq!(table.insert(address, number + 100), Some(number));
        }
        assert_eq!(table.iter().count(), 20);
        // What is elsewhere is found also when the bucket has room again.
        for (number, &address) in (100..).zip(&addresses) {
            assert_eq!(table.remove(address), Some(number));
        }
        assert!(table.iter().next().is_none() && table.elsewhere.is_empty());
        assert_eq!(table.buckets[77].passed(), 0);
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
