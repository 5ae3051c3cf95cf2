//! The budgets of threads, by a clock that the tests move.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;

use super::pace::{BURST, BURST_MIN, LEVEL_MAX, PATIENCE, SECOND};
use super::{Budgets, Charged, Common, LARGE, Lives, OBJECT_ONE, Place};
use crate::watch::{Picture, Recorder, Sample, Token};

struct Fixed(Option<u64>, u64);

impl Recorder for Fixed {
    fn period(&self) -> Option<u64> {
        self.0
    }

    fn samples_per_second(&self) -> u64 {
        self.1
    }

    fn allocated(&self, _: &Sample) -> Option<Token> {
        None
    }

    fn freed(&self, _: Token, _: u64, _: [u64; 2]) {}

    fn publish(&self, _: &Picture) {}

    fn closed(&self) {}
}

const MS: u64 = 1_000_000;
/// Nanoseconds that a block takes, beside its sample.
const BLOCK: u64 = 100;

thread_local! {
    static CLOCK: Cell<u64> = const { Cell::new(0) };
}

fn now() -> u64 {
    CLOCK.get()
}

fn pass(ns: u64) {
    CLOCK.set(now() + ns);
}

/// The budgets of so many threads, which know of no others; their time passes by [`pass`].
fn threads(count: usize) -> Vec<Budgets> {
    let common = Box::leak(Box::new(Common { now, threads: AtomicU64::new(0) }));
    (0..count).map(|_| Budgets::of(common)).collect()
}

fn thread() -> Budgets {
    threads(1).remove(0)
}

/// Samples of `blocks` blocks, what they stand for, and the standard error of that.
fn run(budgets: &mut Budgets, class: usize, bytes: u64, blocks: u64, recorder: &Fixed) -> (u64, f64, f64) {
    let (mut samples, mut objects, mut variance) = (0, 0.0, 0.0);
    for _ in 0..blocks {
        // A block is sampled with the probability p and stands for 1 / p then.
        let p = -f64::exp_m1(-(bytes as f64) / budgets.raised().max(1) as f64);
        variance += (1.0 - p) / p;
        pass(BLOCK);
        if budgets.spend(class, bytes)
            && let Some(weight) = budgets.sample(class, bytes, recorder)
        {
            samples += 1;
            objects += weight as f64 / OBJECT_ONE as f64;
        }
    }
    (samples, objects, variance.sqrt())
}

#[test]
fn what_samples_stand_for_is_what_was_allocated() {
    let recorder = Fixed(Some(512 << 10), 0);
    for (class, bytes) in [(0, 256), (6, 16 << 10), (11, 512 << 10), (LARGE, 40 << 20)] {
        let blocks = 2_000_000.min((4u64 << 40) / bytes);
        let (_, objects, error) = run(&mut thread(), class, bytes, blocks, &recorder);
        assert!((objects - blocks as f64).abs() <= 5.0 * error + 0.01, "{bytes}: {objects} of {blocks} +- {error}");
    }
}

#[test]
fn a_hot_loop_is_held_to_the_rate_and_what_it_stands_for_stays_right() {
    let recorder = Fixed(Some(512 << 10), 100);
    let began = now();
    let (samples, objects, error) = run(&mut thread(), 12, 1 << 20, 4_000_000, &recorder);
    // The bucket, what it takes to find the period, and what the rate allows in that time.
    let most = BURST + u64::from(PATIENCE[0] * LEVEL_MAX) + 2 * 100 * (now() - began) / SECOND;
    assert!((BURST_MIN..most).contains(&samples), "{samples}, at most {most}");
    assert!((objects - 4e6).abs() <= 5.0 * error, "{objects} of 4 million +- {error}");
}

