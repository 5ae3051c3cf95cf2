//! Batches of blocks that other threads freed, on their way to their owner.
//!
//! A stack of batches that any thread pushes to with a compare-and-exchange and one takes as a whole with an exchange.
//! Nothing is ever popped singly, so there is no ABA problem. What a batch says of itself is written into its own
//! blocks: the first one's note holds the next batch, the number of blocks and whether they are counted, the second
//! one's the last block.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::layout::block::Batch;
use crate::layout::block::BlockPtr;
use crate::sync::word::Word;

/// User addresses have 47 bits on x86-64 and 48 on AArch64 (more only where a program asks for it by a hint).
const ADDRESS_BITS: u32 = 48;
/// Set beside the number of blocks where these are counted.
const COUNTED: u64 = 1 << 15;

/// The stack. Zeroed memory is an empty one.
#[repr(transparent)]
pub struct Mailbox<W: Word = AtomicUsize>(W);

impl Mailbox {
    /// An empty mailbox.
    pub const fn new() -> Self {
        Mailbox(AtomicUsize::new(0))
    }
}

impl<W: Word> Mailbox<W> {
    /// Adds a batch.
    ///
    /// # Safety
    /// The batch's blocks are free and the caller's; it gives them away.
    pub unsafe fn push(&self, batch: Batch) {
        let mut head = self.0.load(Ordering::Relaxed);
        let count = u64::from(batch.count) | if batch.counted { COUNTED } else { 0 };
        // SAFETY: the caller owns the blocks until the exchange succeeds.
        unsafe {
            if batch.count > 1 {
                batch.first.next().set_note(batch.last.address() as u64);
            }
            loop {
                batch.first.set_note(head as u64 | count << ADDRESS_BITS);
                // Releases the blocks to whoever takes them. Those under it were released by their own pushes, whose
                // release sequences this exchange continues.
                let first = batch.first.address() as usize;
                match self.0.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(now) => head = now,
                }
            }
        }
    }

    /// Whether there are batches.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Takes all batches.
    #[inline]
    pub fn take(&self) -> Batches {
        Batches(if self.has_some() { self.0.swap(0, Ordering::Acquire) } else { 0 })
    }
}

/// Batches that were taken. Dropped early, it loses the rest.
pub struct Batches(usize);

impl Batches {
    /// No batch.
    pub const NONE: Batches = Batches(0);
}

impl Iterator for Batches {
    type Item = Batch;

