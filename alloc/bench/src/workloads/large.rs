//! Large blocks: sixteen slots, each step replaces the block of one by a block of another size.

use crate::calls::{Calls, Linked, PAGE};
use crate::numbers::Numbers;
use crate::single::Workload;

const LIVE: usize = 16;
const LEAST: usize = 256 << 10;
const MOST: usize = 32 << 20;

/// Which pages of a block are written.
#[derive(Clone, Copy, PartialEq)]
pub enum Touch {
    /// The first one.
    First,
    /// The first byte of each.
    Every,
}

/// Sizes have even logarithms from 256 KiB to 32 MiB.
pub struct Large {
    live: [*mut u8; LIVE],
    numbers: Numbers,
    touch: Touch,
}

impl Large {
    /// All slots empty.
    pub fn new(touch: Touch) -> Large {
        Large { live: [std::ptr::null_mut(); LIVE], numbers: Numbers::new(1), touch }
    }
}

impl Workload for Large {
    fn run(&mut self, operations: u64) -> u64 {
        for _ in 0..operations {
            let size = self.numbers.logarithmic(LEAST, MOST);
            let slot = &mut self.live[self.numbers.below(LIVE)];
            Linked::release(*slot);
            *slot = Linked::allocate(size);
            if self.touch == Touch::Every {
                for offset in (0..size).step_by(PAGE) {
                    // SAFETY: inside the block.
                    unsafe { slot.add(offset).write_volatile(1) };
                }
            }
        }
        operations
    }
}
