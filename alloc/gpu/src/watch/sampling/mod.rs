//! Which allocations are sampled: of each place of the program one of so many blocks, as many as a period has
//! ([`strata`]).
//!
//! The fast path pays for finding the place, a subtraction and a branch. A place that finds no room is sampled as the
//! host's memory is (`poolscope-cpu`, `sampling/budget.rs`), by a budget of bytes for each class: sampled bytes are the
//! points of a Poisson process over the bytes that a thread allocates; a block of `b` bytes is sampled with probability
//! `p = 1 - exp(-b / period)` and stands for `1 / p` blocks.
//!
//! A device's blocks are few and large beside the host's, and with the usual period every one of them is recorded. What
//! that may cost is bounded: where samples come too fast, the thread's period is raised ([`pace`]).
//!
//! What is left to the next point of a Poisson process is distributed like the distance of any two, so a budget that is
//! scaled with the period is as good as one that was drawn with the new one. Strata take a new period up where they
//! end. Weights follow the period; nothing is biased.

mod lives;
mod pace;
mod strata;

use std::cell::Cell;
use std::f64::consts::SQRT_2;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::watch::Recorder;
pub use lives::{Count, Lives};
pub use pace::Charged;
use pace::Pace;
pub use strata::Place;
use strata::{Found, Now, Passing, Strata};

/// One object, in the unit of weights.
const OBJECT_ONE: u64 = 1 << 16;
/// The budget of large blocks, which follows those of the classes of small ones.
pub const LARGE: usize = 13;
/// What the budgets of all threads have in common.
struct Common {
    /// Nanoseconds that have passed since some moment.
    now: fn() -> u64,
    /// Threads that have budgets, once for each pool that they use.
    threads: AtomicU64,
}

static COMMON: Common = Common { now: real_time, threads: AtomicU64::new(0) };

fn real_time() -> u64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// A thread's budgets for one pool.
pub struct Budgets {
    /// Bytes to the next sample; at most 0: the next block is it, or the period has to be asked for.
    left: [i64; LARGE + 1],
    /// The recorder's period that these were drawn with, before it was raised; 0: they have to be drawn.
    period: u64,
    /// What [`Budgets::in_force`] says while that is 0.
    without: u64,
    /// How many half doublings it was raised by.
    level: u8,
    random: u64,
    common: &'static Common,
    pace: Pace,
    /// The places that blocks have come from.
    strata: Strata,
}

/// What a block that is no sample is counted in: its place, or, as its place has no room, its class's budget.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counted(usize);

const BY_CLASS: Counted = Counted(usize::MAX);

/// A block that is to be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// What it stands for, in the unit of [`OBJECT_ONE`].
    pub weight: u64,
    /// Where it comes from.
    pub place: Place,
}

/// What the recorder wants now.
enum Wanted {
    Nothing,
    Everything,
    /// Samples; what was drawn is of their period.
    Samples,
    /// Samples, and everything was drawn just now.
    SamplesAnew,
}

impl Budgets {
    /// Budgets of which nobody knows the period yet.
    pub fn new() -> Budgets {
        Budgets::of(&COMMON)
    }

    fn of(common: &'static Common) -> Budgets {
        thread_local! {
            static SEED: Cell<u64> = const { Cell::new(0) };
        }
        common.threads.fetch_add(1, Ordering::Relaxed);
        // The address of a thread's word tells threads apart, the clock the rest.
        let place = SEED.with(|seed| std::ptr::from_ref(seed) as u64);
        let time =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        let random = (place ^ time).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Budgets {
            left: [0; LARGE + 1],
            period: 0,
            without: 0,
            level: 0,
            random,
            common,
            pace: Pace::new((common.now)()),
            strata: Strata::none(),
        }
    }

    /// What a block would be counted in; `None` if [`Budgets::decide`] must be asked about it.
    #[inline(always)]
    pub fn passes(&self, class: usize, bytes: u64, place: Place) -> Option<Counted> {
        match self.strata.find_passing(place) {
            Passing::At(at) => Some(Counted(at)),
            Passing::No => None,
            Passing::Unknown => (self.left[class] > bytes as i64).then_some(BY_CLASS),
        }
    }

    /// Counts a block that [`passes`](Self::passes).
    #[inline(always)]
    pub fn count(&mut self, counted: Counted, class: usize, bytes: u64) {
        match counted {
            BY_CLASS => self.left[class] -= bytes as i64,
            Counted(at) => self.strata.pass(at),
        }
    }

    /// Whether a block is to be recorded, and with which weight. It is counted.
    pub fn decide(
        &mut self,
        class: usize,
        bytes: u64,
        place: Place,
        (recorder, lives): (&dyn Recorder, &Lives),
    ) -> Option<Drawn> {
        let weight = self.weigh(class, bytes, place, (recorder, lives))?;
        Some(Drawn { weight, place })
    }

    fn weigh(
        &mut self,
        class: usize,
        bytes: u64,
        place: Place,
        (recorder, lives): (&dyn Recorder, &Lives),
    ) -> Option<u64> {
        if self.strata.is_none() && self.period == 0 && recorder.period().is_some_and(|period| period > 1) {
            self.strata = Strata::new();
        }
        match self.strata.find(place) {
            Found::At(at) => self.weigh_at(at, bytes, recorder, &|| lives.stays(place)),
            Found::New => {
                self.strata.take(place);
                Some(OBJECT_ONE)
            }
            Found::Full if self.spend(class, bytes) => self.sample(class, bytes, recorder),
            Found::Full => None,
        }
    }

