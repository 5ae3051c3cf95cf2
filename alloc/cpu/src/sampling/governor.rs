//! The governor: bounds what sampling costs, whatever the program does.
//!
//! A sample costs about half a microsecond. At a mean of 512 KiB that is nothing for a program that works with its
//! memory, and most of the time of a loop that does nothing but allocate and free a 32 KiB buffer: it would take a
//! sample with every sixteenth block. So there is a bucket of samples, which all threads share, and which is filled with
//! `POOLSCOPE_SAMPLE_RATE` samples a second, for samples also take a lock. It is not divided among them: of the twenty
//! threads of a Java program one allocates. Each has a small bucket besides, so that those that take few are not held
//! back by one that takes many. While both are empty, the budgets of a thread that bring most samples are drawn with
//! twice the period, and twice that, until the rate holds; when one fills up again, the period goes back. A budget that
//! brings few keeps its period, so that a leak beside a hot loop is seen as well as before: of a class that is not the
//! loop's, or of large blocks from another place. The shared bucket holds enough for every burst: half a GiB is
//! allocated before anything changes.
//!
//! Who asks for a shorter period than the default wants to see more and pays for it: rate and bucket grow by as much,
//! so that the same bytes pass. A period of 0 or 1, which is to record everything, is never raised.
//!
//! The estimates stay unbiased: each sample's weight follows from the period that its budget was drawn with, and the
//! period only changes where a budget is drawn anyway, or, for lack of memory in the exponential distribution, might as
//! well be drawn anew.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
/// Samples that the shared bucket holds.
const BURST: u64 = 1024;
/// Samples a second, and in its own bucket, that every thread may have, however many there are.
const THREAD_MIN: u64 = 256;

/// The bucket of all threads. Zeroed memory is a full one.
pub struct Shared {
    /// When it will be full, if no more is taken: nanoseconds of the monotonic clock (the theoretical arrival time of
    /// the generic cell rate algorithm, ITU-T I.371).
    full_at: AtomicU64,
}

static SHARED: Shared = Shared::new();

impl Shared {
    const fn new() -> Self {
        Self { full_at: AtomicU64::new(0) }
    }

    /// Takes a sample, which needs so much time to come back, at the time `now`; gives the time that the bucket takes to
    /// fill up, which is `empty` at most.
    fn take(&self, now: u64, sample: u64, empty: u64) -> u64 {
        let missing = |full_at: u64| (full_at.saturating_sub(now) + sample).min(empty);
        let mut known = self.full_at.load(Relaxed);
        while let Err(other) = self.full_at.compare_exchange_weak(known, now + missing(known), Relaxed, Relaxed) {
            known = other;
        }
        missing(known)
    }
}

/// A thread's own bucket. Zeroed memory is a full one.
pub struct Governor {
    /// Time of the latest sample, in nanoseconds of the monotonic clock.
    latest: Cell<u64>,
    /// Samples that are missing in the bucket, in nanoseconds: the time that it takes to fill it.
    missing: Cell<u64>,
}

impl Governor {
    /// Notes a sample at the time `now`, before its budget is drawn anew.
    pub fn sampled(&self, budget: &Budget, now: u64) {
        self.sampled_of(&SHARED, budget, now);
    }

