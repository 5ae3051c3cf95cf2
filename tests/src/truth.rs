//! What a truth program says it holds, and how far a sampled estimate of it may be off.
//!
//! The pool draws its samples as a Poisson process over the allocated bytes with the mean distance `T`. A block that
//! takes `c` bytes of the pool (its size class) is sampled with `p = 1 - exp(-c / T)`, independently of all others, and
//! a sampled block stands for `1 / p` blocks. So the estimate of a site's bytes, the sum of `size / p` over its sampled
//! blocks, has the true bytes as its mean, and the variance
//!
//! ```text
//! sum over blocks of size^2 * p * (1 - p) / p^2 = sum over blocks of size^2 * (1 - p) / p
//! ```
//!
//! Its root is the standard error that the tests measure in.

use std::collections::BTreeMap;

/// Blocks of one size from one site.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// Bytes asked for, each.
    pub size: u64,
    /// How many were allocated.
    pub allocated: u64,
    /// How many of these are held.
    pub held: u64,
}

/// An amount of bytes with its standard error.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// The true bytes.
    pub bytes: u64,
    /// Standard error of an estimate from samples, in bytes.
    pub error: f64,
}

impl Amount {
    /// How many standard errors an estimate is off.
    pub fn deviation(&self, estimate: u64) -> f64 {
        (estimate as f64 - self.bytes as f64) / self.error.max(0.5)
    }
}

/// Blocks by site, from the lines `TRUTH SITE SIZE ALLOCATED HELD`.
pub fn parse(output: &str) -> BTreeMap<String, Vec<Blocks>> {
    let mut sites = BTreeMap::<String, Vec<Blocks>>::new();
    for line in output.lines().filter_map(|line| line.strip_prefix("TRUTH ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let &[site, size, allocated, held] = words.as_slice() else { panic!("no truth: {line}") };
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("no truth: {line}"));
        let blocks = Blocks { size: number(size), allocated: number(allocated), held: number(held) };
        sites.entry(site.to_owned()).or_default().push(blocks);
    }
    sites
}

/// Bytes that the pool rounds a size up to: multiples of 16 up to 1024, then 8 classes for each doubling up to 256 KiB;
/// above that, the size itself.
pub fn class_bytes(size: u64) -> u64 {
    match size {
        0..=1024 => size.max(1).next_multiple_of(16),
        1025..=262_144 => {
            let doubling = (size - 1).ilog2();
            size.next_multiple_of(1 << (doubling - 3))
        }
        _ => size,
    }
}

/// The sum of the blocks that `count` picks out, with its standard error at the mean distance `period`.
pub fn amount(blocks: &[Blocks], period: u64, count: impl Fn(&Blocks) -> u64) -> Amount {
    let mut bytes = 0;
    let mut variance = 0.0;
    for each in blocks {
        let p = -f64::exp_m1(-(class_bytes(each.size) as f64) / period as f64);
        bytes += each.size * count(each);
        variance += (each.size as f64).powi(2) * (1.0 - p) / p * count(each) as f64;
    }
    Amount { bytes, error: variance.sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_eight_steps_for_each_doubling() {
        for (size, class) in [(1, 16), (16, 16), (17, 32), (1000, 1008), (1024, 1024), (1025, 1152), (1153, 1280)] {
            assert_eq!(class_bytes(size), class);
        }
        for (size, class) in [(2048, 2048), (2049, 2304), (5000, 5120), (200_000, 212_992), (262_144, 262_144)] {
            assert_eq!(class_bytes(size), class);
        }
        assert_eq!(class_bytes(900_000), 900_000);
    }

    #[test]
    fn a_rare_sample_has_the_standard_error_of_a_poisson_count() {
        // A million blocks of 64 bytes, every 512 KiB a sample: about 122 samples, so about one part in 11.
        let blocks = [Blocks { size: 64, allocated: 1_000_000, held: 0 }];
        let allocated = amount(&blocks, 512 << 10, |blocks| blocks.allocated);
        assert_eq!(allocated.bytes, 64_000_000);
        let parts = allocated.bytes as f64 / allocated.error;
        assert!((parts - 11.05).abs() < 0.01, "{parts}");
        assert_eq!(amount(&blocks, 512 << 10, |blocks| blocks.held).error, 0.0);
    }
}
