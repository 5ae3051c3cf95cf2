//! Whether what a place of the program allocates stays, by what became of its samples: weights and a cache do, what
//! a step computes does not. Who holds memory is asked of what stays, and it is little beside what comes and goes; so
//! such places have short strata, however busy their thread is ([`strata`](super::strata)).
//!
//! Threads that allocate and those that free share this. Places that share a count are taken for one.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Place;

/// Counts, a power of two.
const COUNTS: usize = 1 << 12;
/// Samples after which half of what is known is forgotten: a program goes from one thing to another.
const MEMORY: u32 = 256;
/// Of so many samples of a place, one may have been freed.
const STAY: u32 = 2;

/// Where a sample's free is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(u16);

/// For each count the samples taken, in the low half, and those freed.
pub struct Lives(Box<[AtomicU32]>);

impl Lives {
    /// Nothing is known yet.
    pub fn new() -> Lives {
        Lives((0..COUNTS).map(|_| AtomicU32::new(0)).collect())
    }

    /// Whether blocks of a place stay, as far as is known.
    pub fn stays(&self, place: Place) -> bool {
        let (taken, freed) = halves(self.word(Count::of(place)).load(Ordering::Relaxed));
        STAY * freed <= taken
    }

    /// A sample of a place was taken.
    pub fn took(&self, place: Place) -> Count {
        let count = Count::of(place);
        self.change(count, |taken, freed| match taken + 1 {
            MEMORY.. => (MEMORY / 2, freed / 2),
            taken => (taken, freed),
        });
        count
    }

    /// One was freed.
    pub fn freed(&self, count: Count) {
        self.change(count, |taken, freed| (taken, (freed + 1).min(MEMORY)));
    }

    fn change(&self, count: Count, to: impl Fn(u32, u32) -> (u32, u32)) {
        let word = self.word(count);
        // Who comes between the two loses a count, which is worth no waiting.
        let (taken, freed) = halves(word.load(Ordering::Relaxed));
        let (taken, freed) = to(taken, freed);
        word.store(taken | freed << 16, Ordering::Relaxed);
    }

    fn word(&self, count: Count) -> &AtomicU32 {
        &self.0[usize::from(count.0) % COUNTS]
    }
}

impl Count {
    fn of(place: Place) -> Count {
        Count((place.number() >> (u32::BITS - COUNTS.trailing_zeros())) as u16)
    }
}

fn halves(word: u32) -> (u32, u32) {
    (word & 0xffff, word >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_stays_until_more_than_half_of_its_samples_are_freed_and_what_it_did_long_ago_counts_less() {
        let (lives, place) = (Lives::new(), Place::new(0x7fff_1000, 1 << 20));
        assert!(lives.stays(place), "nothing is known yet");
        let counts: Vec<Count> = (0..8).map(|_| lives.took(place)).collect();
        counts.iter().take(4).for_each(|count| lives.freed(*count));
        assert!(lives.stays(place));
        lives.freed(counts[4]);
        assert!(!lives.stays(place));
        // From now on everything stays.
        let until = (1..10_000).find(|_| {
            lives.took(place);
            lives.stays(place)
        });
        assert!(until.is_some_and(|samples| samples < 10), "{until:?}");
        // And then all of it is freed at once.
        for _ in 0..100_000 {
            lives.took(place);
        }
        (0..MEMORY).for_each(|_| lives.freed(counts[0]));
        assert!(!lives.stays(place));
    }
}
