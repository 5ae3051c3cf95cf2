//! Maps by where something lies in memory: what readings share is known again without looking at what it says.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are addresses of what is kept as long as they are in it.
pub(crate) type ByPlace<T> = HashMap<usize, T, BuildHasherDefault<PlaceHasher>>;

/// Spreads addresses over a map. Nobody chooses those, so nothing stronger is needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, value: u64) {
        // The map looks at the highest bits, and at the lowest.
        let spread = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_lie_close_to_each_other_are_spread() {
        let hash = |address: usize| {
            let mut hasher = PlaceHasher::default();
            hasher.write_usize(address);
            hasher.finish()
        };
        for apart in [16, 64, 4096] {
            let hashes: Vec<u64> = (0..4096).map(|at| hash(0x7f00_0000_0000 + at * apart)).collect();
            for bits in [0, 57] {
                let mut buckets = [0; 128];
                hashes.iter().for_each(|hash| buckets[(hash >> bits) as usize % 128] += 1);
                assert!(buckets.iter().all(|count| (8..80).contains(count)), "{apart}, {bits}: {buckets:?}");
            }
        }
    }
}
