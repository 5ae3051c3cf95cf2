//! How much of what lies idle may go back for long blocks: so much that it takes a tenth of a processor at most, unless
//! the goal is to spare memory.
//!
//! A MiB that goes back and is touched again takes about half a millisecond: 256 pages are zapped, and a fault brings
//! each of them back with its zeroes. A program that replaces long blocks all the time would pay that for each of
//! them, and need many times as long. So what it may pay grows with the clock, up to a bound. One that does something
//! with its blocks hardly comes to it.

/// The most that may go back at once, and that may do so at first.
const MOST: usize = 256 << 20;
const FIRST: usize = 64 << 20;

/// Bytes that may go back, as of a time.
pub struct Allowance {
    bytes: usize,
    /// Nanoseconds of the clock; 0 before the first look.
    as_of: u64,
}

impl Allowance {
    /// Before the first look.
    pub const fn new() -> Self {
        Allowance { bytes: 0, as_of: 0 }
    }

    /// How many of `wanted` bytes may go back now, where one may every `ns_a_byte`. What does counts as gone.
    pub fn take(&mut self, wanted: usize, now_ns: u64, ns_a_byte: u64) -> usize {
        let more = match self.as_of {
            0 => FIRST,
            as_of => (now_ns.saturating_sub(as_of) / ns_a_byte) as usize,
        };
        self.bytes = self.bytes.saturating_add(more).min(MOST);
        self.as_of = now_ns;
        let taken = wanted.min(self.bytes);
        self.bytes -= taken;
        taken
    }

    /// Notes that so many bytes did not go back after all.
    pub fn put_back(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn a_program_that_takes_all_the_time_gets_a_quarter_of_a_gigabyte_a_second() {
        let mut allowance = Allowance::new();
        let taken: usize = (1..=10_000u64).map(|ms| allowance.take(16 * MIB, ms * 1_000_000, 4)).sum();
        assert!(taken.abs_diff(FIRST + 2_500_000_000) < 16 * MIB, "{taken}");
    }

    #[test]
    fn what_was_not_taken_stays_up_to_a_bound() {
        let mut allowance = Allowance::new();
        let mut all = |now_ns| allowance.take(usize::MAX, now_ns, 4);
        assert_eq!(all(1_000_000_000), FIRST);
        assert_eq!(all(1_000_000_000), 0);
        // A hundredth of a second, and an hour.
        assert_eq!(all(1_010_000_000), 2_500_000);
        assert_eq!(all(3_600_000_000_000), MOST);
        // A clock that goes back.
        assert_eq!(all(1), 0);
        allowance.put_back(1000);
        assert_eq!(allowance.take(usize::MAX, 1, 4), 1000);
    }
}
