//! Shares of a whole as whole columns: nothing drifts, nothing vanishes without a mark.

/// One part of a divided row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The child with this index.
    Child(usize),
    /// Children that are too thin for a column each: how many.
    More(usize),
}

/// Divides `width` columns among children in their order, as `(part, columns)`; what is left over belongs to the
/// parent itself.
///
/// Children of at least one column get theirs by the largest remainder, so that each is less than one column off.
/// Thinner ones come together in one [`Part::More`] at the end, which has at least one column.
pub(crate) fn split(values: &[f64], total: f64, width: u16) -> Vec<(Part, u16)> {
    let columns = f64::from(width);
    if width == 0 || total <= 0.0 || !total.is_finite() {
        return Vec::new();
    }
    let value = |v: f64| if v.is_finite() { v.max(0.0) } else { 0.0 };
    let sum: f64 = values.iter().map(|&v| value(v)).sum();
    // Rounding may let the children hold a little more than their parent.
    let total = total.max(sum);
    let mut parts: Vec<(Part, f64)> = Vec::new();
    let (mut thin, mut thin_value) = (0, 0.0);
    for (index, &v) in values.iter().enumerate() {
        let share = value(v) / total * columns;
        if share >= 1.0 {
            parts.push((Part::Child(index), share));
        } else if share > 0.0 {
            thin += 1;
            thin_value += share;
        }
    }
    if thin > 0 {
        parts.push((Part::More(thin), thin_value));
    }
    let own = (columns - parts.iter().map(|p| p.1).sum::<f64>()).max(0.0);
    let mut shares: Vec<f64> = parts.iter().map(|p| p.1).collect();
    shares.push(own);
    let mut widths = largest_remainder(&shares, width);
    widths.pop();
    if thin > 0 && widths.last() == Some(&0) {
        let last = widths.len() - 1;
        let spent: u16 = widths.iter().sum();
        if spent == width {
            // The widest gives one up: it is the least changed by it.
            if let Some(widest) = (0..last).filter(|&i| widths[i] > 1).max_by_key(|&i| widths[i]) {
                widths[widest] -= 1;
                widths[last] = 1;
            }
        } else {
            widths[last] = 1;
        }
    }
    parts.into_iter().map(|p| p.0).zip(widths).filter(|(_, w)| *w > 0).collect()
}

/// Whole numbers that add up to `width` and are each less than one off their share.
fn largest_remainder(shares: &[f64], width: u16) -> Vec<u16> {
    let mut out: Vec<u16> = shares.iter().map(|s| s.floor() as u16).collect();
    let given: u16 = out.iter().sum();
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|&a, &b| shares[b].fract().total_cmp(&shares[a].fract()).then(a.cmp(&b)));
    for &index in order.iter().take(usize::from(width.saturating_sub(given))) {
        out[index] += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thin_children_come_together() {
        // 37 children of 0.19 columns beside a large one: flamelens left 7 columns blank here.
        let mut values = vec![113.0];
        values.extend(std::iter::repeat_n(0.19, 37));
        let parts = split(&values, 120.0, 120);
        assert_eq!(parts, [(Part::Child(0), 113), (Part::More(37), 7)]);
    }

    #[test]
    fn equal_thirds_fill_the_row() {
        let parts = split(&[1.0, 1.0, 1.0], 3.0, 80);
        assert_eq!(parts.iter().map(|p| p.1).sum::<u16>(), 80);
    }

    proptest! {
        #[test]
        fn nothing_drifts_and_nothing_vanishes(
            values in proptest::collection::vec(prop_oneof![0.0..1e-3, 0.0..1e3, 0.0..1e9], 0..60),
            own in prop_oneof![Just(0.0), 0.0..1e9],
            width in 0u16..400,
        ) {
            let total = values.iter().sum::<f64>() + own;
            let parts = split(&values, total, width);
            prop_assert!(parts.iter().map(|p| p.1).sum::<u16>() <= width);
            let mut last = None;
            let mut drawn = 0;
            for &(part, columns) in &parts {
                prop_assert!(columns >= 1);
                match part {
                    Part::Child(index) => {
                        prop_assert!(last < Some(index), "in their order");
                        last = Some(index);
                        drawn += 1;
                        let share = values[index] / total * f64::from(width);
                        prop_assert!((f64::from(columns) - share).abs() < 2.0);
                    }
                    Part::More(count) => drawn += count,
                }
            }
            let there = values.iter().filter(|&&v| v / total * f64::from(width) > 0.0).count();
            if width >= 2 && total > 0.0 {
                prop_assert_eq!(drawn, there, "each is drawn or counted");
            }
        }
    }
}
