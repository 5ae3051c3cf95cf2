//! How a workload of several threads is timed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::clock::Stretch;

/// Operations that one thread has done, in a cache line of its own (two, as processors fetch them in pairs).
#[repr(align(128))]
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Only the thread whose count it is calls this.
    #[inline(always)]
    pub fn add(&self, operations: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + operations, Ordering::Relaxed);
    }
}

/// What a thread has of the run.
pub struct Run<'a> {
    /// The thread's operations.
    pub count: &'a Count,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    /// Whether the time is up.
    #[inline(always)]
    pub fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Wall time in nanoseconds per operation of all threads together over the stretch. `work`
/// gets the thread's number, counts what it does and returns soon after the run is over.
pub fn time(threads: usize, stretch: Stretch, work: impl Fn(usize, Run<'_>) + Sync) -> f64 {
    let counts: Vec<Count> = (0..threads).map(|_| Count::default()).collect();
    let stop = AtomicBool::new(false);
    let total = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum::<u64>();
    std::thread::scope(|scope| {
        for (index, count) in counts.iter().enumerate() {
            let (work, stop) = (&work, &stop);
            scope.spawn(move || work(index, Run { count, stop }));
        }
        std::thread::sleep(stretch.warm_up);
        let (from, before) = (Instant::now(), total());
        std::thread::sleep(stretch.duration);
        let (elapsed, operations) = (from.elapsed(), total() - before);
        stop.store(true, Ordering::Relaxed);
        elapsed.as_nanos() as f64 / operations as f64
    })
}
