//! A horizontal bar in half columns, thin enough that rows stay apart.

/// A bar for a share of 0 to 1, `width` columns wide with what is empty as spaces. Little is not nothing: it has half
/// a column.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let mut halves = (share * width as f64 * 2.0).round() as usize;
    if share > 0.0 {
        halves = halves.max(1);
    }
    let mut out = "━".repeat(halves / 2);
    if !halves.is_multiple_of(2) {
        out.push('╸');
    }
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(halves.div_ceil(2))));
    out
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn fills_its_width_exactly() {
        for (share, text) in [
            (0.0, "    "),
            (1.0, "━━━━"),
            (0.5, "━━  "),
            (0.6, "━━╸ "),
            (0.001, "╸   "),
            (7.0, "━━━━"),
            (f64::NAN, "    "),
        ] {
            assert_eq!(bar(share, 4), text, "{share}");
        }
    }
}
