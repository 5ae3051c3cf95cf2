//! Threads whose blocks come and go in waves.

use crate::calls::{Calls, Linked};
use crate::concurrent::Run;
use crate::numbers::Numbers;
use crate::table::Table;

/// Blocks of a wave of [`uneven`].
const WAVE: usize = 4000;

/// After MicroQuill's SmartHeap tests (sh6bench): sizes go round from 1 to 1000 bytes, small ones more often. Of each
/// wave the older half is freed in the order in which it came, then the younger one from its end.
pub fn uneven(thread: usize, run: Run<'_>) {
    let mut numbers = Numbers::new(thread as u64);
    let mut blocks = Table::new(WAVE, std::ptr::null_mut());
    while !run.over() {
        blocks.fill_with(|| Linked::allocate(numbers.logarithmic(1, 1000)));
        let (older, younger) = blocks.split_at(WAVE / 2);
        older.iter().chain(younger.iter().rev()).for_each(|&block| Linked::release(block));
        run.count.add(WAVE as u64);
    }
}

/// After the C library's bench-malloc-simple: 25, 100, 400 and 1600 blocks of one size, freed in the order in which
/// they came, for sizes from 8 bytes to 4 KiB.
pub fn growing(_: usize, run: Run<'_>) {
    let mut blocks = Table::new(1600, std::ptr::null_mut());
    while !run.over() {
        for size in (3..=12).map(|shift| 1 << shift) {
            for count in [25, 100, 400, 1600] {
                let blocks = &mut blocks[..count];
                blocks.fill_with(|| Linked::allocate(size));
                blocks.iter().for_each(|&block| Linked::release(block));
                run.count.add(count as u64);
            }
        }
    }
}

/// Vectors of [`vectors`] at most, and what they may grow to.
const VECTORS: usize = 3000;

/// After espresso, which minimises logic: covers of many short vectors. A cover is built from two others, vector by
/// vector, with a temporary for each pair; what is left over is freed, and the list of the cover is made longer as it
/// grows. No more than some hundred KiB are live.
pub fn vectors(thread: usize, run: Run<'_>) {
    let mut numbers = Numbers::new(thread as u64);
    let mut cover = Table::new(VECTORS, std::ptr::null_mut());
    let mut count = 0;
    while !run.over() {
        let size = 8 + 4 * numbers.below(24);
        let grown = 200 + numbers.below(VECTORS - 200);
        let mut list = Linked::allocate(64);
        let mut room = 8;
        while count < grown {
            let temporary = Linked::allocate(size);
            cover[count] = Linked::allocate(size);
            count += 1;
            Linked::release(temporary);
            run.count.add(2);
            if count > room {
                room *= 2;
                let longer = Linked::allocate(8 * room);
                Linked::release(std::mem::replace(&mut list, longer));
                run.count.add(1);
            }
        }
        Linked::release(list);
        let left = numbers.below(count);
        while count > left {
            let victim = numbers.below(count);
            count -= 1;
            Linked::release(cover[victim]);
            cover[victim] = cover[count];
        }
    }
}