    #[inline]
    fn next(&mut self) -> Option<Batch> {
        if self.0 == 0 {
            return None;
        }
        let first = BlockPtr::new(self.0 as *mut u8);
        // SAFETY: `take` made the blocks the caller's, and `push` wrote the notes.
        unsafe {
            let note = first.note();
            let counted = (note >> ADDRESS_BITS) & COUNTED != 0;
            let count = ((note >> ADDRESS_BITS) & (COUNTED - 1)) as u32;
            self.0 = (note & ((1 << ADDRESS_BITS) - 1)) as usize;
            let last = if count > 1 { BlockPtr::new(first.next().note() as *mut u8) } else { first };
            Some(Batch { first, last, count, counted })
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::sync::word::model;
    use core::cell::UnsafeCell;
    use core::ops::Range;
    use std::vec::Vec;

    /// Free blocks, each with a mark that says whether it has arrived. loom finds two threads at one mark, unless the
    /// one handed the block to the other.
    pub struct Blocks {
        memory: Vec<UnsafeCell<[usize; 2]>>,
        arrived: Vec<loom::cell::UnsafeCell<bool>>,
    }

    // SAFETY: loom runs one thread at a time.
    unsafe impl Sync for Blocks {}
    // SAFETY: as above.
    unsafe impl Send for Blocks {}

    impl Blocks {
        pub fn new(count: usize) -> Self {
            Blocks {
                memory: (0..count).map(|_| UnsafeCell::new([usize::MAX; 2])).collect(),
                arrived: (0..count).map(|_| loom::cell::UnsafeCell::new(false)).collect(),
            }
        }

        /// Whether a batch of so many blocks says that they are counted.
        fn is_counted(count: u32) -> bool {
            count.is_multiple_of(2)
        }

        /// A batch of these blocks.
        pub fn batch(&self, numbers: Range<usize>) -> Batch {
            let block = |number: usize| BlockPtr::new(self.memory[number].get().cast());
            for number in numbers.clone() {
                // SAFETY: the block belongs to the caller until it is sent; loom checks the mark.
                self.arrived[number].with_mut(|mark| unsafe { *mark = false });
                let next = if number + 1 < numbers.end { block(number + 1) } else { BlockPtr::NULL };
                // SAFETY: as above.
                unsafe { block(number).set_next(next) };
            }
            let (first, last, count) = (block(numbers.start), block(numbers.end - 1), numbers.len() as u32);
            Batch { first, last, count, counted: Self::is_counted(count) }
        }

        /// Marks the blocks of a batch that was taken, and checks what it says of itself. Returns the number of blocks.
        pub fn arrive(&self, batch: Batch) -> usize {
            assert_eq!(batch.counted, Self::is_counted(batch.count), "the batch says otherwise of the counters");
            let mut block = batch.first;
            for left in (0..batch.count).rev() {
                let number = (block.address() as usize - self.memory[0].get() as usize) / size_of::<[usize; 2]>();
                // SAFETY: the block was taken; loom checks that nobody else is at it.
                let twice = self.arrived[number].with_mut(|mark| unsafe { core::mem::replace(&mut *mark, true) });
                assert!(!twice, "block {number} arrived twice");
                assert_eq!(left == 0, block == batch.last, "the batch ends at another block than it says");
                // SAFETY: the block was taken.
                block = unsafe { block.next() };
            }
            batch.count as usize
        }

        /// The same for several batches.
        pub fn arrive_all(&self, batches: Batches) -> usize {
            batches.map(|batch| self.arrive(batch)).sum()
        }

        /// Fails unless every block arrived.
        pub fn assert_none_lost(&self) {
            for (number, mark) in self.arrived.iter().enumerate() {
                // SAFETY: the other threads have ended.
                assert!(mark.with(|mark| unsafe { *mark }), "block {number} was lost");
            }
        }
    }

    pub fn mailbox() -> Mailbox<model::AtomicUsize> {
        Mailbox(model::AtomicUsize::new(0))
    }

    /// A mailbox, and how many blocks each of two threads has taken out of it.
    struct State {
        mailbox: Mailbox<model::AtomicUsize>,
        blocks: Blocks,
        taken: [AtomicUsize; 2],
    }

    impl State {
        fn new() -> Self {
            State { mailbox: mailbox(), blocks: Blocks::new(6), taken: [const { AtomicUsize::new(0) }; 2] }
        }

        fn push(&self, numbers: Range<usize>) {
            // SAFETY: the batch is this thread's.
            unsafe { self.mailbox.push(self.blocks.batch(numbers)) };
        }

        fn take(&self, thread: usize) {
            let taken = self.blocks.arrive_all(self.mailbox.take());
            self.taken[thread].fetch_add(taken, Ordering::Relaxed);
        }

        /// Takes what is left. Blocks that each of the threads took before.
        fn end(&self) -> [usize; 2] {
            self.blocks.arrive_all(self.mailbox.take());
            self.blocks.assert_none_lost();
            self.taken.each_ref().map(|taken| taken.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn batches_of_two_threads_arrive_once_and_whole_while_a_third_takes() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| {
                    state.push(0..1);
                    state.push(1..3);
                },
                |state| state.push(3..6),
                |state| {
                    state.take(0);
                    state.take(0);
                },
            ],
            interruptions: 2,
            end: State::end,
        };
        // Of batches of 1 and 2 blocks, in this order, and one of 3 at any place between.
        assert!(scenario.outcomes().into_iter().eq([0, 1, 3, 4, 6].map(|taken| [taken, 0])));
    }

    #[test]
    fn two_threads_that_take_never_get_the_same_batch() {
        let scenario = model::Scenario {
            state: State::new,
            threads: &[
                |state| {
                    state.push(0..1);
                    state.push(1..6);
                },
                |state| state.take(0),
                |state| state.take(1),
            ],
            interruptions: 2,
            end: State::end,
        };
        // Both batches lie in the mailbox, or the first one alone does, or none.
        let expected = [[0, 0], [0, 1], [0, 6], [1, 0], [1, 5], [5, 1], [6, 0]];
        assert!(scenario.outcomes().into_iter().eq(expected));
    }
}
