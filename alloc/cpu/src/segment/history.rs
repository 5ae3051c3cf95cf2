//! The totals of the process since its start, in the segment. The census writes them ([`crate::census`]).

use core::sync::atomic::{AtomicU32, Ordering};

use poolscope_wire::history::{FIRST_SPAN_NS, place};
use poolscope_wire::{HEADER_LEN, HISTORY_TOTALS, Header, HistoryHead, Total};

use crate::segment::Segment;
use crate::segment::sequence;

impl Segment {
    fn history(&self) -> *mut HistoryHead {
        // SAFETY: the history follows the header, and exists as long as the segment.
        unsafe { self.base.add(HEADER_LEN).cast() }
    }

    /// Adds what a census has found. One at a time.
    pub fn note_total(&self, found: Total) {
        let head = self.history();
        // SAFETY: the totals follow their head, and `at` is below their number.
        let total = move |at: usize| unsafe { head.add(1).cast::<Total>().add(at) };
        // SAFETY: a field of the header, which is mapped.
        let start_ns = unsafe { (&raw const (*self.base.cast::<Header>()).start_monotonic_ns).read_volatile() };
        let span = &self.private().span_ns;
        let span_ns = span.load(Ordering::Relaxed).max(FIRST_SPAN_NS);
        let (at, halvings) = place(found.time_ns.saturating_sub(start_ns), span_ns);
        // Longer spans than a process can live.
        let halvings = halvings.min(span_ns.leading_zeros());
        span.store(span_ns << halvings, Ordering::Relaxed);
        // SAFETY: an aligned word of the segment's.
        let seq = unsafe { AtomicU32::from_ptr(&raw mut (*head).seq) };
        sequence::change(seq, |_| {
            for _ in 0..halvings {
                for pair in 0..HISTORY_TOTALS {
                    // SAFETY: records of the segment's, which the census alone writes.
                    unsafe {
                        let both = if pair < HISTORY_TOTALS / 2 {
                            total(2 * pair).read_volatile().and(total(2 * pair + 1).read_volatile())
                        } else {
                            Total::ZERO
                        };
                        total(pair).write_volatile(both);
                    }
                }
            }
            // SAFETY: as above.
            unsafe {
                let before = total(at).read_volatile();
                total(at).write_volatile(before.and(found));
                (&raw mut (*head).span_ns).write_volatile(span_ns << halvings);
                (&raw mut (*head).count).write_volatile(at as u64 + 1);
            }
        });
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::segment::Identity;

    fn segment() -> Segment {
        Segment::in_memory(Identity { generation: 1, exact: false, forked: false }).expect("there is memory")
    }

    fn read(segment: &Segment) -> (HistoryHead, std::vec::Vec<Total>) {
        let head = segment.history();
        // SAFETY: records of a segment that nobody else knows.
        unsafe {
            let totals = (0..HISTORY_TOTALS).map(|at| head.add(1).cast::<Total>().add(at).read());
            (head.read(), totals.collect())
        }
    }

    #[test]
    fn a_long_history_keeps_its_start_its_peak_and_its_end() {
        let segment = segment();
        let start_ns = segment.header().start_monotonic_ns;
        let end = 20_000u64;
        for at in 0..=end {
            let in_use = if at == 777 { 1 << 40 } else { at };
            let time_ns = start_ns + at * 80_000_000;
            segment.note_total(Total { time_ns, in_use, most: in_use, most_ns: time_ns, ..Total::ZERO });
        }
        let (head, totals) = read(&segment);
        assert!(head.seq > 0 && head.seq % 2 == 0);
        let used = &totals[..head.count as usize];
        assert!((HISTORY_TOTALS / 2..=HISTORY_TOTALS).contains(&used.len()), "{}", used.len());
        assert!(used.iter().all(|total| total.time_ns > 0) && used.is_sorted_by_key(|total| total.time_ns));
        assert!(totals[used.len()..].iter().all(|total| *total == Total::ZERO));
        let peak = used.iter().max_by_key(|total| total.most).expect("a peak");
        assert_eq!((peak.most, peak.most_ns), (1 << 40, start_ns + 777 * 80_000_000));
        assert_eq!(used[used.len() - 1].in_use, end);
        assert!(used[0].time_ns - start_ns < head.span_ns && head.span_ns.is_multiple_of(FIRST_SPAN_NS));
    }

    #[test]
    fn a_program_that_was_idle_for_long_has_few_spans() {
        let segment = segment();
        let start_ns = segment.header().start_monotonic_ns;
        for seconds in [0, 1, 3_000_000] {
            let time_ns = start_ns + seconds * 1_000_000_000;
            segment.note_total(Total {
                time_ns,
                in_use: seconds + 1,
                most: seconds + 1,
                most_ns: time_ns,
                ..Total::ZERO
            });
        }
        let (head, totals) = read(&segment);
        let used: std::vec::Vec<&Total> = totals.iter().filter(|total| total.time_ns > 0).collect();
        assert_eq!((used.len(), used[0].in_use, used[1].in_use), (2, 2, 3_000_001));
        assert_eq!(totals[head.count as usize - 1].in_use, 3_000_001);
    }

    /// Whatever somebody else has written to the file.
    #[test]
    fn a_history_that_others_wrote_to_leads_nowhere() {
        let segment = segment();
        // SAFETY: memory of the segment's own.
        unsafe { segment.history().cast::<u8>().write_bytes(0xff, poolscope_wire::HISTORY_LEN) };
        segment.header().start_monotonic_ns = u64::MAX;
        segment.note_total(Total { time_ns: 1, in_use: 5, most: 5, most_ns: 1, ..Total::ZERO });
        segment.header().start_monotonic_ns = 0;
        segment.note_total(Total { time_ns: u64::MAX, in_use: 6, most: 6, most_ns: 1, ..Total::ZERO });
        assert_eq!(read(&segment).0.count, 1 + place(u64::MAX, FIRST_SPAN_NS).0 as u64);
    }
}