#[test]
fn a_period_that_rises_and_falls_with_other_classes_biases_none() {
    let recorder = Fixed(Some(64 << 10), 2_000);
    let mut budgets = thread();
    let classes = [(2, 1024), (8, 64 << 10), (LARGE, 8 << 20)];
    let (mut counts, mut seen, mut variances, mut levels) = ([0u64; 3], [0.0; 3], [0.0; 3], [0u64; 51]);
    for round in 0..400_000u64 {
        // Bursts of large blocks, and pauses without any, in which there is time for several falls.
        let lengths = [5, 2, u64::from(round % 20_000 < 3_000)];
        for (at, (class, bytes)) in classes.into_iter().enumerate() {
            for _ in 0..lengths[at] {
                pass(10 * BLOCK);
                counts[at] += 1;
                let p = -f64::exp_m1(-(bytes as f64) / budgets.raised().max(1) as f64);
                variances[at] += (1.0 - p) / p;
                if budgets.spend(class, bytes)
                    && let Some(weight) = budgets.sample(class, bytes, &recorder)
                {
                    seen[at] += weight as f64 / OBJECT_ONE as f64;
                    levels[usize::from(budgets.level)] += 1;
                }
            }
        }
    }
    assert!(levels.iter().filter(|samples| **samples > 0).count() > 3, "the period changed: {levels:?}");
    for at in 0..3 {
        let error = 5.0 * variances[at].sqrt();
        assert!((seen[at] - counts[at] as f64).abs() <= error, "{at}: {} of {} +- {error}", seen[at], counts[at]);
    }
}

#[test]
fn the_rate_is_that_of_all_threads_together() {
    let recorder = Fixed(Some(512 << 10), 16_000);
    let mut threads = threads(16);
    // Half of what all may take, and eight times its share.
    for _ in 0..1000 {
        pass(125_000);
        threads[0].spend(LARGE, 64 << 20);
        threads[0].sample(LARGE, 64 << 20, &recorder);
    }
    assert!(threads[0].level > 0, "its period was raised");
}

#[test]
fn a_thread_that_was_busy_and_is_not_any_more_is_sampled_as_before() {
    let mut budgets = thread();
    run(&mut budgets, LARGE, 64 << 20, 1_000_000, &Fixed(Some(512 << 10), 10_000));
    assert!(budgets.level > 8, "{}", budgets.level);
    for _ in 0..4 {
        pass(50 * MS);
        budgets.relax();
    }
    assert_eq!(budgets.level, 0);
    assert!(budgets.left.iter().all(|left| *left < 100 << 20), "{:?}", budgets.left);
}

#[test]
fn a_loop_that_begins_again_after_a_pause_takes_hardly_more_samples_than_the_bucket_has() {
    let (mut budgets, recorder) = (thread(), Fixed(Some(512 << 10), 10_000));
    for _ in 0..10 {
        let (samples, ..) = run(&mut budgets, LARGE, 16 << 20, 5_000, &recorder);
        assert!(samples < BURST + 128, "{samples}");
        for _ in 0..20 {
            pass(50 * MS);
            budgets.relax();
        }
        // Samples that come late, one by one.
        run_slowly(&mut budgets, &recorder);
    }
}

#[test]
fn a_loop_that_begins_again_after_a_pause_of_any_length_is_soon_done_with_its_samples() {
    let recorder = Fixed(Some(512 << 10), 10_000);
    let (mut budgets, lives) = (thread(), Lives::new());
    // A hundred blocks, 21 times, of as many sizes. None stays.
    let some = |budgets: &mut Budgets| {
        let mut samples = 0;
        for block in 0..2_100u64 {
            pass(40);
            let bytes = 1 << (10 + block % 12);
            let place = Place::new(4096, bytes);
            match budgets.passes(LARGE, bytes, place) {
                Some(counted) => budgets.count(counted, LARGE, bytes),
                None if budgets.decide(LARGE, bytes, place, (&recorder, &lives)).is_some() => {
                    lives.freed(lives.took(place));
                    pass(1_700);
                    samples += 1;
                }
                None => {}
            }
        }
        samples
    };
    let (mut at_first, mut later) = (0, 0);
    for turn in 0..60 {
        at_first += some(&mut budgets);
        later += some(&mut budgets);
        pass([10, 30, 100, 300, 1_000, 3_000][turn % 6] * MS);
        budgets.relax();
    }
    assert!(at_first > 60 * 5, "{at_first}");
    // The time of one of ten blocks, where it was that of one of two.
    assert!(later < 60 * 8, "{later}");
}

