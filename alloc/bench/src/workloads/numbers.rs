//! Random numbers that are the same in every run.

/// xorshift64 (Marsaglia 2003).
pub struct Numbers(u64);

impl Numbers {
    /// Another `seed`, another sequence.
    pub fn new(seed: u64) -> Numbers {
        Numbers(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * seed + 1))
    }

    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Even in `0..bound`; `bound` is below 2^32. A multiplication, where a remainder would cost more than a malloc.
    #[inline(always)]
    pub fn below(&mut self, bound: usize) -> usize {
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }

    /// Even in `0.0..1.0`.
    fn even(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal, of mean 0 and deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (self.even() + f64::MIN_POSITIVE).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.even()).cos()
    }

    /// A size whose logarithm is even between those of `least` and `most`.
    pub fn logarithmic(&mut self, least: usize, most: usize) -> usize {
        let size = least as f64 * (most as f64 / least as f64).powf(self.even());
        (size as usize).clamp(least, most)
    }
}
