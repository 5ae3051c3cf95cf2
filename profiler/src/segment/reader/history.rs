//! The totals of a process since its start.

use poolscope_wire::{HISTORY_LEN, HISTORY_TOTALS, Header, HistoryHead, Total};

use super::SegmentReader;
use crate::model::history::History;
use crate::model::snapshot::Dropped;

impl SegmentReader {
    /// The history, which is changed as a whole: again while it is. A segment that was made before there was one has
    /// none, and neither has one that says it lies where it can't.
    pub(super) fn read_history(&mut self, header: &Header, now_ns: u64, dropped: &mut Dropped) -> History {
        if header.history == 0 {
            return History::default();
        }
        let Self { file, copies: [first, second], patience, .. } = self;
        let whole = || {
            for copy in [&mut *first, &mut *second] {
                copy.resize(HISTORY_LEN, 0);
                header.history.checked_add(HISTORY_LEN as u64).ok_or(())?;
                file.read_exact(copy, header.history).map_err(drop)?;
            }
            let head = HistoryHead::from_bytes(first).filter(|head| head.seq.is_multiple_of(2) && first == second);
            Ok(head.map(|head| {
                let count = usize::try_from(head.count).unwrap_or(usize::MAX).min(HISTORY_TOTALS);
                let totals = first[HistoryHead::LEN..].chunks_exact(Total::LEN).take(count);
                let totals = totals.filter_map(Total::from_bytes).filter(|total| total.time_ns > 0);
                History::new(head.span_ns, totals, now_ns)
            }))
        };
        match patience.look(whole) {
            Ok(Some(history)) => return history,
            // The process was killed while it wrote.
            Ok(None) => dropped.torn += 1,
            Err(()) => dropped.invalid += 1,
        }
        History::default()
    }
}
