//! What happens before what: one counter for each stream, and who has seen how much of each.
//!
//! Durations only decide when an event is done. Whether an access was allowed is decided by order alone, so that a race
//! is found in every run that has it, not only where the timing lets it happen.

/// How much of each stream's work is known to be over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order(Vec<u64>);

impl Order {
    /// The number of the last work of stream `at` that is known to be over.
    pub fn of(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// Says so of one stream.
    pub fn set(&mut self, at: usize, number: u64) {
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] = number;
    }

    /// Learns all that the other knows.
    pub fn join(&mut self, other: &Order) {
        for (at, &number) in other.0.iter().enumerate() {
            if number > self.of(at) {
                self.set(at, number);
            }
        }
    }

    /// Whether all that the other knows is known here.
    pub fn covers(&self, other: &Order) -> bool {
        other.0.iter().enumerate().all(|(at, &number)| number <= self.of(at))
    }
}
