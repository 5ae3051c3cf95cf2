//! How long single operations take: what is usual, and what the longest ones are.

/// The operations of some passes: nanoseconds each.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, nanoseconds: u64) {
        self.0.push(nanoseconds);
    }

    /// What this part of the operations, from 0 to 1, does not go beyond: 0.5 for the median, 1 for the longest.
    /// 0 without an operation.
    pub fn part(&mut self, part: f64) -> u64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0 };
        let at = ((self.0.len() as f64 * part).ceil() as usize).saturating_sub(1).min(last);
        *self.0.select_nth_unstable(at).1
    }
}

#[cfg(test)]
mod tests {
    use super::Latencies;

    #[test]
    fn parts_are_those_of_the_sorted_operations() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.part(0.5), 0);
        (1..=1000).rev().for_each(|nanoseconds| latencies.add(nanoseconds));
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|part| latencies.part(part)), [500, 990, 999, 1000]);
    }
}
