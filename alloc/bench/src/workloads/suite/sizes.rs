//! Threads that replace blocks at random, of sizes as programs have them: many small ones and few large ones.

use crate::calls::{Calls, Linked};
use crate::concurrent::Run;
use crate::numbers::Numbers;
use crate::table::Table;

const CHUNK: u64 = 64;

/// After the C library's bench-malloc-thread: 1024 blocks of 4 B to 32 KiB, each twice as large half as often; one of
/// them is freed, and another allocated in its place.
pub fn power(thread: usize, run: Run<'_>) {
    let mut numbers = Numbers::new(thread as u64);
    let mut sizes = Table::new(8192, 0);
    sizes.fill_with(|| numbers.logarithmic(4, 32 << 10));
    let mut blocks = Table::new(1024, std::ptr::null_mut());
    while !run.over() {
        for _ in 0..CHUNK {
            let slot = numbers.below(blocks.len());
            Linked::release(blocks[slot]);
            blocks[slot] = Linked::allocate(sizes[numbers.below(sizes.len())]);
        }
        run.count.add(CHUNK);
    }
}

/// After alloc-test (node-dcss): 65,536 places; one that is empty gets a block of 8 B to 1 KiB, the others lose theirs.
pub fn switching(thread: usize, run: Run<'_>) {
    let mut numbers = Numbers::new(thread as u64);
    let mut sizes = Table::new(8192, 0);
    sizes.fill_with(|| numbers.logarithmic(8, 1 << 10));
    let mut blocks = Table::new(1 << 16, std::ptr::null_mut::<u8>());
    while !run.over() {
        for _ in 0..2 * CHUNK {
            let slot = numbers.below(blocks.len());
            if blocks[slot].is_null() {
                blocks[slot] = Linked::allocate(sizes[numbers.below(sizes.len())]);
            } else {
                Linked::release(std::mem::replace(&mut blocks[slot], std::ptr::null_mut()));
            }
        }
        run.count.add(CHUNK);
    }
}
