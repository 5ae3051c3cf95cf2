//! What calls of the program's were held up by, and for how long: the tail of the pool's times.
//!
//! A call that finds what it needs takes some nanoseconds, and a clock would take more. So only what can be long is
//! timed: waits for the lock, calls to the driver, and memory that is put together, created or shown. A thread notes
//! these in words of its own, and the end of a call adds them up. A call without any of them counts as not held up.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another thread that had the pool's lock, or the pool's own.
    Lock,
    /// The driver.
    Driver,
    /// The pool itself: free memory that is looked through, merged or put together, and pictures of the pool.
    Work,
}

const CAUSES: usize = 3;

/// What a thread was held up by since its call began, in nanoseconds.
struct Noted {
    total: Cell<u64>,
    causes: [Cell<u64>; CAUSES],
}

thread_local! {
    // Nothing is to be dropped, so that a thread has it to its end.
    static NOTED: Noted = const { Noted { total: Cell::new(0), causes: [const { Cell::new(0) }; CAUSES] } };
}

/// Notes that this thread was held up for so many nanoseconds.
pub fn note(cause: Cause, nanoseconds: u64) {
    NOTED.with(|noted| {
        let of_cause = &noted.causes[cause as usize];
        of_cause.set(of_cause.get() + nanoseconds);
        noted.total.set(noted.total.get() + nanoseconds);
    });
}

/// Does what may take long, and notes the time as the pool's own work, but for the waits inside of it. `now` is a clock
/// in nanoseconds.
pub fn work<T>(now: impl Fn() -> u64, work: impl FnOnce() -> T) -> T {
    let noted = || NOTED.with(|noted| noted.total.get());
    let (began, before) = (now(), noted());
    let result = work();
    let waits = noted() - before;
    note(Cause::Work, (now() - began).saturating_sub(waits));
    result
}

/// Forgets what was noted outside of the calls that count: background work that the program does itself, say.
#[inline]
pub fn forget() {
    NOTED.with(|noted| {
        if noted.total.take() != 0 {
            noted.causes.iter().for_each(|cause| cause.set(0));
        }
    });
}

/// Below so many nanoseconds all delays are one: a wait of a microsecond holds nobody up.
const LEAST: u64 = 1 << LEAST_LOG2;
const LEAST_LOG2: u32 = 10;
/// Steps of a doubling.
const STEPS: u32 = 4;
/// Up to 1,100 s; what is longer counts as that.
const BUCKETS: usize = 1 + 30 * STEPS as usize;

/// Where a delay is counted.
fn bucket(nanoseconds: u64) -> usize {
    if nanoseconds < LEAST {
        return 0;
    }
    let octave = nanoseconds.ilog2();
    let step = (nanoseconds >> (octave - STEPS.ilog2())) & u64::from(STEPS - 1);
    (1 + (octave - LEAST_LOG2) as usize * STEPS as usize + step as usize).min(BUCKETS - 1)
}

/// The most nanoseconds that are counted there.
fn most(bucket: usize) -> u64 {
    let Some(at) = bucket.checked_sub(1) else { return LEAST };
    let (octave, step) = (at as u32 / STEPS + LEAST_LOG2, at as u64 % u64::from(STEPS));
    (u64::from(STEPS) + step + 1) << (octave - STEPS.ilog2())
}

/// The delays of a pool's calls.
pub struct Delays {
    /// Calls by how long they were held up.
    buckets: [AtomicU64; BUCKETS],
    /// The longest, in nanoseconds.
    longest: AtomicU64,
    /// Nanoseconds in all, by cause.
    causes: [AtomicU64; CAUSES],
}

impl Default for Delays {
    fn default() -> Delays {
        Delays {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            longest: AtomicU64::new(0),
            causes: [const { AtomicU64::new(0) }; CAUSES],
        }
    }
}

impl Delays {
    /// Ends a call of this thread's: counts what it was held up by, if anything.
    #[inline]
    pub fn end_call(&self) {
        NOTED.with(|noted| {
            if noted.total.get() != 0 {
                self.count(noted);
            }
        });
    }

    #[cold]
    fn count(&self, noted: &Noted) {
        for (word, cause) in noted.causes.iter().zip(&self.causes) {
            cause.fetch_add(word.take(), Ordering::Relaxed);
        }
        let total = noted.total.take();
        self.buckets[bucket(total)].fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(total, Ordering::Relaxed);
    }

    /// Calls that were held up.
    pub fn held_up(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Nanoseconds that so many in a thousand of `calls` were held up for at most, to a quarter above; 0 where they were
    /// not.
    pub fn quantile(&self, of_a_thousand: u64, calls: u64) -> u64 {
        // So many were held up longer.
        let longer = (calls / 1000) * (1000 - of_a_thousand) + (calls % 1000) * (1000 - of_a_thousand) / 1000;
        let mut seen = 0;
        for (at, bucket) in self.buckets.iter().enumerate().rev() {
            seen += bucket.load(Ordering::Relaxed);
            if seen > longer {
                return most(at).min(self.longest());
            }
        }
        0
    }

    /// The longest, in nanoseconds.
    pub fn longest(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }

    /// Nanoseconds in all that calls were held up by this.
    pub fn by(&self, cause: Cause) -> u64 {
        self.causes[cause as usize].load(Ordering::Relaxed)
    }

    /// Begins anew.
    pub fn reset(&self) {
        let words = self.buckets.iter().chain(&self.causes).chain([&self.longest]);
        words.for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_counted_where_its_bound_is_at_most_a_quarter_above() {
        for nanoseconds in [1, 1_000, 1_024, 1_500, 4_096, 5_119, 5_120, 300_000, 12_345_678, 1 << 39] {
            let bound = most(bucket(nanoseconds));
            assert!(bound >= nanoseconds, "{nanoseconds}: {bound}");
            assert!(nanoseconds < LEAST || bound * 4 <= nanoseconds * 5, "{nanoseconds}: {bound}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_count_the_calls_that_were_not_held_up() {
        let delays = Delays::default();
        for microseconds in 1..=10 {
            note(Cause::Lock, microseconds * 100_000);
            delays.end_call();
        }
        delays.end_call();
        assert_eq!((delays.held_up(), delays.longest()), (10, 1_000_000));
        assert_eq!(delays.by(Cause::Lock), 5_500_000);
        // Ten of ten thousand: nobody waits in 99.9 %, and nobody in half.
        assert_eq!((delays.quantile(500, 10_000), delays.quantile(999, 10_000)), (0, 0));
        // Ten of a thousand: the ninth is 0.9 ms.
        assert!((900_000..=1_000_000).contains(&delays.quantile(999, 1_000)), "{}", delays.quantile(999, 1_000));
        assert_eq!(delays.quantile(990, 1_000), 0);
        assert!((100_000..=125_000).contains(&delays.quantile(990, 999)), "{}", delays.quantile(990, 999));
        delays.reset();
        assert_eq!((delays.held_up(), delays.longest(), delays.quantile(999, 1)), (0, 0, 0));
    }

    #[test]
    fn work_is_without_the_waits_inside_of_it() {
        forget();
        let clock = Cell::new(0);
        let spend = |nanoseconds| clock.set(clock.get() + nanoseconds);
        let delays = Delays::default();
        work(
            || clock.get(),
            || {
                spend(100);
                work(|| clock.get(), || spend(30));
                spend(5_000);
                note(Cause::Driver, 5_000);
            },
        );
        delays.end_call();
        assert_eq!((delays.by(Cause::Work), delays.by(Cause::Driver), delays.longest()), (130, 5_000, 5_130));
    }
}
