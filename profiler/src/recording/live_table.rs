//! The blocks that are in use while a program is recorded: by address, each with a small number.
//!
//! Numbers are handed out like a stack hands them out: the one given back last comes first. A recording then needs no
//! number with an allocation, and few bits with a free.

/// Most blocks that are followed: 28 bytes each, times what hashing leaves empty, keep the recorder small.
pub const MAX_BLOCKS: usize = 7 << 20;

const FIRST_SLOTS: usize = 1 << 12;
/// Tables of fewer slots are at most half full, so that nearly every block is found in its own slot; larger ones, of which
/// the processor's caches hold only parts anyway, up to seven eighths.
const ROOMY_SLOTS: usize = 1 << 20;
const EMPTY: u64 = u64::MAX;

/// Address to number, by open addressing.
#[derive(Debug)]
pub struct LiveTable {
    keys: Vec<u64>,
    numbers: Vec<u32>,
    len: usize,
    given_back: Vec<u32>,
    next: u32,
}

impl Default for LiveTable {
    fn default() -> Self {
        Self { keys: vec![EMPTY; FIRST_SLOTS], numbers: vec![0; FIRST_SLOTS], len: 0, given_back: Vec::new(), next: 0 }
    }
}

impl LiveTable {
    /// Blocks in it.
    pub fn count(&self) -> usize {
        self.len
    }

    /// It holds no more.
    pub fn is_full(&self) -> bool {
        self.numbers_in_use() >= MAX_BLOCKS
    }

    fn numbers_in_use(&self) -> usize {
        self.next as usize - self.given_back.len()
    }

    /// The number that the next block gets.
    pub fn take_number(&mut self) -> u32 {
        self.given_back.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives a number back.
    pub fn give_number(&mut self, number: u32) {
        self.given_back.push(number);
    }

    /// Blocks that it holds before it grows.
    #[inline]
    fn most(&self) -> usize {
        let slots = self.keys.len();
        if slots < ROOMY_SLOTS { slots / 2 } else { slots / 8 * 7 }
    }

    #[inline]
    fn place(&self, key: u64) -> usize {
        ((key >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.keys.len().trailing_zeros())) as usize
    }

    /// The number of the block at an address.
    #[inline]
    pub fn get(&self, address: u64) -> Option<u32> {
        let mask = self.keys.len() - 1;
        let mut at = self.place(address);
        loop {
            match self.keys[at] {
                EMPTY => return None,
                key if key == address => return Some(self.numbers[at]),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Puts a block there, in the place of one that may be there: that one's number.
    #[inline]
    pub fn insert(&mut self, address: u64, number: u32) -> Option<u32> {
        if self.len >= self.most() {
            self.grow();
        }
        let mask = self.keys.len() - 1;
        let mut at = self.place(address);
        loop {
            match self.keys[at] {
                EMPTY => {
                    self.keys[at] = address;
                    self.numbers[at] = number;
                    self.len += 1;
                    return None;
                }
                key if key == address => return Some(std::mem::replace(&mut self.numbers[at], number)),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Takes a block out: its number.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<u32> {
        let mask = self.keys.len() - 1;
        let mut at = self.place(address);
        loop {
            match self.keys[at] {
                EMPTY => return None,
                key if key == address => break,
                _ => at = (at + 1) & mask,
            }
        }
        let number = self.numbers[at];
        // What stands behind it moves up, unless that would be before its own place.
        let mut hole = at;
        loop {
            at = (at + 1) & mask;
            let key = self.keys[at];
            if key == EMPTY {
                break;
            }
            let home = self.place(key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.keys[hole] = key;
                self.numbers[hole] = self.numbers[at];
                hole = at;
            }
        }
        self.keys[hole] = EMPTY;
        self.len -= 1;
        Some(number)
    }

    fn grow(&mut self) {
        let slots = self.keys.len() * 2;
        let keys = std::mem::replace(&mut self.keys, vec![EMPTY; slots]);
        let numbers = std::mem::replace(&mut self.numbers, vec![0; slots]);
        self.len = 0;
        for (key, number) in keys.into_iter().zip(numbers) {
            if key != EMPTY {
                self.insert(key, number);
            }
        }
    }

    /// Every block: address and number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.keys.iter().zip(&self.numbers).filter(|&(&key, _)| key != EMPTY).map(|(&key, &number)| (key, number))
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
