//! Producers and consumers that share one list of batches (xmalloc-test, after Lever and Boreham, 2000): half of the
//! threads allocate 4096 blocks at a time, the other half takes whatever batch is the first and frees it.

use std::sync::Mutex;

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent::{self, Run};
use crate::table::Table;

const BATCH: usize = 4096;
const SIZE: usize = 64;

/// A batch on its way, and those that are to be filled again.
#[derive(Default)]
struct Lists {
    full: Vec<Table<*mut u8>>,
    empty: Vec<Table<*mut u8>>,
}

// SAFETY: the blocks belong to who has the batch.
unsafe impl Send for Lists {}

/// Takes a batch, or `None` when the run is over.
fn take(lists: &Mutex<Lists>, of: fn(&mut Lists) -> &mut Vec<Table<*mut u8>>, run: &Run<'_>) -> Option<Table<*mut u8>> {
    while !run.over() {
        if let Some(batch) = of(&mut lists.lock().expect("nobody panics with it")).pop() {
            return Some(batch);
        }
        std::thread::yield_now();
    }
    None
}

/// Wall time per block, with so many threads on both sides together, two at least.
pub fn time(threads: usize, stretch: Stretch) -> f64 {
    let pairs = (threads / 2).max(1);
    let empty = (0..2 * pairs).map(|_| Table::new(BATCH, std::ptr::null_mut())).collect();
    let lists = Mutex::new(Lists { full: Vec::with_capacity(2 * pairs), empty });
    concurrent::time(2 * pairs, stretch, |thread, run| {
        if thread % 2 == 0 {
            while let Some(mut batch) = take(&lists, |lists| &mut lists.empty, &run) {
                batch.fill_with(|| Linked::allocate(SIZE));
                lists.lock().expect("nobody panics with it").full.push(batch);
            }
        } else {
            while let Some(batch) = take(&lists, |lists| &mut lists.full, &run) {
                batch.iter().for_each(|&block| Linked::release(block));
                run.count.add(BATCH as u64);
                lists.lock().expect("nobody panics with it").empty.push(batch);
            }
        }
    })
}
