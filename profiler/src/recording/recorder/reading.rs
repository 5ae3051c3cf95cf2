//! One reading of all rings: what is in them is taken out, and recorded in the order in which it happened.
//!
//! A thread's events are in the order of its ring, and batches of all rings in the order in which they began. So a ring
//! of which a part was taken out holds up what came later in the others. Of a thousand rings, none may have much out at
//! a time, and the one that holds up the others is read on until there is another one, without looking at all rings
//! again.

use std::cmp::Reverse;
use std::io::Write;
use std::time::{Duration, Instant};

use super::{RecordError, Recorder};
use crate::process::clock::monotonic_ns;
use crate::recording::tap::rings::Ring;

/// Bytes of words that are copied at a time, of all rings.
const COPY_BYTES: u64 = 16 << 20;
/// A reading that finds ever more ends after so long: the program is to hear from its recorder.
const READING_MAX: Duration = Duration::from_millis(20);
/// Where a reading takes more than this part out of a ring, the next one comes at once.
const MUCH: u64 = 4;

impl<W: Write> Recorder<W> {
    /// Takes out what is in the rings, and records it, unless the file is full. Returns the number of words that were
    /// taken out or recorded.
    pub(super) fn read_rings(&mut self) -> Result<u64, RecordError> {
        if self.fills()? {
            return Ok(0);
        }
        // Batches that begin after this stay where they are: what came before them may be in a ring that is read
        // already, or in one that is not known yet.
        let now = self.since_start(monotonic_ns());
        let (rings, lost) = self.tap.rings()?;
        self.lost_without_ring = lost;
        while self.rings.len() < rings as usize {
            self.rings.push(Ring::new(self.rings.len() as u32));
        }
        let share = (COPY_BYTES / 8 / u64::from(rings.max(1))) as usize;
        let mut found = 0;
        self.found_much = false;
        for (index, ring) in (0..).zip(&mut self.rings) {
            let Some(state) = self.tap.ring(index)? else {
                ring.pass_over();
                continue;
            };
            // Its head was looked at before: no event came later.
            let until_ns = monotonic_ns().saturating_sub(self.start_ns);
            let new = ring.take(&mut self.tap, state, share, until_ns)?;
            found += new;
            self.found_much |= new * MUCH > state.words;
        }
        let begun = Instant::now();
        loop {
            // As do those that begin after the time up to which a ring was read that has more than could be taken out
            // of it.
            let limit = self.rings.iter_mut().filter_map(|ring| ring.read_up_to(self.start_ns)).fold(now, u64::min);
            found += self.record_batches(limit)?;
            if self.is_full || begun.elapsed() > READING_MAX {
                break;
            }
            // One ring holds up the others of as many threads as there may be, and has room again.
            let taken = self.rings.iter_mut().try_fold(0, |sum, ring| Ok(sum + ring.take_more(&mut self.tap, share)?));
            match taken.map_err(RecordError::Tap)? {
                0 => break,
                taken => found += taken,
            }
        }
        if self.is_full {
            return Ok(found);
        }
        self.rings.iter_mut().for_each(|ring| ring.end_reading(now));
        self.found_much |= self.rings.iter().any(|ring| !ring.is_read_to_the_head());
        if self.is_goal_reached()
            && let Some(heads) = self.heads()?
        {
            self.matcher.all_rings_read(&mut self.writer, &self.paths)?;
            self.goal = heads;
        }
        Ok(found)
    }

    /// Records the batches of all rings that begin before `limit`, one after the other, as long as the file has room.
    /// Returns the number of their words.
    fn record_batches(&mut self, limit: u64) -> Result<u64, RecordError> {
        for (index, ring) in (0..).zip(&mut self.rings) {
            let from_ns = ring.begin_batch(self.start_ns, limit);
            self.batches.extend(from_ns.map(|from_ns| Reverse((from_ns, index))));
        }
        let mut found = 0;
        while let Some(Reverse((from_ns, index))) = self.batches.pop() {
            found += self.record(index, from_ns)?;
            // A reading of a recorder that was held up may be more than the file has room for.
            if self.fills()? {
                self.batches.clear();
                break;
            }
            let next = self.rings[index as usize].begin_batch(self.start_ns, limit);
            self.batches.extend(next.map(|from_ns| Reverse((from_ns, index))));
        }
        Ok(found)
    }

    /// Whether every ring was read up to where it was when the goal was set.
    fn is_goal_reached(&self) -> bool {
        let recorded = |ring: usize| self.rings.get(ring).map_or(0, Ring::recorded);
        self.goal.iter().enumerate().all(|(ring, &goal)| recorded(ring) >= goal)
    }

    /// Where all rings are now, those included that have come since they were read. What was written before anything
    /// that was read so far is below. Their places during the reading would not do: a ring that was looked at early in
    /// it may have got an allocation since, the free of which was read later in it.
    /// `None` while one of them can't be read.
    fn heads(&self) -> Result<Option<Vec<u64>>, RecordError> {
        let (rings, _) = self.tap.rings()?;
        let heads = (0..rings).map(|ring| Ok(self.tap.ring(ring)?.map(|state| state.head)));
        heads.collect()
    }
}