    fn sampled_of(&self, shared: &Shared, budget: &Budget, now: u64) {
        let passed = now.saturating_sub(self.latest.replace(now));
        let alone = now.saturating_sub(budget.sampled_at.replace(now));
        let (rate, period) = (settings::current().sample_rate(), settings::current().period());
        if rate == 0 || period <= 1 {
            return budget.level.set(0);
        }
        let finer = (PERIOD_DEFAULT / period).max(1);
        let bucket = |rate: u64, samples: u64| {
            let sample = (1_000_000_000 / (rate * finer)).max(1);
            (sample, samples * finer * sample)
        };
        let (sample, empty) = bucket(rate.max(THREAD_MIN), BURST);
        let of_all = shared.take(now, sample, empty);
        let (own_sample, own_empty) = bucket(THREAD_MIN, THREAD_MIN);
        let own = (self.missing.get() + own_sample).saturating_sub(passed).min(own_empty);
        self.missing.set(own);
        if of_all == empty && own == own_empty {
            let threads = counters::get(TierCounter::ThreadsLive).max(1);
            let is_hasty = alone < (MANY * threads * sample).min(MANY * own_sample);
            budget.haste.set(budget.haste.get() + if is_hasty { HASTE } else { 1 });
            if budget.haste.get() >= PATIENCE {
                budget.haste.set(0);
                budget.level.set((budget.level.get() + 1).min(LEVEL_MAX));
            }
        } else if of_all < empty / 4 * 3 || own < own_empty / 4 * 3 {
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
    use crate::sampling::budget;

    /// Takes samples of a thread's budget every `interval` nanoseconds at the plain period, fewer as the level rises: those
    /// taken in `time` nanoseconds.
    fn run(thread: &Thread, shared: &Shared, now: &mut u64, interval: u64, time: u64) -> u64 {
        let (end, mut samples) = (*now + time, 0);
        while *now < end {
            *now += interval << thread.budget.level.get();
            thread.governor.sampled_of(shared, &thread.budget, *now);
            samples += 1;
        }
        samples
    }

    struct Thread {
        governor: Governor,
        budget: Budget,
    }

    fn thread() -> Thread {
        Thread { governor: Governor { latest: Cell::new(0), missing: Cell::new(0) }, budget: Budget::default() }
    }

    #[test]
    fn a_hot_loop_is_held_to_the_rate_after_its_first_burst() {
        let (thread, shared, mut now) = (thread(), Shared::new(), 1);
        let burst = run(&thread, &shared, &mut now, 40, 10_000_000);
        assert!((BURST..BURST + 1000).contains(&burst), "{burst}");
        let samples = run(&thread, &shared, &mut now, 40, 10_000_000_000);
        assert!((50_000..150_000).contains(&samples), "{samples}");
    }

    /// Threads that run side by side, each with its own mean interval between samples at the plain period: the samples
    /// of each in ten seconds, after one to settle.
    fn side_by_side(intervals: &[u64]) -> Vec<u64> {
        let shared = Shared::new();
        let threads: Vec<Thread> = intervals.iter().map(|_| thread()).collect();
        let (mut due, mut samples, mut state) = (intervals.to_vec(), vec![0; intervals.len()], 1);
        loop {
            let at = (0..due.len()).min_by_key(|&at| due[at]).unwrap();
            let (thread, now) = (&threads[at], due[at]);
            if now > 11_000_000_000 {
                return samples;
            }
            thread.governor.sampled_of(&shared, &thread.budget, now);
            due[at] += budget::random(&mut state) % ((2 * intervals[at]) << thread.budget.level.get());
            samples[at] += u64::from(now > 1_000_000_000);
        }
    }

    #[test]
    fn threads_share_what_there_is_and_one_that_takes_little_gets_it() {
        let samples = side_by_side(&[3_000; 4]);
        let all: u64 = samples.iter().sum();
        assert!((50_000..150_000).contains(&all), "{samples:?}");
        assert!(samples.iter().all(|&of_one| (all / 8..all / 2).contains(&of_one)), "{samples:?}");
        // One that takes 200 a second beside hot ones takes them all.
        let samples = side_by_side(&[3_000, 3_000, 5_000_000]);
        assert!((1_800..2_200).contains(&samples[2]), "{samples:?}");
        // Each has its least, however many there are.
        let samples = side_by_side(&[3_000; 100]);
        let all: u64 = samples.iter().sum();
        assert!((128_000..512_000).contains(&all), "{samples:?}");
    }

    #[test]
    fn bursts_and_modest_programs_keep_their_period() {
        let (thread, shared, mut now) = (thread(), Shared::new(), 1);
        for _ in 0..10 {
            run(&thread, &shared, &mut now, 300, 200_000);
            assert_eq!(thread.budget.level.get(), 0);
            run(&thread, &shared, &mut now, 200_000, 1_000_000_000);
        }
        assert_eq!(thread.budget.level.get(), 0);
    }

    #[test]
    fn the_period_comes_back_when_the_loop_has_ended() {
        let (thread, shared, mut now) = (thread(), Shared::new(), 1);
        run(&thread, &shared, &mut now, 40, 100_000_000);
        assert!(thread.budget.level.get() > 6);
        run(&thread, &shared, &mut now, 1_000_000, 100_000_000_000);
        assert_eq!(thread.budget.level.get(), 0);
    }
}
