//! The rings of a program, as far as they were read.
//!
//! Words are taken out of a ring as they are, so that the program has room again before they are looked at. A batch
//! begins with a time, or where the one before was cut off;
//! batches of all rings are recorded in the order in which they began.

use poolscope_wire::trace::{Event, NoEvent, STACK_SLOTS};

use crate::recording::events::call_paths::UNKNOWN;
use crate::recording::events::session::RingLosses;
use crate::recording::tap::{RingState, Tap, TapError};

/// A ring, what was taken out of it and is not recorded yet, and what its latest events said.
#[derive(Debug)]
pub(crate) struct Ring {
    number: u32,
    /// Words that were taken out, and that had been written at the latest reading.
    tail: u64,
    head: u64,
    /// Words that it has room for.
    room: u64,
    /// The last of them; those before `at` are recorded.
    pub words: Vec<u64>,
    pub at: usize,
    /// Those before this were looked through for blocks that are soon asked for.
    pub announced: usize,
    /// Those before this were looked through for times, of which this is the last, nanoseconds since the start.
    timed: usize,
    last_ns: u64,
    /// Stacks, by the thread's slots.
    pub slots: Vec<u32>,
    pub thread: Option<u32>,
    pub losses: RingLosses,
    /// Of the events at `at`, nanoseconds since the start.
    time_ns: u64,
    /// When it was last read to its head, and all that recorded: what is in it now came later. What one reading leaves
    /// there came before that reading.
    empty_ns: u64,
    /// No event of `words` came later.
    until_ns: u64,
    /// The latest reading has come to its head.
    to_the_head: bool,
}

impl Ring {
    pub(crate) fn new(number: u32) -> Ring {
        Ring {
            number,
            tail: 0,
            head: 0,
            room: 0,
            words: Vec::new(),
            at: 0,
            announced: 0,
            timed: 0,
            last_ns: 0,
            slots: vec![UNKNOWN; STACK_SLOTS],
            thread: None,
            losses: RingLosses { ring: number, ..RingLosses::default() },
            time_ns: 0,
            empty_ns: 0,
            until_ns: 0,
            to_the_head: false,
        }
    }

    /// Words that are recorded.
    pub(crate) fn recorded(&self) -> u64 {
        self.tail - (self.words.len() - self.at) as u64
    }

    /// Takes out what is new, up to `most` words together with what is left of earlier readings. `until_ns` is a time
    /// after its state was looked at. Returns the number of words.
    pub(crate) fn take(
        &mut self,
        tap: &mut Tap,
        state: RingState,
        most: usize,
        until_ns: u64,
    ) -> Result<u64, TapError> {
        self.losses = RingLosses {
            ring: self.number,
            tid: state.tid,
            allocs: state.lost_allocs,
            frees: state.lost_frees,
            waits: state.waits,
        };
        (self.head, self.room, self.until_ns) = (state.head, state.words, until_ns);
        self.take_on(tap, most)
    }

    /// Goes on with what a reading has left, if most of what was taken out is recorded. Returns the number of words.
    pub(crate) fn take_more(&mut self, tap: &mut Tap, most: usize) -> Result<u64, TapError> {
        let is_worth_it = !self.to_the_head && 2 * (self.words.len() - self.at) < most;
        if is_worth_it { self.take_on(tap, most) } else { Ok(0) }
    }

    fn take_on(&mut self, tap: &mut Tap, most: usize) -> Result<u64, TapError> {
        self.words.drain(..self.at);
        self.announced = self.announced.saturating_sub(self.at);
        self.timed = self.timed.saturating_sub(self.at);
        self.at = 0;
        let most = most.saturating_sub(self.words.len()) as u64;
        let new = self.head.saturating_sub(self.tail).min(most);
        if new > 0 {
            tap.copy(self.number, self.room, self.tail, self.tail + new, &mut self.words)?;
            self.tail += new;
            tap.take_out(self.number, self.tail)?;
        }
        self.to_the_head = self.tail == self.head;
        Ok(new)
    }

    /// Its state could not be looked at: nothing new was taken out.
    pub(crate) fn pass_over(&mut self) {
        self.to_the_head = false;
    }

    /// Whether the latest reading took out all that it had: not where it had more than its share of a reading, or is
    /// held up by another ring.
    pub(crate) fn is_read_to_the_head(&self) -> bool {
        self.to_the_head
    }

    /// The time up to which it was read, if that is not up to its head:
    /// when the last batch began of which there is something.
    pub(crate) fn read_up_to(&mut self, start_ns: u64) -> Option<u64> {
        if self.to_the_head {
            return None;
        }
        self.timed = self.timed.max(self.at);
        self.last_ns = self.last_ns.max(self.time_ns);
        while self.timed < self.words.len() {
            match Event::read(&self.words[self.timed..]) {
                Ok((Event::Time(ns), len)) => {
                    self.last_ns = ns.saturating_sub(start_ns).max(self.last_ns);
                    self.timed += len;
                }
                Ok((_, len)) => self.timed += len,
                Err(NoEvent::Unknown(_)) => self.timed += 1,
                Err(NoEvent::Cut) => break,
            }
        }
        Some(self.last_ns)
    }

