//! Short-lived threads: each allocates some blocks, frees half of them and ends. The other half is freed by the thread
//! that started it.

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent;
use crate::numbers::Numbers;

const BLOCKS: usize = 100;

struct Blocks([*mut u8; BLOCKS]);

// SAFETY: whoever has the addresses owns the blocks.
unsafe impl Send for Blocks {}

/// Wall time in nanoseconds per thread that came and went, with so many at any time. Sizes are 16 to 1024 bytes.
pub fn time(threads: usize, stretch: Stretch) -> f64 {
    concurrent::time(threads, stretch, |seat, run| {
        let mut seed = seat as u64;
        while !run.over() {
            seed += threads as u64;
            let short = std::thread::spawn(move || {
                let mut numbers = Numbers::new(seed);
                let blocks = std::array::from_fn(|_| Linked::allocate(16 + numbers.below(1009)));
                blocks[..BLOCKS / 2].iter().for_each(|&block| Linked::release(block));
                Blocks(blocks)
            });
            let Blocks(blocks) = short.join().expect("it does not panic");
            blocks[BLOCKS / 2..].iter().for_each(|&block| Linked::release(block));
            run.count.add(1);
        }
    })
}
