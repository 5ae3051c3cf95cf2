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
#[cfg(test)]
mod tests;

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
        if self.strata.is_none() && self.period == 0 && recorder.period().is_some_and(|period| period > 1) {
            self.strata = Strata::new();
        }
        let weight = match self.strata.find(place) {
            Found::At(at) => self.decide_at(at, bytes, place, (recorder, lives))?,
            Found::New => {
                self.strata.take(place);
                OBJECT_ONE
            }
            Found::Full if self.spend(class, bytes) => self.sample(class, bytes, recorder)?,
            Found::Full => return None,
        };
        Some(Drawn { weight, place })
    }

    /// The weight of a block of a known place, if it is to be recorded.
    fn decide_at(
        &mut self,
        at: usize,
        bytes: u64,
        place: Place,
        (recorder, lives): (&dyn Recorder, &Lives),
    ) -> Option<u64> {
        if self.strata.passes(at) {
            self.strata.pass(at);
            return None;
        }
        match self.follow(recorder) {
            Wanted::Nothing => return None,
            Wanted::Everything => return Some(OBJECT_ONE),
            Wanted::Samples | Wanted::SamplesAnew => {}
        }
        let now = Now { bytes, period: self.raised(), level: self.level, stays: lives.stays(place) };
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