    /// Goes to the next batch, of times counted from `start_ns`: when it began at the earliest. `None` if there is none
    /// that is whole, or if it began at `limit` or later: what came before it may be in a ring that was not read so
    /// far. Only a ring of which that is true itself goes on with the batch of that time.
    pub(crate) fn begin_batch(&mut self, start_ns: u64, limit: u64) -> Option<u64> {
        loop {
            match Event::read(&self.words[self.at..]) {
                Err(NoEvent::Cut) => return None,
                Ok((Event::Time(ns), len)) => {
                    let ns = ns.saturating_sub(start_ns).max(self.time_ns);
                    if ns > limit || (ns == limit && self.to_the_head) {
                        return None;
                    }
                    self.time_ns = ns;
                    self.at += len;
                }
                // No event that is still in it is older.
                Ok(_) | Err(NoEvent::Unknown(_)) => return Some(self.time_ns.max(self.empty_ns)),
            }
        }
    }

    /// When the batch that was recorded up to `at`, and which began at `from_ns`, has ended at the latest.
    pub(crate) fn end_of_batch(&self, start_ns: u64, from_ns: u64) -> u64 {
        match Event::read(&self.words[self.at..]) {
            Ok((Event::Time(ns), _)) => ns.saturating_sub(start_ns).clamp(from_ns, self.until_ns.max(from_ns)),
            _ => self.until_ns,
        }
    }

    /// At the end of the reading that began at `now`.
    pub(crate) fn end_reading(&mut self, now: u64) {
        if self.to_the_head && self.at == self.words.len() {
            self.empty_ns = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolscope_wire::trace::{free_word, tag, value_word};

    /// A ring out of which these words were taken, by a reading that came to its head.
    fn ring(words: &[u64], until_ns: u64) -> Ring {
        let mut ring = Ring::new(0);
        ring.words.extend(words);
        ring.tail = words.len() as u64;
        (ring.until_ns, ring.to_the_head) = (until_ns, true);
        ring
    }

    fn time(ns: u64) -> u64 {
        value_word(tag::TIME, ns)
    }

    #[test]
    fn batches_begin_with_their_time_and_wait_for_the_next_reading_where_it_is_too_late() {
        let mut ring = ring(&[time(1010), free_word(16, 0), time(1020), free_word(32, 0)], 60);
        assert_eq!(ring.begin_batch(1000, 20), Some(10));
        ring.at += 1;
        assert_eq!((ring.end_of_batch(1000, 10), ring.begin_batch(1000, 20)), (20, None));
        ring.end_reading(20);
        assert_eq!(ring.recorded(), 2);
        assert_eq!(
            ring.begin_batch(1000, 50),
            Some(20),
            "what a reading leaves is not taken for younger than the reading"
        );
        ring.at += 1;
        assert_eq!((ring.end_of_batch(1000, 20), ring.begin_batch(1000, 50)), (60, None));
        ring.end_reading(50);
        ring.words.push(free_word(48, 0));
        assert_eq!(ring.begin_batch(1000, 90), Some(50), "it was empty then");
    }

    #[test]
    fn a_ring_that_was_read_in_part_holds_the_others_up_and_goes_on_itself() {
        let mut part = ring(&[time(10), free_word(16, 0), time(20), free_word(32, 0)], 60);
        assert_eq!(part.read_up_to(0), None);
        part.pass_over();
        let limit = part.read_up_to(0).unwrap();
        assert_eq!(limit, 20);
        let mut whole = ring(&[time(19), free_word(48, 0), time(20), free_word(64, 0)], 60);
        for (ring, batches) in [(&mut part, 2), (&mut whole, 1)] {
            let mut seen = 0;
            while ring.begin_batch(0, limit).is_some() {
                (seen, ring.at) = (seen + 1, ring.at + 1);
            }
            assert_eq!(seen, batches);
        }
        part.end_reading(50);
        part.words.push(free_word(80, 0));
        assert_eq!(part.begin_batch(0, 90), Some(20), "the rest of the batch is as old as its beginning");
    }

    #[test]
    fn an_event_that_is_not_whole_is_no_batch() {
        let mut ring = ring(&[time(5), poolscope_wire::trace::alloc_word(16, 1)], 60);
        assert_eq!(ring.begin_batch(0, 50), None);
        ring.words.push(100);
        assert_eq!(ring.begin_batch(0, 50), Some(5));
    }
}
