//! A horizontal bar in eighths of a column.

/// A bar for a share of 0 to 1, `width` columns wide with what is empty as spaces.
pub(crate) fn bar(share: f64, width: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let mut eighths = (share * width as f64 * 8.0).round() as usize;
    if share > 0.0 {
        eighths = eighths.max(1);
    }
    let mut out = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        out.push(PARTS[eighths % 8]);
    }
    let used = eighths.div_ceil(8);
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn fills_its_width_exactly() {
        for (share, text) in
            [(0.0, "    "), (1.0, "████"), (0.5, "██  "), (0.53, "██▏ "), (0.001, "▏   "), (7.0, "████"), (f64::NAN, "    ")]
        {
            assert_eq!(bar(share, 4), text, "{share}");
        }
    }
}
