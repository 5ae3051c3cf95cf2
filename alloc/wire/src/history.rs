//! The totals of a process since its start: what a viewer finds that comes late.
//!
//! The time since the start is cut into spans of equal length, and each has a [`Total`]. When there are more spans than
//! places, two become one everywhere, and spans are twice as long from then on. So the history gets coarser, never
//! shorter, and takes [`HISTORY_LEN`] bytes for ever.

use crate::record::record;

/// Places for totals.
pub const HISTORY_TOTALS: usize = 510;

/// Bytes that the history takes: a [`HistoryHead`], and the totals.
pub const HISTORY_LEN: usize = 32_768;

/// Nanoseconds of a span at the start.
pub const FIRST_SPAN_NS: u64 = 100_000_000;

const _: () = assert!(HistoryHead::LEN + HISTORY_TOTALS * Total::LEN <= HISTORY_LEN);

record! {
    /// What stands before the totals.
    pub struct HistoryHead: 64 {
        /// Odd while the history is being written.
        0 seq: u32,
        /// Zero.
        4 reserved: u32,
        /// Nanoseconds of a span.
        8 span_ns: u64,
        /// Places that were used, since the last two spans became one; the others are zero.
        16 count: u64,
        /// Zero.
        24 reserved1: [u64; 5],
    }
}

record! {
    /// Host memory in one span of time, as the last census in it found it. Nothing changed in a span without one.
    pub struct Total: 64 {
        /// `CLOCK_MONOTONIC` of that census in nanoseconds; 0 if there was none.
        0 time_ns: u64,
        /// Bytes in use.
        8 in_use: u64,
        /// The most bytes in use that a census of the span found.
        16 most: u64,
        /// When that was.
        24 most_ns: u64,
        /// Of the bytes in use, those that were never touched.
        32 untouched: u64,
        /// Bytes in the caches of threads, in the transfer cache and in the central cache.
        40 caches: u64,
        /// Bytes of free pages that have memory.
        48 free: u64,
        /// Bytes of the pool's own.
        56 metadata: u64,
    }
}

impl Total {
    /// This span and the next one as one.
    #[must_use]
    pub fn and(self, next: Total) -> Total {
        let last = if next.time_ns == 0 { self } else { next };
        let (most, most_ns) = if next.most > self.most { (next.most, next.most_ns) } else { (self.most, self.most_ns) };
        Total { most, most_ns, ..last }
    }
}

/// The place of a moment that is `since_ns` after the start, and by how many halvings of the places it gets one: after
/// each of them, spans are twice as long as `span_ns` says.
pub fn place(since_ns: u64, span_ns: u64) -> (usize, u32) {
    let (mut at, mut halvings) = (since_ns / span_ns.max(1), 0);
    while at >= HISTORY_TOTALS as u64 {
        at /= 2;
        halvings += 1;
    }
    (at as usize, halvings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_as_long_as_a_minute() {
        let second = 1_000_000_000;
        assert_eq!(place(0, FIRST_SPAN_NS), (0, 0));
        assert_eq!(place(50 * second, FIRST_SPAN_NS), (500, 0));
        assert_eq!(place(51 * second, FIRST_SPAN_NS), (255, 1));
        let (at, halvings) = place(86_400 * second, FIRST_SPAN_NS);
        assert!((HISTORY_TOTALS / 2..HISTORY_TOTALS).contains(&at) && halvings == 11, "{at}, {halvings}");
        assert!(place(u64::MAX, 0).0 < HISTORY_TOTALS);
    }

    #[test]
    fn of_two_spans_the_peak_and_the_end_stay() {
        let first = Total { time_ns: 1, in_use: 10, most: 50, most_ns: 1, ..Total::ZERO };
        let second = Total { time_ns: 2, in_use: 20, most: 20, most_ns: 2, ..Total::ZERO };
        assert_eq!(first.and(second), Total { most: 50, most_ns: 1, ..second });
        assert_eq!(first.and(Total::ZERO), first);
        assert_eq!(Total::ZERO.and(second), second);
    }
}