#[test]
fn what_stays_is_known_however_busy_its_thread_is() {
    let recorder = Fixed(Some(512 << 10), 10_000);
    let (mut budgets, lives) = (thread(), Lives::new());
    let mut draw = |bytes, place| {
        pass(300);
        match budgets.passes(LARGE, bytes, place) {
            Some(counted) => {
                budgets.count(counted, LARGE, bytes);
                None
            }
            None => budgets.decide(LARGE, bytes, place, (&recorder, &lives)).inspect(|_| pass(1_700)),
        }
    };
    let (of_steps, of_weights) = (Place::new(4096, 8 << 20), Place::new(8192, 9 << 20));
    let (mut samples, mut weights) = (0, 0);
    for block in 0..200_000 {
        if draw(8 << 20, of_steps).is_some() {
            lives.freed(lives.took(of_steps));
            samples += 1;
        }
        if block % 4_000 == 3_999
            && let Some(drawn) = draw(9 << 20, of_weights)
        {
            lives.took(of_weights);
            weights += drawn.weight;
        }
    }
    // Of fifty, one is in a stratum that has not ended.
    assert!((49 * OBJECT_ONE..=50 * OBJECT_ONE).contains(&weights), "{weights}");
    assert!(samples < 20_000, "{samples}");
}

fn run_slowly(budgets: &mut Budgets, recorder: &Fixed) {
    for _ in 0..100 {
        pass(MS);
        if budgets.spend(LARGE, 16 << 20) {
            budgets.sample(LARGE, 16 << 20, recorder);
        }
    }
}

#[test]
fn samples_that_take_longer_come_the_less_often() {
    let count = |cost| {
        let (mut budgets, mut samples) = (thread(), 0);
        let recorder = Fixed(Some(512 << 10), 20_000);
        let began = now();
        while now() < began + 400 * MS {
            pass(BLOCK);
            if budgets.spend(LARGE, 64 << 20) && budgets.sample(LARGE, 64 << 20, &recorder).is_some() {
                budgets.charge(Charged::Sample, cost * 3 / 5);
                budgets.charge(Charged::Free, cost * 2 / 5);
                pass(cost);
                samples += 1;
            }
        }
        samples
    };
    let (cheap, dear) = (count(800), count(8000));
    assert!(cheap > 7 * dear, "{cheap} of 800 ns, {dear} of 8000");
}

#[test]
fn a_program_that_waits_between_its_steps_takes_samples_for_what_it_runs() {
    let recorder = Fixed(Some(512 << 10), 10_000);
    // What samples take of steps of 6 ms, with so many ms between them.
    let share = |pause: u64| {
        let (mut budgets, mut ran, mut took) = (thread(), 0, 0);
        for step in 0..300 {
            let end = now() + 6 * MS;
            while now() < end {
                pass(20_000);
                if budgets.spend(LARGE, 64 << 20) && budgets.sample(LARGE, 64 << 20, &recorder).is_some() {
                    budgets.charge(Charged::Sample, 1_000);
                    took += if step < 100 { 0 } else { 1_000 };
                }
            }
            ran += if step < 100 { 0 } else { 6 * MS };
            pass(pause * MS);
        }
        took as f64 / ran as f64
    };
    let [always, half, seldom] = [0, 6, 60].map(share);
    assert!(always > 0.008 && always < 0.012, "{always}");
    assert!(half < 1.4 * always && seldom < 1.5 * always, "{half} and {seldom} beside {always}");
}

#[test]
fn a_period_of_one_records_everything_until_it_changes() {
    let mut budgets = thread();
    assert_eq!(run(&mut budgets, 3, 2048, 1000, &Fixed(Some(1), 10)), (1000, 1000.0, 0.0));
    budgets.refresh();
    let (samples, ..) = run(&mut budgets, 3, 2048, 1000, &Fixed(Some(1 << 40), 10));
    assert!(samples <= 1, "{samples}");
    budgets.refresh();
    assert_eq!(run(&mut budgets, 3, 2048, 1000, &Fixed(None, 10)).0, 0);
    budgets.refresh();
    assert_eq!(run(&mut budgets, 3, 2048, 10, &Fixed(Some(1), 10)).0, 10);
}
