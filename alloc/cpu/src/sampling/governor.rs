//! The governor: bounds what sampling costs, whatever the program does.
//!
//! A sample costs about half a microsecond. At a mean of 512 KiB that is nothing for a program that works with its
//! memory, and most of the time of a loop that does nothing but allocate and free a 32 KiB buffer: it would take a
//! sample with every sixteenth block. So each thread has a bucket of samples; all of them together are filled with
//! `POOLSCOPE_SAMPLE_RATE` samples a second, for samples also take a lock. While a thread's bucket is empty, the
//! budgets that bring most samples are drawn with twice the period, and twice that, until the rate holds; when the
//! bucket fills up again, the period goes back. A budget that brings few keeps its period, so that a leak beside a hot
//! loop is seen as well as before: of a class that is not the loop's, or of large blocks from another place. The bucket
//! holds enough for every burst: a single thread allocates half a GiB before anything changes.
//!
//! Who asks for a shorter period than the default wants to see more and pays for it: rate and bucket grow by as much,
//! so that the same bytes pass. A period of 0 or 1, which is to record everything, is never raised.
//!
//! The estimates stay unbiased: each sample's weight follows from the period that its budget was drawn with, and the
//! period only changes where a budget is drawn anyway, or, for lack of memory in the exponential distribution, might as
//! well be drawn anew.

use core::cell::Cell;

use super::budget::Budget;
use crate::kernel::os;
use crate::segment::counters::{self, TierCounter};
use crate::settings;

/// Doublings of the period, at most: from 512 KiB to 2 GiB.
const LEVEL_MAX: u8 = 12;
/// What a budget's samples in a time of too many come to before its period doubles, and what one of them counts that
/// comes before there might be `MANY` of all since the last one. Others count 1: a budget that brings few keeps its
/// period, unless too many budgets are such.
const PATIENCE: u8 = 64;
const HASTE: u8 = 16;
const MANY: u64 = 2;
/// A budget that had no sample for this long is drawn with the plain period again.
const STALE_NS: u64 = 50_000_000;

/// The period that the numbers of samples below are meant for.
const PERIOD_DEFAULT: u64 = 512 << 10;
/// Samples that all buckets together hold.
const BURST: u64 = 1024;
/// Samples a second, and in a bucket, that every thread may have, however many there are.
const THREAD_MIN: u64 = 256;

/// A thread's bucket. Zeroed memory is a full one.
pub struct Governor {
    /// Time of the latest sample, in nanoseconds of the monotonic clock.
    latest: Cell<u64>,
    /// Samples that are missing in the bucket, in nanoseconds: the time that it takes to fill it.
    missing: Cell<u64>,
}

impl Governor {
    /// Notes a sample at the time `now`, before its budget is drawn anew.
    pub fn sampled(&self, budget: &Budget, now: u64) {
        let passed = now.saturating_sub(self.latest.replace(now));
        let alone = now.saturating_sub(budget.sampled_at.replace(now));
        let (rate, period) = (settings::current().sample_rate(), settings::current().period());
        if rate == 0 || period <= 1 {
            return budget.level.set(0);
        }
        let finer = (PERIOD_DEFAULT / period).max(1);
        let threads = counters::get(TierCounter::ThreadsLive).max(1);
        let sample = (1_000_000_000 / ((rate / threads).max(THREAD_MIN) * finer)).max(1);
        let empty = (BURST / threads).max(THREAD_MIN) * finer * sample;
        let missing = (self.missing.get() + sample).saturating_sub(passed).min(empty);
        self.missing.set(missing);
        if missing == empty {
            budget.haste.set(budget.haste.get() + if alone < MANY * sample { HASTE } else { 1 });
            if budget.haste.get() >= PATIENCE {
                budget.haste.set(0);
                budget.level.set((budget.level.get() + 1).min(LEVEL_MAX));
            }
        } else if missing < empty / 4 * 3 {
            budget.haste.set(0);
            budget.level.set(budget.level.get().saturating_sub(1));
        }
    }
}

/// Whether the period of a class was raised for a time that is over.
#[cold]
pub fn is_stale(budget: &Budget) -> bool {
    os::clock_ns(libc::CLOCK_MONOTONIC_COARSE).saturating_sub(budget.sampled_at.get()) > STALE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes samples of `budget` every `interval` nanoseconds at the plain period, fewer as the level rises: those
    /// taken in `time` nanoseconds.
    fn run(governor: &Governor, budget: &Budget, now: &mut u64, interval: u64, time: u64) -> u64 {
        let (end, mut samples) = (*now + time, 0);
        while *now < end {
            *now += interval << budget.level.get();
            governor.sampled(budget, *now);
            samples += 1;
        }
        samples
    }

    fn new() -> Governor {
        Governor { latest: Cell::new(0), missing: Cell::new(0) }
    }

    #[test]
    fn a_hot_loop_is_held_to_the_rate_after_its_first_burst() {
        let (governor, budget, mut now) = (new(), Budget::default(), 1);
        let burst = run(&governor, &budget, &mut now, 40, 10_000_000);
        assert!((BURST..BURST + 1000).contains(&burst), "{burst}");
        let samples = run(&governor, &budget, &mut now, 40, 10_000_000_000);
        assert!((50_000..150_000).contains(&samples), "{samples}");
    }

    #[test]
    fn bursts_and_modest_programs_keep_their_period() {
        let (governor, budget, mut now) = (new(), Budget::default(), 1);
        for _ in 0..10 {
            run(&governor, &budget, &mut now, 300, 200_000);
            assert_eq!(budget.level.get(), 0);
            run(&governor, &budget, &mut now, 200_000, 1_000_000_000);
        }
        assert_eq!(budget.level.get(), 0);
    }

    #[test]
    fn the_period_comes_back_when_the_loop_has_ended() {
        let (governor, budget, mut now) = (new(), Budget::default(), 1);
        run(&governor, &budget, &mut now, 40, 100_000_000);
        assert!(budget.level.get() > 6);
        run(&governor, &budget, &mut now, 1_000_000, 100_000_000_000);
        assert_eq!(budget.level.get(), 0);
    }
}
