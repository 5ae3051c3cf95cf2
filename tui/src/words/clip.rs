//! Text for a place of some width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The figures in a text, each with its unit, as ranges of bytes.
fn figures_in(text: &str) -> Vec<std::ops::Range<usize>> {
    const UNITS: [&str; 20] = [
        "KiB/s", "MiB/s", "GiB/s", "TiB/s", "KiB", "MiB", "GiB", "TiB", "PiB", "B/s", "k/s", "M/s", "ms", "B", "k",
        "M", "G", "T", "s", "m",
    ];
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()).map(|offset| at + offset) {
        let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
        let mut end = text[start..].find(|c| !digits(c)).map_or(text.len(), |length| start + length);
        let rest = &text[end..];
        if rest.starts_with('%') {
            end += 1;
        } else if let Some(rest) = rest.strip_prefix(' ') {
            let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '/');
            let unit = UNITS.into_iter().find(|unit| rest.strip_prefix(unit).is_some_and(ends));
            end += unit.map_or(0, |unit| 1 + unit.len());
        } else if rest.starts_with("/s") {
            end += 2;
        }
        let signed = text[..start].trim_end_matches(['±', '-', '+']).len();
        out.push(signed..end);
        at = end;
    }
    out
}

/// `text` in at most `width` columns, with an ellipsis where it was cut. A figure is never cut to a smaller one: it
/// goes as a whole, with its unit.
pub(crate) fn clip(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    if width == 0 {
        return String::new();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w > width - 1 {
            break;
        }
        used += w;
        out.push(c);
    }
    if let Some(cut) = figures_in(text).into_iter().find(|figure| figure.contains(&out.len())) {
        out.truncate(cut.start);
    }
    out.push('…');
    out
}

/// The same of a path, which is cut in the middle: what tells it from others stands at its end.
pub(crate) fn clip_path(path: &str, width: usize) -> String {
    if path.width() <= width {
        return path.to_owned();
    }
    let width_of = |c: char| c.width().unwrap_or(0);
    let (first, mut used) = (width.saturating_sub(1) / 5, 0);
    let fits = |used: &mut usize, c: char, room: usize| {
        *used += width_of(c);
        *used <= room
    };
    let start: String = path.chars().take_while(|&c| fits(&mut used, c, first)).collect();
    let (last, mut used) = (width.saturating_sub(1 + start.width()), 0);
    let end: Vec<char> = path.chars().rev().take_while(|&c| fits(&mut used, c, last)).collect();
    let cut = if width > 0 { "…" } else { "" };
    start + cut + &end.iter().rev().collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_end() {
        assert_eq!(clip_path("llama/model.layers.10.mlp.up", 22), "llam….layers.10.mlp.up");
        assert_eq!(clip_path("a/b", 3), "a/b");
        for width in 0..8 {
            let clipped = clip_path("日本語日本語/x", width);
            assert!(clipped.width() <= width && (width < 2 || clipped.ends_with('x')), "{clipped}");
        }
    }

    #[test]
    fn clipping_counts_columns() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
        assert_eq!(clip("日本語", 4), "日…");
        assert_eq!(clip("abc", 0), "");
    }

    #[test]
    fn clipping_leaves_no_part_of_a_figure() {
        for (text, width, clipped) in [
            ("held 28.9 MiB ±13% now", 8, "held …"),
            ("held 28.9 MiB ±13% now", 12, "held …"),
            ("held 28.9 MiB ±13% now", 17, "held 28.9 MiB …"),
            ("held 28.9 MiB ±13% now", 20, "held 28.9 MiB ±13% …"),
            ("main.rs:1234", 11, "main.rs:…"),
            ("1,234 sites", 4, "…"),
            ("1,234 sites", 8, "1,234 s…"),
        ] {
            assert_eq!(clip(text, width), clipped, "{text} in {width}");
        }
    }
}
