//! Producers and consumers: in each pair one thread allocates and the other one frees.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent::{self, Run};
use crate::numbers::Numbers;

const BATCH: usize = 64;
const SLOTS: usize = 64;

#[repr(align(128))]
#[derive(Default)]
struct Position(AtomicUsize);

/// Hands batches of blocks from one thread to one other.
struct Ring {
    batches: Box<[UnsafeCell<[*mut u8; BATCH]>]>,
    written: Position,
    read: Position,
}

// SAFETY: the batches from `read` to `written` are the consumer's, the others the producer's, and each side moves its
// own position only when it is done with the batch.
unsafe impl Sync for Ring {}

impl Ring {
    fn new() -> Ring {
        let batches = (0..SLOTS).map(|_| UnsafeCell::new([std::ptr::null_mut(); BATCH])).collect();
        Ring { batches, written: Position::default(), read: Position::default() }
    }

    fn produce(&self, run: &Run<'_>, seed: u64) {
        let mut numbers = Numbers::new(seed);
        for number in 0.. {
            while number - self.read.0.load(Ordering::Acquire) == SLOTS {
                if run.over() {
                    return;
                }
                std::thread::yield_now();
            }
            // SAFETY: the consumer has left this batch behind.
            let batch = unsafe { &mut *self.batches[number % SLOTS].get() };
            for block in batch {
                *block = Linked::allocate(64 + numbers.below(448));
            }
            self.written.0.store(number + 1, Ordering::Release);
        }
    }

    fn consume(&self, run: &Run<'_>) {
        for number in 0.. {
            while self.written.0.load(Ordering::Acquire) == number {
                if run.over() {
                    return;
                }
                std::thread::yield_now();
            }
            // SAFETY: the producer has handed this batch over.
            for &block in unsafe { &*self.batches[number % SLOTS].get() } {
                Linked::release(block);
            }
            self.read.0.store(number + 1, Ordering::Release);
            run.count.add(BATCH as u64);
        }
    }
}

/// Nanoseconds per block that came from one thread and was freed by another, with so many pairs of threads.
pub fn time(pairs: usize, stretch: Stretch) -> f64 {
    let rings: Vec<Ring> = (0..pairs).map(|_| Ring::new()).collect();
    concurrent::time(2 * pairs, stretch, |thread, run| {
        let ring = &rings[thread / 2];
        if thread % 2 == 0 { ring.produce(&run, thread as u64) } else { ring.consume(&run) }
    })
}
