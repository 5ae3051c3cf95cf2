//! Threads that share one table: each puts a new block in a random place and frees what lay there, whoever allocated
//! it, as the threads of a server do with a shared map.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent;
use crate::numbers::Numbers;

/// Places of the table.
const PLACES: usize = 4096;
/// Replacements between two looks at the clock.
const CHUNK: u64 = 64;

/// Wall time in nanoseconds per replacement, with so many threads. Sizes are 16 to 512 bytes.
pub fn time(threads: usize, stretch: Stretch) -> f64 {
    let places: Vec<AtomicPtr<u8>> = (0..PLACES).map(|_| AtomicPtr::default()).collect();
    let time = concurrent::time(threads, stretch, |seat, run| {
        let mut numbers = Numbers::new(seat as u64);
        while !run.over() {
            for _ in 0..CHUNK {
                let block = Linked::allocate(16 + numbers.below(497));
                Linked::release(places[numbers.below(PLACES)].swap(block, Ordering::AcqRel));
            }
            run.count.add(CHUNK);
        }
    });
    places.iter().for_each(|place| Linked::release(place.swap(std::ptr::null_mut(), Ordering::Acquire)));
    time
}
