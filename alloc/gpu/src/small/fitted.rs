//! Medium blocks that a thread has freed and keeps: those that are placed as large ones are, each as long as it was
//! asked for.
//!
//! The next request of just that length takes one without the pool's lock: a program does in a round what it has done in
//! the one before. To the tier of the large blocks they are blocks all along. A request of the thread's that finds none of
//! its length has all of them freed there first, so that they are merged, and it finds what it would have found.

use super::classes::{ALWAYS_IN_SLABS, LARGEST};

/// Blocks that are kept, at most.
const SLOTS: usize = 64;
const STEPS_LOG2: u32 = 4;
const STEPS: usize = 64;

const _: () = assert!(STEPS == ((LARGEST / ALWAYS_IN_SLABS).ilog2() as usize) << STEPS_LOG2);
const _: () = assert!(SLOTS == u64::BITS as usize);

/// A block: where it begins, and its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FittedBlock {
    pub address: u64,
    pub bytes: u64,
}

/// The step of so many bytes, of 16 to a doubling.
#[inline]
fn step_of(bytes: u64) -> usize {
    // The logarithm, in the form that is one instruction.
    let octave = ((bytes | 1).leading_zeros() ^ 63).saturating_sub(ALWAYS_IN_SLABS.ilog2());
    let within = bytes >> (octave + ALWAYS_IN_SLABS.ilog2() - STEPS_LOG2) & ((1 << STEPS_LOG2) - 1);
    ((octave as usize) << STEPS_LOG2 | within as usize).min(STEPS - 1)
}

/// The blocks that a thread keeps for a stream.
pub struct Fitted {
    blocks: [FittedBlock; SLOTS],
    /// A bit for each slot that has a block.
    taken: u64,
    /// For each step, the slots that have its blocks.
    of_step: [u64; STEPS],
    /// The slot from which on blocks have been there the longest.
    oldest: u32,
}

impl Fitted {
    pub fn new() -> Box<Fitted> {
        let blocks = [FittedBlock::default(); SLOTS];
        Box::new(Fitted { blocks, taken: 0, of_step: [0; STEPS], oldest: 0 })
    }

    #[inline]
    fn remove(&mut self, slot: usize, step: usize) -> FittedBlock {
        let bit = 1 << slot;
        self.taken &= !bit;
        self.of_step[step] &= !bit;
        // No copy of the address stays, as in a list.
        std::mem::take(&mut self.blocks[slot])
    }

    /// Takes a block of so many bytes.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Option<FittedBlock> {
        let step = step_of(bytes);
        let mut slots = self.of_step[step];
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            if self.blocks[slot].bytes == bytes {
                return Some(self.remove(slot, step));
            }
            slots &= slots - 1;
        }
        None
    }

    /// Keeps a block. Returns whether there was room.
    #[inline]
    pub fn put(&mut self, block: FittedBlock) -> bool {
        if self.taken == u64::MAX {
            return false;
        }
        // The first free place from the oldest on: what follows it has been there for longer.
        let from_oldest = (!self.taken).rotate_right(self.oldest).trailing_zeros();
        let slot = (self.oldest + from_oldest) as usize % SLOTS;
        let step = step_of(block.bytes);
        self.blocks[slot] = block;
        self.taken |= 1 << slot;
        self.of_step[step] |= 1 << slot;
        true
    }

    /// Takes those out that have been there for the longest: this part of them, as a divisor, and one at least. Returns
    /// the bytes.
    pub fn take_oldest(&mut self, part: u32, mut take: impl FnMut(u64)) -> u64 {
        let mut bytes = 0;
        let stay = if part == 1 { 0 } else { self.taken.count_ones() - self.taken.count_ones().div_ceil(part) };
        while self.taken != 0 && (stay == 0 || self.taken.count_ones() > stay) {
            let from_oldest = self.taken.rotate_right(self.oldest).trailing_zeros();
            let slot = (self.oldest + from_oldest) as usize % SLOTS;
            let block = self.remove(slot, step_of(self.blocks[slot].bytes));
            take(block.address);
            bytes += block.bytes;
            self.oldest = (slot as u32 + 1) % SLOTS as u32;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Fitted, FittedBlock, SLOTS, STEPS, step_of};

    #[test]
    fn steps_rise_with_the_length() {
        let lengths: Vec<u64> = (257..=4096).map(|units| units << 8).collect();
        let steps: Vec<_> = lengths.iter().map(|bytes| step_of(*bytes)).collect();
        assert!(steps.is_sorted());
        assert_eq!((steps[0], steps[lengths.len() - 1]), (0, STEPS - 1));
        assert_eq!((step_of(128 << 10), step_of(136 << 10), step_of((136 << 10) - 256)), (16, 17, 16));
    }

    #[test]
    fn those_that_have_been_there_the_longest_go_first() {
        let mut fitted = Fitted::new();
        let block = |number: u64| FittedBlock { address: number, bytes: (65 + number) << 10 };
        let mut gone = Vec::new();
        for number in 0..1000 {
            while !fitted.put(block(number)) {
                fitted.take_oldest(2, |address| gone.push(address));
            }
        }
        assert!(gone.len() >= 1000 - SLOTS && gone.iter().copied().eq(0..gone.len() as u64), "{gone:?}");
    }

    proptest! {
        #[test]
        fn a_request_gets_a_block_of_its_length_if_there_is_one(
            steps in prop::collection::vec((257..=300u64, 1..=13u64, any::<bool>()), 1..300)
        ) {
            let mut fitted = Fitted::new();
            let mut model: Vec<FittedBlock> = Vec::new();
            for (number, (units, times, put)) in steps.into_iter().enumerate() {
                let bytes = (units * times) << 8;
                if put {
                    let block = FittedBlock { address: number as u64, bytes };
                    let has_room = fitted.put(block);
                    prop_assert_eq!(has_room, model.len() < SLOTS);
                    if has_room {
                        model.push(block);
                    }
                    continue;
                }
                match fitted.take(bytes) {
                    Some(block) => {
                        prop_assert_eq!(block.bytes, bytes);
                        let at = model.iter().position(|known| *known == block);
                        prop_assert!(at.is_some());
                        model.swap_remove(at.unwrap());
                    }
                    None => prop_assert!(model.iter().all(|block| block.bytes != bytes)),
                }
            }
            let mut rest = Vec::new();
            let bytes = fitted.take_oldest(1, |address| rest.push(address));
            prop_assert_eq!(bytes, model.iter().map(|block| block.bytes).sum::<u64>());
            prop_assert_eq!(rest.len(), model.len());
        }
    }
}
