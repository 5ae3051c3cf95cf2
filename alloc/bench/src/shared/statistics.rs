//! What the rounds come to.

use serde::Serialize;

/// The rounds of one figure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Of an even count, the middle between the middle two.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// How many rounds.
    pub count: usize,
}

impl Spread {
    /// `None` without a value.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Spread { median, least, most, count: sorted.len() })
    }
}

/// `None` without a value.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let spread = Spread::of(&[4.0, 1.0, 9.0, 2.0]).expect("it has values");
        assert_eq!((spread.median, spread.least, spread.most), (3.0, 1.0, 9.0));
        assert!(Spread::of(&[]).is_none());
    }

    #[test]
    fn a_factor_and_its_inverse_cancel_in_the_geometric_mean() {
        let mean = geometric_mean([4.0, 0.25, 1.0]).expect("it has values");
        assert!((mean - 1.0).abs() < 1e-12);
        assert!(geometric_mean([]).is_none());
    }
}