    /// The same of a block of a known place.
    fn weigh_at(&mut self, at: usize, bytes: u64, recorder: &dyn Recorder, stays: &dyn Fn() -> bool) -> Option<u64> {
        if self.strata.passes(at) {
            self.strata.pass(at);
            return None;
        }
        match self.follow(recorder) {
            Wanted::Nothing => return None,
            Wanted::Everything => return Some(OBJECT_ONE),
            Wanted::Samples | Wanted::SamplesAnew => {}
        }
        let now = Now { bytes, period: self.raised(), level: self.level, stays: stays() };
        let Budgets { strata, random: state, .. } = self;
        let blocks = strata.next(at, now, &mut || random(state))?;
        // What stays has samples that no period could put off: they say nothing of how long it should be.
        if !now.stays || blocks >= now.blocks_for_one() {
            let level = self.level_after_sample(recorder);
            self.scale(level);
        }
        let next = Now { period: self.raised(), level: self.level, ..now };
        let Budgets { strata, random: state, .. } = self;
        strata.begin(at, next, &mut || random(state));
        Some(OBJECT_ONE * blocks)
    }

    /// Spends a block's bytes. Returns whether [`Budgets::sample`] must be asked.
    #[inline]
    fn spend(&mut self, class: usize, bytes: u64) -> bool {
        let left = &mut self.left[class];
        *left -= bytes as i64;
        *left <= 0
    }

    /// The thread's period may be another one: the next block of each class and place asks.
    pub fn refresh(&mut self) {
        if self.period > 0 {
            self.strata.restart();
        }
        self.left = [0; LARGE + 1];
        self.period = 0;
    }

    /// Takes up what the recorder wants.
    fn follow(&mut self, recorder: &dyn Recorder) -> Wanted {
        let Some(period) = recorder.period() else {
            self.refresh();
            (self.without, self.strata) = (0, Strata::none());
            self.left = [i64::MAX; LARGE + 1];
            return Wanted::Nothing;
        };
        if period <= 1 {
            self.refresh();
            self.without = 1;
            return Wanted::Everything;
        }
        if period == self.period {
            return Wanted::Samples;
        }
        self.refresh();
        self.period = period;
        (0..=LARGE).for_each(|class| self.draw(class));
        Wanted::SamplesAnew
    }

    /// Whether the block of `bytes` bytes whose bytes were just spent is to be recorded: its weight.
    #[cold]
    fn sample(&mut self, class: usize, bytes: u64, recorder: &dyn Recorder) -> Option<u64> {
        match self.follow(recorder) {
            Wanted::Nothing => return None,
            Wanted::Everything => return Some(OBJECT_ONE),
            // The first block, or the first with this period: it may be a sample, too.
            Wanted::SamplesAnew if !self.spend(class, bytes) => return None,
            Wanted::Samples | Wanted::SamplesAnew => {}
        }
        let weight = weight(bytes, self.raised());
        let level = self.level_after_sample(recorder);
        self.scale(level);
        self.draw(class);
        Some(weight)
    }

    /// The level that a sample leads to.
    fn level_after_sample(&mut self, recorder: &dyn Recorder) -> u8 {
        match recorder.samples_per_second() {
            0 => 0,
            rate => {
                let threads = self.common.threads.load(Ordering::Relaxed).max(1);
                self.pace.level(self.level, rate, threads, (self.common.now)())
            }
        }
    }

    /// Says how many nanoseconds the latest sample has taken, or the latest free of one.
    pub fn charge(&mut self, of: Charged, ns: u64) {
        self.pace.charge(of, ns);
    }

    /// To be called now and then: a thread whose samples don't come any more does not wait for them at the pace of its
    /// busiest time.
    pub fn relax(&mut self) {
        let level = self.pace.after_silence(self.level, (self.common.now)());
        self.scale(level);
        self.strata.shorten(level);
    }

    /// The period in force; 0 where there are no samples, 1 where every block is recorded.
    pub fn in_force(&self) -> u64 {
        if self.period == 0 { self.without } else { self.raised() }
    }

    /// The period that the budgets are of.
    fn raised(&self) -> u64 {
        let doubled = self.period.saturating_mul(1 << (self.level / 2));
        if self.level.is_multiple_of(2) { doubled } else { (doubled as f64 * SQRT_2) as u64 }
    }

    fn draw(&mut self, class: usize) {
        // Uniform in (0, 1): never 0.
        let uniform = ((random(&mut self.random) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        self.left[class] = (-uniform.ln() * self.raised() as f64) as i64 + 1;
    }

    /// Goes to another level.
    fn scale(&mut self, level: u8) {
        if level == self.level {
            return;
        }
        let factor = ((f64::from(level) - f64::from(self.level)) / 2.0).exp2();
        self.level = level;
        self.left.iter_mut().for_each(|left| *left = (*left as f64 * factor) as i64);
    }
}

impl Drop for Budgets {
    fn drop(&mut self) {
        self.common.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next random number (xorshift64*, Vigna 2016) of a generator whose state is not 0.
fn random(state: &mut u64) -> u64 {
    let mut x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    x.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn weight(bytes: u64, period: u64) -> u64 {
    let p = -f64::exp_m1(-(bytes as f64) / period as f64);
    (OBJECT_ONE as f64 / p).round() as u64
}

#[cfg(test)]
mod tests {
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
}
