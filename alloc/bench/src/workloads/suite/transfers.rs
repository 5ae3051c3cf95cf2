//! Threads that work on blocks of their own, and pass some of them on, which others free.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::calls::{Calls, Linked};
use crate::clock::Stretch;
use crate::concurrent;
use crate::numbers::Numbers;
use crate::table::Table;

/// Blocks of a thread of [`neighbours`], and of a step.
const OWN: usize = 1000;
const STEP: usize = 100;

/// Blocks that were passed to a thread.
struct Passed(Mutex<Vec<*mut u8>>);

// SAFETY: the blocks belong to whom they were passed.
unsafe impl Sync for Passed {}

/// After rpmalloc's benchmark: blocks of 16 B to 16 KiB, small ones more often. Each step frees a hundred of a thousand
/// and allocates as many; every second step passes a hundred more to the next thread, which frees them.
pub fn neighbours(threads: usize, stretch: Stretch) -> f64 {
    let passed: Vec<Passed> = (0..threads).map(|_| Passed(Mutex::new(Vec::with_capacity(16 * STEP)))).collect();
    concurrent::time(threads, stretch, |thread, run| {
        let mut numbers = Numbers::new(thread as u64);
        // The smaller of two even numbers: linearly less often the larger they are.
        let mut size = move || 16 + numbers.below(15_985).min(numbers.below(15_985));
        let mut own = Table::new(OWN, std::ptr::null_mut());
        own.fill_with(|| Linked::allocate(size()));
        let (mut at, mut step, mut mine) = (0, 0, Vec::with_capacity(16 * STEP));
        while !run.over() {
            for _ in 0..STEP {
                // 7 and 1000 have no factor in common: all come up, neighbours in time apart.
                at = (at + 7) % OWN;
                Linked::release(own[at]);
                own[at] = Linked::allocate(size());
            }
            step += 1;
            if step % 2 == 0 {
                let next = &passed[(thread + 1) % threads].0;
                let mut next = next.lock().expect("nobody panics with it");
                if next.len() < 16 * STEP {
                    next.extend((0..STEP).map(|_| Linked::allocate(size())));
                }
                drop(next);
                std::mem::swap(&mut mine, &mut *passed[thread].0.lock().expect("nobody panics with it"));
                run.count.add(mine.len() as u64);
                mine.drain(..).for_each(Linked::release);
            }
            run.count.add(STEP as u64);
        }
    })
}

/// Places of [`anybody`] where a thread leaves a block for another one.
const PLACES: usize = 1000;

/// After mimalloc's stress test: threads that live for a few hundred blocks of 8 bytes to some KiB, one in a hundred a
/// hundred times larger. They free some at random, exchange a quarter of them with whatever lies in shared places, and
/// free what they have at their end.
pub fn anybody(threads: usize, stretch: Stretch) -> f64 {
    let places: Vec<AtomicPtr<u8>> = (0..PLACES).map(|_| AtomicPtr::default()).collect();
    let time = concurrent::time(threads, stretch, |seat, run| {
        let mut numbers = Numbers::new(seat as u64);
        while !run.over() {
            std::thread::scope(|scope| {
                scope.spawn(|| run.count.add(live(100 * (1 + seat % 8) * 10, &places, &mut numbers)));
            });
        }
    });
    places.iter().for_each(|place| Linked::release(place.swap(std::ptr::null_mut(), Ordering::Acquire)));
    time
}

/// The life of a thread that allocates so many blocks, half of which it keeps to its end. Returns how many.
fn live(blocks: usize, places: &[AtomicPtr<u8>], numbers: &mut Numbers) -> u64 {
    let mut kept = Table::new(blocks, std::ptr::null_mut());
    let (mut data, mut top) = (Table::new(blocks, std::ptr::null_mut()), 0);
    for at in 0..blocks {
        let words = (1 << numbers.below(6)) * if numbers.below(100) == 0 { 100 } else { 1 };
        let block = Linked::allocate(8 * words);
        if at % 2 == 0 {
            kept[at] = block;
            continue;
        }
        data[top] = block;
        top += 1;
        if numbers.below(3) < 2 {
            let victim = numbers.below(top);
            Linked::release(std::mem::replace(&mut data[victim], std::ptr::null_mut()));
        }
        if numbers.below(4) == 0 {
            let (mine, place) = (numbers.below(top), numbers.below(places.len()));
            data[mine] = places[place].swap(data[mine], Ordering::AcqRel);
        }
    }
    for &block in kept.iter().chain(data.iter()) {
        Linked::release(block);
    }
    blocks as u64
}
