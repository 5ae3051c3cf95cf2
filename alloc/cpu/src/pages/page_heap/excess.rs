//! How much idle memory nobody has had a use for.
//!
//! A program that frees and allocates the same memory in turns has all of it idle at times, and needs it again: given
//! back it would come back page by page, each with a fault. So what lies idle is watched over a round, in which the
//! program takes as many bytes as there were idle at most, and no fewer than some: with little memory, the turns of a
//! program are longer than what lies idle. What lay idle all the time was of no use to it: that is the
//! least that there was. (Google's tcmalloc keeps what the demand of the last minutes needs; here the clock is what the
//! program takes.)
//!
//! A round may be too short: what went back is taken again a moment later. So the bytes that are taken without memory
//! are compared with those that went back, and where they are about as many, the next round is twice as long. This
//! holds while little lies idle. Where much does, it counts for more than the page faults.

/// Bytes that the program takes in a round at least: in the first one, and in one that was often too short.
const ROUND_MIN: usize = 32 << 20;
const ROUND_MAX: usize = 1 << 30;
/// Up to so much is little.
const LITTLE: usize = 24 << 20;

/// The watch over a round.
pub struct Excess {
    /// The least and the most that lay idle in this round, in bytes.
    least: usize,
    most: usize,
    /// Bytes that the program took in this round.
    taken: usize,
    /// Bytes that the last round found to be of no use and that were not given back yet.
    due: usize,
    /// How often rounds were too short, less how often they were not: a round is doubled as often.
    doubled: u32,
    /// Bytes that were given back in this round, and those that were taken of what has no memory.
    released: usize,
    refilled: usize,
}

impl Excess {
    /// Before the first round.
    pub const fn new() -> Self {
        Excess { least: 0, most: 0, taken: 0, due: 0, doubled: 0, released: 0, refilled: 0 }
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
        let round = if self.most <= LITTLE { ROUND_MIN << self.doubled } else { ROUND_MIN };
        if self.taken >= self.most.max(round) {
            *self = Excess { least: idle, most: idle, due: self.least, doubled: self.judge(), ..Excess::new() };
        }
    }

    /// How often the next round is to be doubled.
    fn judge(&self) -> u32 {
        let can_double = ROUND_MIN << self.doubled < ROUND_MAX;
        match self.refilled {
            _ if self.released == 0 => self.doubled,
            refilled if refilled <= self.released / 2 => self.doubled.saturating_sub(1),
            refilled if refilled < self.released * 2 => self.doubled + u32::from(can_double),
            // Far more than went back: the program becomes larger.
            _ => self.doubled,
        }
    }

    /// Notes that so many bytes were taken that had gone back.
    #[inline]
    pub fn refill(&mut self, bytes: usize) {
        self.refilled = self.refilled.saturating_add(bytes);
    }

    /// Bytes that may be given back.
    pub fn due(&self) -> usize {
        self.due
    }

    /// Notes that so many bytes were given back.
    pub fn release(&mut self, bytes: usize) {
        self.due = self.due.saturating_sub(bytes);
        self.least = self.least.saturating_sub(bytes);
        self.released += bytes;
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

    /// Four MiB lie idle for 160 MiB that the program takes, then none for as many, again and again. Of what goes back,
    /// the given part is taken again in the same round. Returns how many MiB went back in the first and the last 100
    /// turns.
    fn goes_back(taken_again: impl Fn(usize) -> usize) -> [usize; 2] {
        let mut excess = Excess::new();
        let mut went = [0; 1000];
        for (turn, went) in went.iter_mut().enumerate() {
            let idle = if turn % 2 == 0 { 4 << 20 } else { 0 };
            for _ in 0..160 {
                excess.take(1 << 20, idle - idle.min(*went));
                let due = excess.due();
                excess.release(due);
                excess.refill(taken_again(due));
                *went += due;
            }
        }
        [&went[..100], &went[900..]].map(|turns| turns.iter().sum::<usize>() >> 20)
    }

    #[test]
    fn a_round_that_is_too_short_becomes_longer() {
        let [first, last] = goes_back(|went| went);
        assert!(first > 8 && last == 0, "{first} and {last} MiB");
        for other in [|_| 0, |went| went / 4, |went| went * 4] {
            let [first, last] = goes_back(other);
            assert!(first > 100 && last > 100, "{first} and {last} MiB");
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
