//! How a record of the segment is changed while a reader copies it: under a number that is odd meanwhile.
//!
//! A reader copies the record twice. Both copies equal and the number even means that they are whole: who has seen a
//! part of a change finds the number odd or higher the next time,
//! and who has seen the number of a change finds all of it.

use core::sync::atomic::{AtomicU32, Ordering};

/// The number of a record.
pub trait Sequence {
    /// Its value.
    fn get(&self) -> u32;
    /// Changes it.
    fn set(&self, value: u32);
    /// Keeps the writes before it before those after it.
    fn fence();
}

impl Sequence for AtomicU32 {
    fn get(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    fn set(&self, value: u32) {
        self.store(value, Ordering::Relaxed);
    }

    fn fence() {
        core::sync::atomic::fence(Ordering::Release);
    }
}

/// Changes a record by `write`, which is told the number that the record has meanwhile. One at a time.
pub fn change<S: Sequence>(sequence: &S, write: impl FnOnce(u32)) {
    let odd = sequence.get() | 1;
    sequence.set(odd);
    S::fence();
    write(odd);
    S::fence();
    sequence.set(odd.wrapping_add(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::word::model;
    use loom::sync::atomic::AtomicU32 as Model;
    use std::sync::Mutex;

    impl Sequence for Model {
        fn get(&self) -> u32 {
            self.load(Ordering::Relaxed)
        }

        fn set(&self, value: u32) {
            self.store(value, Ordering::Relaxed);
        }

        fn fence() {
            loom::sync::atomic::fence(Ordering::Release);
        }
    }

    /// A record of two words, which are always written as the same value, and what the reader made of it.
    struct State {
        sequence: Model,
        words: [Model; 2],
        read: Mutex<Option<u32>>,
    }

    impl State {
        fn new() -> Self {
            State { sequence: Model::new(0), words: [Model::new(0), Model::new(0)], read: Mutex::new(None) }
        }

        fn write(&self, value: u32) {
            change(&self.sequence, |_| self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed)));
        }

        /// No order among the words: that is the kernel's.
        fn copy(&self) -> [u32; 3] {
            [&self.words[1], &self.sequence, &self.words[0]].map(|word| word.load(Ordering::Relaxed))
        }

        /// As the profiler does it, in another process.
        fn read(&self) {
            let first = self.copy();
            // Between two system calls.
            loom::sync::atomic::fence(Ordering::SeqCst);
            let second = self.copy();
            let [one, sequence, two] = first;
            if first == second && sequence.is_multiple_of(2) {
                assert_eq!((one, two), (sequence / 2, sequence / 2), "a torn record");
                *self.read.lock().unwrap() = Some(one);
            }
        }
    }

    #[test]
    fn a_reader_gets_a_record_whole_or_sees_that_it_is_torn() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| {
                    state.write(1);
                    state.write(2);
                },
                State::read,
            ],
            interruptions: 2,
            end: |state| *state.read.lock().unwrap(),
        };
        assert_eq!(scenario.outcomes(), [None, Some(0), Some(1), Some(2)].into());
    }
}
