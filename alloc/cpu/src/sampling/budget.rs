//! The mathematics of sampling: one draw and one weight.
//!
//! Sampled bytes are the points of a Poisson process over allocated bytes: the distance to the next is exponential
//! with the period as its mean. Each thread and class has a process of its own; their superposition is Poisson
//! again, and the exponential has no memory, so that lists which are given up halfway bias nothing. A block of `b`
//! bytes is sampled when at least one point falls into it, with probability `p = 1 - exp(-b / period)`, and stands
//! for `1 / p` blocks (the weights of Google's tcmalloc, docs/sampling.md).
//!
//! A large block that grows in place gets new bytes, which come before the budget as those of a new block do: one that
//! was not sampled may be now, and one that is stands for fewer. With `x` samples to be expected in all bytes that it
//! ever got, `p` is `1 - exp(-x)`.
//!
//! The budgets of medium classes come in parts: a thread that only takes up the blocks that it has freed has nothing
//! else that would lead it into the slow path, where it looks for what others ask of it. A part that ends is no sample;
//! where it ends the next one is drawn, which again is what the exponential without memory allows.

use core::cell::Cell;

use poolscope_wire::OBJECT_ONE;

use super::governor;

/// Bytes of the longest part, and blocks of the longest part if that is more: so a look is as rare for large blocks as
/// for those of 8 KiB, and takes a small part of the time of either.
const PART: u32 = 512 << 10;
const PART_BLOCKS: u32 = 64;

/// How far one heap is from its next sample of one class, or of large blocks.
#[derive(Default)]
pub struct Budget {
    /// Bytes to the next sample, or to the end of the part; at most 0: the next block is it.
    pub left: Cell<i64>,
    /// The period that `left` was drawn with, and that the sample's weight follows from.
    period: Cell<u64>,
    /// Time of the latest sample, for the governor.
    pub sampled_at: Cell<u64>,
    /// Times that the governor has doubled the period.
    pub level: Cell<u8>,
    /// Samples that came too fast since it last did.
    pub haste: Cell<u8>,
    /// There is another part: no sample is due at the end of this one.
    goes_on: Cell<bool>,
    /// Bytes of its longest part; 0 if it comes as a whole.
    part: Cell<u32>,
}

impl Budget {
    /// Has it come in parts, from the next draw on, for blocks of `bytes` bytes.
    pub fn divide(&self, bytes: usize) {
        self.part.set(PART.max(PART_BLOCKS * bytes as u32));
    }

    /// At the end of a part: begins the next one. False if there is none.
    pub fn next_part(&self, random: &Cell<u64>) -> bool {
        if !self.goes_on.get() {
            return false;
        }
        let mut state = random.get();
        let more = draw(&mut state, self.period.get().max(1));
        random.set(state);
        let part = i64::from(self.part.get());
        self.goes_on.set(more > part);
        self.left.set(self.left.get() + more.min(part));
        true
    }

    /// Has every block be due, whatever was drawn.
    pub fn end(&self) {
        self.goes_on.set(false);
        self.left.set(0);
    }

    /// Whether nothing was drawn yet.
    pub fn is_new(&self) -> bool {
        self.period.get() == 0
    }

    /// Whether the next block is to be sampled.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.left.get() <= 0
    }

    /// Whether the budget was drawn with what `period` comes to now, and that is none that records everything.
    #[inline(always)]
    pub fn is_of(&self, period: u64) -> bool {
        self.period.get() == period << self.level.get() && period > 1
    }

    /// Draws the bytes to the next sample; `period` is the plain one.
    pub fn draw(&self, random: &Cell<u64>, period: u64) {
        let mut state = random.get();
        let period = period << self.level.get();
        let drawn = draw(&mut state, period.max(1));
        let part = i64::from(self.part.get());
        let goes_on = part > 0 && drawn > part;
        self.goes_on.set(goes_on);
        self.left.set(if goes_on { part } else { drawn });
        self.period.set(period);
        random.set(state);
    }

    /// Draws anew if the period has changed, or was raised for a time that is over. Only where no sample is due: the
    /// points to come don't depend on those before, so nothing is biased.
    #[inline]
    pub fn follow(&self, random: &Cell<u64>, period: u64) {
        if self.level.get() > 0 && governor::is_stale(self) {
            self.level.set(0);
        }
        if self.period.get() != period << self.level.get() {
            self.draw(random, period);
        }
    }

    /// Objects that the sampled block of `bytes` bytes stands for, in units of 1/65536.
    pub fn weight(&self, bytes: usize) -> u64 {
        weight(self.exposure(bytes))
    }

    /// Samples to be expected in `bytes` bytes that are counted off now.
    pub fn exposure(&self, bytes: usize) -> f64 {
        match self.period.get() {
            ..=1 => f64::INFINITY,
            period => float(bytes as u64) / float(period),
        }
    }
}

