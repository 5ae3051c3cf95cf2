//! A ring of words with one writer and one reader, which is another process.
//!
//! The writer alone knows where it is; it says so after the words are there. The reader says how far it is by two
//! words, the second made of the first ([`check_word`]): a pair that does not fit, or one that is outside of what was
//! written, is not believed. So no reader can make the writer write where it must not,
//! and a reader that stops is a full ring.

use core::sync::atomic::{AtomicUsize, Ordering};

use poolscope_wire::trace::check_word;

use crate::sync::word::Word;

/// The shared side.
pub struct Ring<'a, W: Word = AtomicUsize> {
    /// Words ever written.
    pub head: &'a W,
    /// Words ever taken out.
    pub tail: &'a W,
    /// [`check_word`] of `tail`.
    pub tail_check: &'a W,
    /// The words; a power of two.
    pub words: &'a [W],
}

/// The writer's side.
#[derive(Clone, Copy)]
pub struct Cursor {
    /// Words ever written.
    pub head: usize,
    /// `head` may go up to here, as far as is known.
    pub limit: usize,
}

impl<W: Word> Ring<'_, W> {
    /// Looks how far the reader is, and whether there is room for `words` words then.
    #[inline]
    pub fn has_room(&self, cursor: &mut Cursor, words: usize) -> bool {
        cursor.limit.wrapping_sub(cursor.head) >= words
            || (self.look(cursor) && cursor.limit.wrapping_sub(cursor.head) >= words)
    }

    /// Looks how far the reader is. False if it can't be there.
    #[inline]
    pub fn look(&self, cursor: &mut Cursor) -> bool {
        let check = self.tail_check.load(Ordering::Acquire);
        let tail = self.tail.load(Ordering::Acquire);
        let behind = cursor.head.wrapping_sub(tail);
        if check != check_word(tail as u64) as usize || behind > self.words.len() {
            return false;
        }
        cursor.limit = tail.wrapping_add(self.words.len());
        true
    }

    /// Words that the reader has still to take out, as far as is known.
    #[inline]
    pub fn waiting(&self, cursor: &Cursor) -> usize {
        self.words.len() - cursor.limit.wrapping_sub(cursor.head)
    }

    /// Writes a word, which the reader does not see yet. There is room for it.
    #[inline(always)]
    pub fn put(&self, cursor: &mut Cursor, word: u64) {
        let at = cursor.head & (self.words.len() - 1);
        // SAFETY: the mask leaves less than the length, which is a power of two.
        unsafe { self.words.get_unchecked(at) }.store(word as usize, Ordering::Relaxed);
        cursor.head = cursor.head.wrapping_add(1);
    }

    /// Shows the reader everything that was written.
    #[inline(always)]
    pub fn publish(&self, cursor: &Cursor) {
        self.head.store(cursor.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;
    use std::vec::Vec;

    struct State {
        head: model::AtomicUsize,
        tail: model::AtomicUsize,
        tail_check: model::AtomicUsize,
        words: [model::AtomicUsize; 2],
        taken: std::sync::Mutex<Vec<usize>>,
        lost: AtomicUsize,
    }

    impl State {
        fn new() -> Self {
            let word = |value: u64| model::AtomicUsize::new(value as usize);
            State {
                head: word(0),
                tail: word(0),
                tail_check: word(check_word(0)),
                words: [word(0), word(0)],
                taken: std::sync::Mutex::new(Vec::new()),
                lost: AtomicUsize::new(0),
            }
        }

        fn write(&self) {
            let ring = Ring { head: &self.head, tail: &self.tail, tail_check: &self.tail_check, words: &self.words };
            let mut cursor = Cursor { head: 0, limit: 2 };
            for word in 1..=4 {
                if ring.has_room(&mut cursor, 1) {
                    ring.put(&mut cursor, word);
                    ring.publish(&cursor);
                } else {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }

        /// As the recorder does it: by copies.
        fn read(&self) {
            let mut tail = 0;
            for _ in 0..2 {
                let head = self.head.load(Ordering::Acquire);
                while tail < head {
                    let word = self.words[tail % 2].load(Ordering::Relaxed);
                    self.taken.lock().unwrap().push(word);
                    tail += 1;
                }
                // The order of the two does not matter, which is the point of the second.
                self.tail.store(tail, Ordering::Release);
                self.tail_check.store(check_word(tail as u64) as usize, Ordering::Release);
            }
        }
    }

    #[test]
    fn what_is_taken_out_is_what_was_written_and_what_finds_no_room_is_counted() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[State::write, State::read],
            interruptions: 3,
            end: |state| {
                let taken = state.taken.lock().unwrap().clone();
                let lost = state.lost.load(Ordering::Relaxed);
                let head = state.head.load(Ordering::Relaxed);
                assert_eq!(head + lost, 4, "every word is written or counted");
                assert!(taken.is_sorted() && taken.first().is_none_or(|&word| word == 1), "{taken:?}");
                assert!(taken.windows(2).all(|pair| pair[0] < pair[1]), "{taken:?}");
                (taken.len(), lost)
            },
        };
        let outcomes = scenario.outcomes();
        assert!(outcomes.contains(&(4, 0)), "{outcomes:?}");
        assert!(outcomes.contains(&(0, 2)), "{outcomes:?}");
    }

    #[test]
    fn a_tail_that_cannot_be_is_not_believed() {
        let words: Vec<AtomicUsize> = (0..4).map(AtomicUsize::new).collect();
        let [head, tail, tail_check] = [const { AtomicUsize::new(0) }; 3];
        let ring = Ring { head: &head, tail: &tail, tail_check: &tail_check, words: &words };
        let mut cursor = Cursor { head: 6, limit: 6 };
        for (claimed, check) in [(6, 0), (7, check_word(7)), (1, check_word(1)), (usize::MAX, check_word(u64::MAX))] {
            tail.store(claimed, Ordering::Relaxed);
            tail_check.store(check as usize, Ordering::Relaxed);
            assert!(!ring.has_room(&mut cursor, 1), "{claimed}");
        }
        tail.store(5, Ordering::Relaxed);
        tail_check.store(check_word(5) as usize, Ordering::Relaxed);
        assert!(ring.has_room(&mut cursor, 3) && !ring.has_room(&mut cursor, 4));
    }
}
