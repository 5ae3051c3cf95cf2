//! A program that changes what it works on: 200 MiB in six phases of lognormal sizes. Each phase begins with a tenth of
//! what the last one held, fills up, and then replaces random blocks.

use crate::calls::{Calls, Linked, PAGE};
use crate::clock;
use crate::numbers::Numbers;
use crate::resident;
use crate::table::Table;

/// Bytes that are live.
const LIVE: usize = 200 << 20;
/// What is left of them between two phases.
const BETWEEN: usize = LIVE / 10;
/// Mean and deviation of the sizes' natural logarithms: about 66 B, 400 B, 3 KiB, 150 B, 22 KiB, and 55 B wide.
const PHASES: [(f64, f64); 6] = [(4.2, 1.0), (6.0, 1.5), (8.0, 1.2), (5.0, 0.4), (10.0, 1.5), (4.0, 2.0)];
/// Sizes lie between these.
const LEAST: f64 = 8.0;
const MOST: f64 = 8e6;
/// Sizes that are drawn ahead, so that no time goes into logarithms.
const DRAWN: usize = 1 << 16;
/// Frees in a phase for each live block, and the bounds of the blocks that are counted for it.
const TURNOVERS: usize = 2;
const COUNTED: std::ops::RangeInclusive<usize> = 30_000..=400_000;

/// What it came to.
pub struct Phased {
    /// Of processor time, for each allocation with its free.
    pub nanoseconds: f64,
    /// The largest resident memory, in bytes, without the workload's own tables.
    pub peak: u64,
    /// Resident memory above what there was before the first block, to live bytes: at the end of a phase, the mean.
    pub mean: f64,
    /// The largest of them.
    pub worst: f64,
}

/// The live blocks.
struct Blocks {
    blocks: Table<(*mut u8, usize)>,
    count: usize,
    bytes: usize,
}

impl Blocks {
    fn fill(&mut self, sizes: &[usize], numbers: &mut Numbers) -> u64 {
        let mut allocated = 0;
        while self.bytes < LIVE {
            let size = sizes[numbers.below(DRAWN)];
            let block = Linked::allocate(size);
            for offset in (0..size).step_by(PAGE).chain([size - 1]) {
                // SAFETY: inside the block.
                unsafe { block.add(offset).write_volatile(1) };
            }
            self.blocks[self.count] = (block, size);
            self.count += 1;
            self.bytes += size;
            allocated += 1;
        }
        allocated
    }

    fn free_one(&mut self, numbers: &mut Numbers) {
        let victim = numbers.below(self.count);
        let (block, size) = self.blocks[victim];
        Linked::release(block);
        self.count -= 1;
        self.bytes -= size;
        self.blocks[victim] = self.blocks[self.count];
    }
}

/// Runs the six phases.
pub fn measure() -> Phased {
    // More than the smallest sizes come to, a hundred bytes in the mean.
    let mut live = Blocks { blocks: Table::new(LIVE / 64, (std::ptr::null_mut(), 0)), count: 0, bytes: 0 };
    let mut sizes = Table::new(DRAWN, 0_usize);
    let mut numbers = Numbers::new(0);
    Linked::release(Linked::allocate(16));
    let before = resident::now();
    let mut ratios = [0.0; PHASES.len()];
    let (mut allocated, mut spent) = (0, 0.0);
    for (ratio, (mean, deviation)) in ratios.iter_mut().zip(PHASES) {
        for size in sizes.iter_mut() {
            *size = (mean + deviation * numbers.normal()).exp().clamp(LEAST, MOST) as usize;
        }
        let start = clock::processor();
        while live.bytes > BETWEEN {
            live.free_one(&mut numbers);
        }
        allocated += live.fill(&sizes, &mut numbers);
        for _ in 0..TURNOVERS * live.count.clamp(*COUNTED.start(), *COUNTED.end()) {
            live.free_one(&mut numbers);
            allocated += live.fill(&sizes, &mut numbers);
        }
        spent += (clock::processor() - start).as_nanos() as f64;
        *ratio = resident::now().saturating_sub(before) as f64 / live.bytes as f64;
    }
    Phased {
        nanoseconds: spent / allocated as f64,
        peak: resident::peak() - (size_of_val(&*live.blocks) + size_of_val(&*sizes)) as u64,
        mean: ratios.iter().sum::<f64>() / ratios.len() as f64,
        worst: ratios.into_iter().fold(0.0, f64::max),
    }
}