/// A number of bytes: one instruction, where it is taken for a signed one.
fn float(bytes: u64) -> f64 {
    bytes as i64 as f64
}

/// 1/n, since divisions are slow. Of 0 it is 0.
const RECIPROCALS: [f64; 14] = {
    let (mut table, mut n) = ([0.0; 14], 1);
    while n < table.len() {
        table[n] = 1.0 / n as f64;
        n += 1;
    }
    table
};

/// The natural logarithm of a positive, normal number; relative error below 1e-12.
fn ln(x: f64) -> f64 {
    const LN_2: f64 = core::f64::consts::LN_2;
    // x = 2^exponent m, with m from the root of 1/2 to that of 2.
    let exponent = (x.to_bits().wrapping_sub(core::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64) >> 52;
    let mantissa = f64::from_bits(x.to_bits().wrapping_sub((exponent << 52) as u64));
    // ln m = 2 atanh((m - 1) / (m + 1)), with (m - 1) / (m + 1) below 0.172.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let (mut sum, square) = (RECIPROCALS[13], t * t);
    for step in 1..7 {
        sum = RECIPROCALS[13 - 2 * step] + square * sum;
    }
    2.0 * t * sum + exponent as f64 * LN_2
}

/// `1 / (1 - exp(-x))` for `x > 0`.
fn reciprocal_of_chance(x: f64) -> f64 {
    if x > 0.5 {
        return 1.0 / one_minus_exp(x);
    }
    // 1/x + 1/2 + x/12 - x^3/720 + x^5/30240 - x^7/1209600 + ...; the next term is below 1e-10 of the sum.
    let square = x * x;
    let tail = 1.0 / 12.0 - square * (1.0 / 720.0 - square * (1.0 / 30_240.0 - square * (1.0 / 1_209_600.0)));
    1.0 / x + (0.5 + x * tail)
}

/// `1 - exp(-x)` for `x >= 0`.
fn one_minus_exp(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    // 1 - e^-2h = (1 - e^-h)(2 - (1 - e^-h)), from an `h` small enough for the series.
    let mut halvings = 0;
    let mut h = x;
    while h > 0.25 {
        h /= 2.0;
        halvings += 1;
    }
    let mut sum = 1.0;
    for term in (2..=13).rev() {
        sum = 1.0 - h * RECIPROCALS[term] * sum;
    }
    sum *= h;
    for _ in 0..halvings {
        sum *= 2.0 - sum;
    }
    sum
}

/// The next random number (xorshift64*, Vigna 2016) of a generator whose state is not 0.
pub fn random(state: &mut u64) -> u64 {
    let mut x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    x.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Bytes to the next sample.
fn draw(state: &mut u64, period: u64) -> i64 {
    // Uniform in (0, 1): never 0.
    let uniform = ((random(state) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (-ln(uniform) * float(period)) as i64 + 1
}

/// Objects that a sampled block stands for in which `exposure` samples were to be expected, in units of 1/65536.
pub fn weight(exposure: f64) -> u64 {
    (OBJECT_ONE as f64 * reciprocal_of_chance(exposure) + 0.5) as i64 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_exponential_agree_with_std() {
        for i in 1..20_000 {
            let x = f64::from(i) / 20_000.0;
            assert!((ln(x) - x.ln()).abs() < 1e-11, "{x}");
        }
        for x in [1e-9, 1e-5, 0.01, 0.25, 0.3, 0.5, 0.51, 1.0, 5.0, 39.0, 1e6] {
            let expected = -f64::exp_m1(-x);
            assert!((one_minus_exp(x) - expected).abs() <= expected * 1e-9, "{x}");
            assert!((reciprocal_of_chance(x) * expected - 1.0).abs() <= 1e-9, "{x}");
        }
    }

    #[test]
    fn draws_have_the_period_as_mean_and_as_standard_deviation() {
        let (mut state, period, n) = (42, 512 * 1024, 200_000);
        let draws: Vec<f64> = (0..n).map(|_| draw(&mut state, period) as f64).collect();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let deviation = (draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / f64::from(n)).sqrt();
        // The standard error of the mean is period / sqrt(n).
        let error = period as f64 / f64::from(n).sqrt();
        assert!((mean - period as f64).abs() < 4.0 * error, "{mean}");
        assert!((deviation / period as f64 - 1.0).abs() < 0.02, "{deviation}");
    }

    /// Blocks of 1000 bytes from a heap whose period changes again and again: what the samples stand for is what was
    /// allocated. As in the slow path, a change is noticed where a list of blocks ends without a sample.
    #[test]
    fn a_period_that_changes_biases_nothing() {
        const BLOCK: usize = 1000;
        let random = Cell::new(7);
        let budget = Budget::default();
        let (mut blocks, mut counted, mut variance) = (0u64, 0.0, 0.0);
        let mut period = 1 << 20;
        budget.draw(&random, period);
        for list in 0u64..400_000 {
            if list % 37 == 0 {
                period = [1 << 20, 1 << 12, 1 << 16][(list / 37 % 3) as usize];
            }
            let p = one_minus_exp(BLOCK as f64 / (1 << 20) as f64);
            if !budget.is_due() {
                budget.follow(&random, period);
            }
            for _ in 0..10 {
                blocks += 1;
                budget.left.set(budget.left.get() - BLOCK as i64);
                variance += (1.0 - p) / p;
                if budget.is_due() {
                    counted += budget.weight(BLOCK) as f64 / OBJECT_ONE as f64;
                    budget.draw(&random, period);
                    break;
                }
            }
        }
        let error = variance.sqrt();
        assert!((counted - blocks as f64).abs() < 4.0 * error, "{counted} for {blocks}, give or take {error}");
        assert!(error < 0.05 * blocks as f64, "the test sees a bias of 5 %: {error} of {blocks}");
    }

    /// The same with parts, of periods that are longer and shorter than one.
    #[test]
    fn a_budget_in_parts_biases_nothing_and_no_part_is_longer() {
        const BLOCK: i64 = 10_240;
        let longest = i64::from(PART).max(i64::from(PART_BLOCKS) * BLOCK);
        for period in [1 << 16, 1 << 19, 1 << 22] {
            let random = Cell::new(11);
            let budget = Budget::default();
            budget.divide(BLOCK as usize);
            budget.draw(&random, period);
            let (mut counted, mut since, blocks) = (0.0, 0, 2_000_000);
            for _ in 0..blocks {
                // As `Heap::pop_medium` does it.
                since += BLOCK;
                while budget.left.get() <= BLOCK && budget.next_part(&random) {
                    since = BLOCK;
                }
                if budget.left.get() <= BLOCK {
                    counted += budget.weight(BLOCK as usize) as f64 / OBJECT_ONE as f64;
                    budget.draw(&random, period);
                    since = 0;
                } else {
                    budget.left.set(budget.left.get() - BLOCK);
                }
                assert!(since <= longest + BLOCK, "{since} bytes without a look");
            }
            let p = one_minus_exp(BLOCK as f64 / period as f64);
            let error = (f64::from(blocks) * (1.0 - p) / p).sqrt();
            let off = (counted - f64::from(blocks)) / error;
            assert!(off.abs() < 4.0, "{counted} for {blocks}: {off} standard errors");
        }
    }

    #[test]
    fn a_weight_is_one_over_the_probability() {
        let random = Cell::new(1);
        let weight = |bytes, period| {
            let budget = Budget::default();
            budget.draw(&random, period);
            budget.weight(bytes)
        };
        assert_eq!(weight(64, 1), OBJECT_ONE);
        let small = weight(64, 512 * 1024) as f64 / OBJECT_ONE as f64;
        assert!((small - 8192.5).abs() < 0.1, "{small}");
        assert_eq!(weight(1 << 30, 512 * 1024), OBJECT_ONE);
    }
}
