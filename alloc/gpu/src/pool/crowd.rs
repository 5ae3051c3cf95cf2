//! How many threads ask for the pool's lock at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Times in a second that threads find the lock taken before medium blocks come from slabs.
const CROWDED: u64 = 64;
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
    /// Whether the pool's own thread has it, for which a program of one thread waits as well.
    is_at_upkeep: AtomicBool,
}

impl Crowd {
    /// Notes a thread that finds the lock taken, by another one of the program's.
    #[cold]
    pub fn finds_taken(&self) {
        if !self.is_at_upkeep.load(Ordering::Relaxed) {
            self.found_taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The pool's own thread, which has the lock, says so, or that it is about to let it go.
    pub fn set_at_upkeep(&self, is_there: bool) {
        self.is_at_upkeep.store(is_there, Ordering::Relaxed);
    }

    /// Notes one that waits for the lock while `wait` runs.
    pub fn wait<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.finds_taken();
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

#[cfg(test)]
mod tests {
    use super::{CROWDED, Crowd};

    #[test]
    fn threads_that_meet_often_in_a_second_are_a_crowd_and_the_pools_own_is_none_of_them() {
        let crowd = Crowd::default();
        crowd.set_at_upkeep(true);
        (0..CROWDED).for_each(|_| crowd.finds_taken());
        assert!(!crowd.is_there(), "a program of one thread meets the pool's own");
        crowd.set_at_upkeep(false);
        (1..CROWDED).for_each(|_| crowd.finds_taken());
        assert!(!crowd.is_there());
        crowd.finds_taken();
        assert!(crowd.is_there());
        crowd.next_second();
        assert!(!crowd.is_there());
        // Two that wait at one moment are enough.
        crowd.wait(|| crowd.wait(|| assert!(crowd.is_there())));
        assert!(!crowd.is_there());
    }
}
