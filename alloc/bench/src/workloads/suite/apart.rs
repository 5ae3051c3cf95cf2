//! Blocks of several threads in one line of the processor's caches (Hoard's cache-scratch, after Berger, 2000): one
//! thread allocates a small block for each; each frees it, and from then on writes a thousand times to small blocks of
//! its own. Who hands a block on to the thread that freed it makes the threads take the line from each other.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent;

const SIZE: usize = 8;
const WRITES: usize = 1000;

/// Wall time per block and a thousand writes to it.
pub fn time(threads: usize, stretch: Stretch) -> f64 {
    let first: Vec<AtomicPtr<u8>> = (0..threads).map(|_| AtomicPtr::new(Linked::allocate(SIZE))).collect();
    concurrent::time(threads, stretch, |thread, run| {
        Linked::release(first[thread].swap(std::ptr::null_mut(), Ordering::Acquire));
        while !run.over() {
            let block = Linked::allocate(SIZE);
            for write in 0..WRITES {
                // SAFETY: inside the block.
                unsafe { block.add(write % SIZE).write_volatile(write as u8) };
            }
            Linked::release(block);
            run.count.add(1);
        }
    })
}
