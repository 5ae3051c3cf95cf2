//! How a workload of one thread is timed: by the processor time that the process takes, with what the allocator does in
//! threads of its own, and without what other processes take from it.

use std::time::{Duration, Instant};

use crate::clock::{self, Stretch};

/// A loop that can be run for any number of operations.
pub trait Workload {
    /// Runs at least `operations` operations, and says how many it were.
    fn run(&mut self, operations: u64) -> u64;
}

/// Short against what is measured, long against the reading of a clock.
const CHUNK: Duration = Duration::from_micros(500);

/// Nanoseconds of processor time per operation over the stretch.
pub fn time(workload: &mut dyn Workload, stretch: Stretch) -> f64 {
    let mut chunk = 1;
    let start = Instant::now();
    loop {
        let from = Instant::now();
        workload.run(chunk);
        let took = from.elapsed();
        if took < CHUNK {
            chunk *= 2;
        }
        if took >= CHUNK && start.elapsed() >= stretch.warm_up {
            break;
        }
    }
    let (mut operations, start, from) = (0, Instant::now(), clock::processor());
    while start.elapsed() < stretch.duration {
        operations += workload.run(chunk);
    }
    (clock::processor() - from).as_nanos() as f64 / operations as f64
}
