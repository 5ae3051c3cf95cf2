//! Random replacement: a fixed number of live blocks; each step frees one of them and puts one of another size in its
//! place.

use std::marker::PhantomData;

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent;
use crate::numbers::Numbers;
use crate::single::Workload;
use crate::table::Table;

/// Sizes are drawn evenly from `least..=most`.
pub struct Replacement<C> {
    live: Table<*mut u8>,
    numbers: Numbers,
    least: usize,
    sizes: usize,
    calls: PhantomData<C>,
}

// SAFETY: the blocks are its own, whichever thread has it.
unsafe impl<C> Send for Replacement<C> {}

impl<C: Calls> Replacement<C> {
    /// `live` blocks of `least` to `most` bytes.
    pub fn new(live: usize, least: usize, most: usize, seed: u64) -> Self {
        let mut replacement = Replacement {
            live: Table::new(live, std::ptr::null_mut()),
            numbers: Numbers::new(seed),
            least,
            sizes: most - least + 1,
            calls: PhantomData,
        };
        for slot in 0..live {
            replacement.replace(slot);
        }
        replacement
    }

    #[inline(always)]
    fn replace(&mut self, slot: usize) {
        let size = self.least + self.numbers.below(self.sizes);
        C::release(self.live[slot]);
        self.live[slot] = C::allocate(size);
    }

    /// One replacement.
    #[inline(always)]
    pub fn step(&mut self) {
        let slot = self.numbers.below(self.live.len());
        self.replace(slot);
    }
}

impl<C: Calls> Workload for Replacement<C> {
    fn run(&mut self, operations: u64) -> u64 {
        for _ in 0..operations {
            self.step();
        }
        operations
    }
}

/// Wall time in nanoseconds per replacement of all threads together. Each has 4096 live blocks of 8 to 511 bytes.
pub fn time(threads: usize, stretch: Stretch) -> f64 {
    const CHUNK: u64 = 64;
    concurrent::time(threads, stretch, |thread, run| {
        let mut replacement = Replacement::<Linked>::new(4096, 8, 511, thread as u64);
        while !run.over() {
            run.count.add(replacement.run(CHUNK));
        }
    })
}
