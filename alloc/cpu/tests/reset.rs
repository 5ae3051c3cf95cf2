//! After a reset a test sees nothing of the one before.

use std::thread;

use poolscope_cpu::settings::Config;
use poolscope_cpu::{TierCounter, counters, free, malloc, reset};

fn work() {
    let blocks: Vec<usize> = (0..20_000usize).map(|i| malloc(16 + i * 37 % 70_000) as usize).collect();
    let theirs = blocks.clone();
    thread::spawn(move || {
        for p in theirs {
            // SAFETY: allocated above, freed here only.
            unsafe { free(p as *mut u8) };
        }
    })
    .join()
    .unwrap();
    // SAFETY: just allocated.
    (0..100).for_each(|_| unsafe { free(malloc(1 << 20)) });
}

fn numbers() -> Vec<(&'static str, u64)> {
    // Address space is never given back, and which blocks are sampled is drawn anew.
    let left_out = ["system_reserved_bytes", "system_used_bytes", "samples", "sampled_slab_bytes"];
    counters().map(|(info, value)| (info.name, value)).filter(|(name, _)| !left_out.contains(name)).collect()
}

#[test]
fn the_same_work_after_a_reset_gives_the_same_numbers() {
    Config::new().period(1 << 40).apply().unwrap();
    // The first time brings what stays: heaps, an arena.
    work();
    reset();
    let before = numbers();
    work();
    let after = numbers();
    assert_ne!(before, after);
    reset();
    assert_eq!(numbers(), before);
    work();
    assert_eq!(numbers(), after);
    reset();
    assert_eq!(numbers(), before);
    let resident =
        poolscope_cpu::counter(TierCounter::PageHeapFree) - poolscope_cpu::counter(TierCounter::SystemReleased);
    assert_eq!(resident, 0, "free memory that was not given back");
}
