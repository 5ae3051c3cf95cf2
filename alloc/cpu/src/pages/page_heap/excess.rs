//! How much idle memory nobody has had a use for.
//!
//! A program that frees and allocates the same memory in turns has all of it idle at times, and needs it again: given
//! back it would come back page by page, each with a fault. So what lies idle is watched over a round, in which the
//! program takes as many bytes as there were idle at most, and no fewer than some: with little memory, the turns of a
//! program are longer than what lies idle. What lay idle all the time was of no use to it: that is the
//! least that there was. (Google's tcmalloc keeps what the demand of the last minutes needs; here the clock is what the
//! program takes.)

/// Bytes that the program takes in a round at least.
const ROUND_MIN: usize = 32 << 20;

/// The watch over a round.
pub struct Excess {
    /// The least and the most that lay idle in this round, in bytes.
    least: usize,
    most: usize,
    /// Bytes that the program took in this round.
    taken: usize,
    /// Bytes that the last round found to be of no use and that were not given back yet.
    due: usize,
}

impl Excess {
    /// Before the first round.
    pub const fn new() -> Self {
        Excess { least: 0, most: 0, taken: 0, due: 0 }
    }

    /// Notes that so much lies idle now.
    #[inline]
    pub fn note(&mut self, idle: usize) {
        self.least = self.least.min(idle);
        self.most = self.most.max(idle);
        self.due = self.due.min(idle);
    }

    /// Notes that the program took so many bytes, and that so much lies idle now.
    pub fn take(&mut self, bytes: usize, idle: usize) {
        self.note(idle);
        self.taken = self.taken.saturating_add(bytes);
        if self.taken >= self.most.max(ROUND_MIN) {
            *self = Excess { least: idle, most: idle, taken: 0, due: self.least };
        }
    }

    /// Bytes that may be given back.
    pub fn due(&self) -> usize {
        self.due
    }

    /// Notes that so many bytes were given back.
    pub fn release(&mut self, bytes: usize) {
        self.due = self.due.saturating_sub(bytes);
        self.least = self.least.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Excess, ROUND_MIN};

    /// So much that a round is as long as what lies idle.
    const UNIT: usize = ROUND_MIN;

    /// A program that takes `taken` units of `idle` ones and frees them, one by one, so many times. Returns what is due
    /// at most, in units.
    fn turns(idle: usize, taken: usize, times: usize) -> usize {
        let mut excess = Excess::new();
        let mut due = 0;
        excess.note(idle * UNIT);
        for _ in 0..times {
            for left in (0..taken).rev() {
                excess.take(UNIT, (idle - taken + left) * UNIT);
                due = due.max(excess.due());
            }
            for back in 0..taken {
                excess.note((idle - taken + back + 1) * UNIT);
            }
        }
        due / UNIT
    }

    #[test]
    fn what_is_taken_again_in_turns_stays() {
        for idle in [1, 10, 1000] {
            assert_eq!(turns(idle, idle, 20), 0);
        }
    }

    #[test]
    fn what_nobody_takes_is_due_and_no_more() {
        for (idle, taken) in [(1000, 1), (1000, 400), (1000, 999)] {
            assert_eq!(turns(idle, taken, 3000 / taken + 3), idle - taken);
        }
    }

    /// Ten MiB are in use for a while, then one in its place, again and again.
    #[test]
    fn a_little_that_is_taken_after_a_while_stays() {
        let mut excess = Excess::new();
        for turn in 0..100 {
            let idle = if turn % 2 == 0 { 0 } else { 9 << 20 };
            for _ in 0..10 {
                excess.take(1 << 20, idle);
                assert_eq!(excess.due(), 0, "turn {turn}");
            }
        }
    }

    #[test]
    fn what_went_back_is_due_once() {
        let mut excess = Excess::new();
        excess.note(100 * UNIT);
        for _ in 0..3 {
            excess.take(100 * UNIT, 100 * UNIT);
        }
        assert_eq!(excess.due(), 100 * UNIT);
        excess.release(60 * UNIT);
        assert_eq!(excess.due(), 40 * UNIT);
        excess.note(40 * UNIT);
        assert_eq!(excess.due(), 40 * UNIT);
        excess.note(30 * UNIT);
        assert_eq!(excess.due(), 30 * UNIT);
    }
}
