//! How many threads ask for the pool's lock at once.

use std::sync::atomic::{AtomicU64, Ordering};

/// Times in a second that threads find the lock taken before medium blocks come from slabs.
const CROWDED: u64 = 256;
/// Threads that wait at one moment, with which that is so at once.
const WAITING: u64 = 2;

/// The threads that find the pool's lock taken. On cache lines that the fast path does not read.
#[derive(Default)]
#[repr(align(128))]
pub struct Crowd {
    /// How often one did in this second of upkeep.
    found_taken: AtomicU64,
    /// How many wait now.
    waiting: AtomicU64,
}

impl Crowd {
    /// Notes a thread that waits for the lock while `wait` runs.
    pub fn wait<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.found_taken.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// How many threads wait now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether threads often wait for each other, or several do now.
    pub fn is_there(&self) -> bool {
        self.found_taken.load(Ordering::Relaxed) >= CROWDED || self.waiting() >= WAITING
    }

    /// Begins another second.
    pub fn next_second(&self) {
        self.found_taken.store(0, Ordering::Relaxed);
    }
}
