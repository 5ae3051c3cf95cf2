//! What a long random churn leaves of the memory: blocks of random sizes take the place of random others, while what is
//! live stays at 64 MiB.

use crate::calls::{Calls, Linked, PAGE};
use crate::clock;
use crate::numbers::Numbers;
use crate::resident;
use crate::table::Table;

/// Bytes that are live.
const LIVE: usize = 64 << 20;

/// Sizes of a phase (their logarithms are even), and how many times over the live bytes are replaced in it.
struct Phase {
    least: usize,
    most: usize,
    turnovers: usize,
}

/// The same sizes all the time.
const STEADY: [Phase; 1] = [Phase { least: 16, most: 32 << 10, turnovers: 20 }];

/// Other sizes in each phase: what one leaves has to serve the next. A seventh of the bytes survives a phase.
const SHIFTING: [Phase; 5] = [
    Phase { least: 32, most: 256, turnovers: 2 },
    Phase { least: 4096, most: 32 << 10, turnovers: 2 },
    Phase { least: 256, most: 1024, turnovers: 2 },
    Phase { least: 1024, most: 4096, turnovers: 2 },
    Phase { least: 16, most: 32 << 10, turnovers: 2 },
];

/// What the churn came to.
pub struct Churned {
    /// Of processor time, for each replacement.
    pub nanoseconds: f64,
    /// The largest resident memory, in bytes, without the workload's own table.
    pub peak: u64,
    /// The part of what is resident at the end, above what was resident before the first block, that is no byte which
    /// the program asked for and holds.
    pub waste: f64,
}

/// Churns by `steady` or `shifting`.
pub fn measure(kind: &str) -> Option<Churned> {
    let phases: &[Phase] = match kind {
        "steady" => &STEADY,
        "shifting" => &SHIFTING,
        _ => return None,
    };
    // More than the smallest sizes come to.
    let mut blocks = Table::new(LIVE / 32, (std::ptr::null_mut::<u8>(), 0_usize));
    let (mut count, mut held) = (0, 0);
    let mut numbers = Numbers::new(0);
    Linked::release(Linked::allocate(16));
    let (before, start) = (resident::now(), clock::processor());
    let mut operations = 0_u64;
    for phase in phases {
        let mut allocated = 0;
        while allocated < phase.turnovers * LIVE {
            let size = numbers.logarithmic(phase.least, phase.most);
            while held + size > LIVE {
                let victim = numbers.below(count);
                let (block, size) = blocks[victim];
                Linked::release(block);
                held -= size;
                count -= 1;
                blocks[victim] = blocks[count];
            }
            let block = Linked::allocate(size);
            for offset in (0..size).step_by(PAGE).chain([size - 1]) {
                // SAFETY: inside the block.
                unsafe { block.add(offset).write_volatile(1) };
            }
            blocks[count] = (block, size);
            count += 1;
            held += size;
            allocated += size;
            operations += 1;
        }
    }
    let nanoseconds = (clock::processor() - start).as_nanos() as f64 / operations as f64;
    let resident = resident::now().saturating_sub(before) as f64;
    let peak = resident::peak() - size_of_val(&*blocks) as u64;
    Some(Churned { nanoseconds, peak, waste: (resident - held as f64) / resident })
}
