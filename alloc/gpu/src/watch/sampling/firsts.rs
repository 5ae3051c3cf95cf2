//! Blocks that are recorded for certain: the first one of each place of the program, so that a site whose blocks are
//! few, or small for the period in force, is seen at once and not after many of them.
//!
//! A place is where the stack ends at the call, together with about how large the block is. That is no stack: two
//! functions that call from the same depth for the same size are one place here.
//! Anything closer would have to walk the stack at every call.
//!
//! **Weights.** Whether a block is the first of its place hangs on what the program did before, and on no random
//! number: its probability of being recorded is 1, and so is its weight, whatever the period. It spends nothing of the
//! thread's budgets, so that all other blocks are samples of the same Poisson process as before: with probability `p`
//! and weight `1 / p`. The sum of both is what was allocated, on average.
//!
//! A thread knows so many places and takes no more, which bounds what they cost:
//! a place that finds no room has no certain block.

const BUCKETS: usize = 256;
const IN_BUCKET: usize = 4;

/// A place's name; not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

impl Place {
    /// The place of a call with this address on the stack.
    #[inline]
    pub fn new(stack: usize, size: u64) -> Place {
        // The power of two, and the two bits behind it.
        let log = u64::BITS - (size | 7).leading_zeros();
        let about = u64::from(log) << 3 | size >> (log - 3) & 7;
        let mixed = (stack as u64 ^ about << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Place((mixed >> 32) as u32 | 1)
    }

    /// The highest bits are those that all of stack and size went into.
    #[inline]
    fn bucket(self) -> usize {
        (self.0 >> 24) as usize % BUCKETS
    }
}

/// The places that a thread has allocated from.
pub struct Firsts(Box<[[u32; IN_BUCKET]; BUCKETS]>);

impl Firsts {
    pub fn new() -> Firsts {
        Firsts(Box::new([[0; IN_BUCKET]; BUCKETS]))
    }

    /// Whether the place is new, and there is room for it.
    #[inline]
    pub fn is_new(&self, place: Place) -> bool {
        for known in self.0[place.bucket()] {
            if known == place.0 {
                return false;
            }
            if known == 0 {
                return true;
            }
        }
        false
    }

    /// Takes the place up. Returns whether it was new.
    pub fn take(&mut self, place: Place) -> bool {
        let is_new = self.is_new(place);
        let bucket = &mut self.0[place.bucket()];
        if let Some(free) = bucket.iter_mut().find(|known| **known == 0).filter(|_| is_new) {
            *free = place.0;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Firsts, IN_BUCKET, Place};

    #[test]
    fn a_place_is_new_once_and_told_by_stack_and_size() {
        let mut firsts = Firsts::new();
        let places = [(0x7fff_1000, 1000), (0x7fff_1010, 1000), (0x7fff_1000, 1300), (0x7fff_1000, 100_000)];
        for (stack, size) in places {
            assert!(firsts.take(Place::new(stack, size)), "{stack:#x} {size}");
            assert!(!firsts.take(Place::new(stack, size)));
        }
        // About as large is as large: a place that asks for a little more each time is one.
        assert!(!firsts.take(Place::new(0x7fff_1000, 1010)));
        assert!((0..8).all(|size| firsts.is_new(Place::new(1, size))));
    }

    #[test]
    fn no_more_places_are_taken_than_there_is_room_for() {
        let mut firsts = Firsts::new();
        let taken = (0..1_000_000).filter(|at| firsts.take(Place::new(at * 16, 4096))).count();
        assert_eq!(taken, BUCKETS * IN_BUCKET);
    }
}
