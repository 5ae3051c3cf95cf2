//! Who holds a device's memory: what the samples say, brought into line with what the pool has counted.
//!
//! A pool counts every byte that it has given out; samples estimate who has it. A sampled block is there for certain,
//! and what it stands for beyond itself is an estimate. That part is scaled so that all rows together come to the
//! pool's counter: down as far as it takes, up by no more than the standard error of their sum. What is then still
//! missing belongs to call paths of which no block was sampled, and is a row of its own.

/// Bytes of the smallest block that a device's pool gives out.
const SMALLEST: u64 = 256;
/// Bytes of the largest blocks that always come from slabs. Longer ones take what was asked for, but for those of
/// threads that wait for each other.
const LARGEST_ROUNDED: u64 = 64 << 10;

/// The bytes that a device's pool counts for a block of which so many were asked for:
/// small ones are rounded up to a power of two.
pub fn device_block_bytes(size: u64) -> u64 {
    if size <= LARGEST_ROUNDED {
        size.next_power_of_two().max(SMALLEST)
    } else {
        size.checked_next_multiple_of(SMALLEST).unwrap_or(size)
    }
}

/// What samples say of the blocks of one call path, or of all: sums over the sampled blocks that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Sampled {
    /// Bytes that they stand for.
    pub bytes: f64,
    /// Bytes of themselves: so many are in use for certain.
    pub seen: f64,
    /// Square of the standard error of `bytes`.
    pub variance: f64,
}

impl Sampled {
    /// Of no block.
    pub const NONE: Sampled = Sampled { bytes: 0.0, seen: 0.0, variance: 0.0 };

    /// Adds `blocks` sampled blocks of which the program asked for `size` bytes each,
    /// and each of which stands for `weight`.
    pub fn add(&mut self, size: u64, blocks: f64, weight: f64) {
        let bytes = device_block_bytes(size) as f64;
        self.bytes += blocks * weight * bytes;
        self.seen += blocks * bytes;
        // Horvitz and Thompson, 1952: b^2 (1 - p) / p^2 for each, and a weight is 1 / p.
        self.variance += blocks * (weight * (weight - 1.0)).max(0.0) * bytes * bytes;
    }

    /// Adds another's.
    pub fn join(&mut self, other: &Sampled) {
        self.bytes += other.bytes;
        self.seen += other.seen;
        self.variance += other.variance;
    }

    /// Its standard error, in bytes.
    pub fn error(&self) -> f64 {
        square_root(self.variance)
    }
}

/// How estimates are brought into line with a pool's counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settlement {
    /// What the part beyond the blocks that were seen is multiplied by.
    pub scale: f64,
    /// Bytes that are in use and that no row accounts for.
    pub unattributed: f64,
}

impl Settlement {
    /// For rows that come to `all` together, of a pool that has given out `in_use` bytes.
    pub fn new(all: &Sampled, in_use: u64) -> Settlement {
        let beyond = (all.bytes - all.seen).max(0.0);
        let wanted = (in_use as f64 - all.seen).max(0.0);
        let scale = if beyond > 0.0 { (wanted / beyond).min(1.0 + all.error() / beyond) } else { 1.0 };
        let rest = wanted - beyond * scale;
        // Less than a byte is the arithmetic's.
        Settlement { scale, unattributed: if rest < 1.0 { 0.0 } else { rest } }
    }

    /// The bytes of a row.
    pub fn bytes(&self, row: &Sampled) -> f64 {
        row.seen + (row.bytes - row.seen).max(0.0) * self.scale
    }
}

/// By Heron's method: `core` has none.
fn square_root(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 {
        return 0.0;
    }
    // Half the exponent is a guess that is right to a factor of two.
    let mut root = f64::from_bits((value.to_bits() >> 1) + (1023 << 51));
    for _ in 0..6 {
        root = 0.5 * (root + value / root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(size: u64, blocks: f64, weight: f64) -> Sampled {
        let mut sampled = Sampled::default();
        sampled.add(size, blocks, weight);
        sampled
    }

    #[test]
    fn blocks_are_counted_as_the_pool_counts_them() {
        let cases =
            [(0, 256), (1, 256), (257, 512), (5000, 8192), (600_000, 600_064), ((3 << 20) + 1, (3 << 20) + 256)];
        for (size, bytes) in cases {
            assert_eq!(device_block_bytes(size), bytes, "{size}");
        }
    }

    #[test]
    fn roots_are_right() {
        for value in [0.0, 1e-9, 0.25, 2.0, 1e6, 3e24, 1e300] {
            assert!((square_root(value) - value.sqrt()).abs() <= 1e-12 * value.sqrt(), "{value}");
        }
        assert_eq!(square_root(-1.0), 0.0);
    }

    #[test]
    fn rows_come_to_the_counter_and_no_block_that_was_seen_is_denied() {
        let (exact, rough) = (sampled(1 << 20, 10.0, 1.0), sampled(4096, 5.0, 100.0));
        let mut all = exact;
        all.join(&rough);
        for in_use in [(10 << 20) + 5 * 4096, 11 << 20, 12 << 20] {
            let settled = Settlement::new(&all, in_use);
            let rows = [settled.bytes(&exact), settled.bytes(&rough)];
            assert_eq!((rows[0], settled.unattributed), (10.0 * 1024.0 * 1024.0, 0.0), "{in_use}");
            assert!((rows[0] + rows[1] - in_use as f64).abs() < 1.0, "{rows:?} of {in_use}");
        }
    }

    #[test]
    fn what_is_more_than_an_error_of_the_samples_is_nobodys() {
        let row = sampled(4096, 4.0, 100.0);
        let settled = Settlement::new(&row, 100 << 20);
        assert!((settled.bytes(&row) - row.bytes - row.error()).abs() < 1.0);
        assert!((settled.bytes(&row) + settled.unattributed - (100 << 20) as f64).abs() < 1.0);
        // Without a sample all of it is, and what is recorded block by block is not made more.
        assert_eq!(Settlement::new(&Sampled::default(), 77).unattributed, 77.0);
        let exact = sampled(4096, 4.0, 1.0);
        let settled = Settlement::new(&exact, 20_000);
        assert_eq!((settled.bytes(&exact), settled.unattributed), (16_384.0, 20_000.0 - 16_384.0));
    }
}
