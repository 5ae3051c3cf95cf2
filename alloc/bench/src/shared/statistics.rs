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

/// Within this of the median lies the true one, nineteen times out of twenty, whatever single rounds were disturbed:
/// the notch of a box plot. 1.57 times the range of the middle half, over the root of the count (McGill, Tukey and
/// Larsen 1978). 0 without a value.
pub fn notch(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let quartile = |part: usize| sorted[last * part / 4];
    1.57 * (quartile(3) - quartile(1)) / (sorted.len() as f64).sqrt()
}

/// With three digits that count.
pub fn shown(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
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

    #[test]
    fn one_round_that_was_disturbed_changes_no_notch() {
        let mut values: Vec<f64> = (0..15).map(|index| 1.0 + f64::from(index) / 100.0).collect();
        let calm = notch(&values);
        values[14] = 100.0;
        assert!((notch(&values) - calm).abs() < 1e-12);
        assert!((calm - 1.57 * 0.07 / 15_f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        assert_eq!([0.123, 9.876, 54.32, 12345.6].map(shown), ["0.12", "9.88", "54.3", "12346"]);
    }
}
