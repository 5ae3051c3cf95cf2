//! A server whose threads come and go (after Larson and Krishnan, 1998): each thread inherits the blocks of its
//! predecessor, replaces blocks at random for a while, and hands them to its successor. Most frees are of blocks that a
//! thread allocated which is no more.

use crate::calls::Linked;
use crate::clock::Stretch;
use crate::concurrent;
use crate::random::Replacement;
use crate::single::Workload;

/// Blocks that are handed over.
const LIVE: usize = 5000;
/// Replacements in the life of a thread, a multiple of [`CHUNK`].
const LIFE: u64 = 20 * 1024;
const CHUNK: u64 = 64;

/// Wall time in nanoseconds per replacement, with so many threads at any time. Sizes are 8 to 1000 bytes.
pub fn time(threads: usize, stretch: Stretch) -> f64 {
    time_of_lives(threads, LIFE, stretch)
}

/// The same where each table is handed over once, and its thread stays.
pub fn time_of_heirs(threads: usize, stretch: Stretch) -> f64 {
    time_of_lives(threads, u64::MAX, stretch)
}

/// The same where a thread makes so many replacements.
fn time_of_lives(threads: usize, life: u64, stretch: Stretch) -> f64 {
    concurrent::time(threads, stretch, |seat, run| {
        let mut blocks = Replacement::<Linked>::new(LIVE, 8, 1000, seat as u64);
        while !run.over() {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut done = 0;
                    while done < life && !run.over() {
                        run.count.add(blocks.run(CHUNK));
                        done += CHUNK;
                    }
                });
            });
        }
    })
}
