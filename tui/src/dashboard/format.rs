//! Numbers for people: bytes in binary units, counts, rates, durations. Widths stay the same from frame to frame.

use std::time::Duration;

const BYTE_UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNT_UNITS: [&str; 5] = ["", " k", " M", " G", " T"];

/// Three significant digits: `1.23`, `12.3`, `123`, and `1023` before the next binary unit.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `0 B`, `512 B`, `1.50 KiB`, `12.3 MiB`; at most eight columns below 1024 PiB.
pub(crate) fn bytes(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let sign = if value < 0.0 { "-" } else { "" };
    let mut scaled = value.abs();
    let mut unit = 0;
    while scaled >= 1023.5 && unit + 1 < BYTE_UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{sign}{scaled:.0} B")
    } else {
        format!("{sign}{} {}", three_digits(scaled), BYTE_UNITS[unit])
    }
}

/// `12.3 MiB ±4%`: an amount and its standard error, which is a share of it.
pub(crate) fn estimate(value: f64, error: f64) -> String {
    format!("{} ±{:.0}%", bytes(value), (100.0 * error).max(1.0))
}

/// `0`, `1,234`, `12.3 k`, `4.56 M`.
pub(crate) fn count(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let sign = if value < 0.0 { "-" } else { "" };
    let mut scaled = value.abs().round();
    if scaled < 10_000.0 {
        return format!("{sign}{}", grouped(scaled as u64));
    }
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < COUNT_UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    format!("{sign}{}{}", three_digits(scaled), COUNT_UNITS[unit])
}

/// Every digit, in groups of three: `1,234,567`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Bytes per second.
pub(crate) fn byte_rate(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// Events per second; below ten with one decimal, so that a rare event doesn't read as none.
pub(crate) fn count_rate(value: f64) -> String {
    if value > 0.0 && value < 9.95 { format!("{value:.1}/s") } else { format!("{}/s", count(value)) }
}

/// `12.3%` of `whole`; `-` if the whole is nothing.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1}%", 100.0 * part / whole) } else { "-".into() }
}

/// The shortest exact form, for axes and settings: `250 ms`, `1 s`, `5 m`, `2 h`.
pub(crate) fn short_duration(value: Duration) -> String {
    let millis = value.as_millis();
    match millis {
        0 => "0".into(),
        _ if !millis.is_multiple_of(1000) && millis < 10_000 => format!("{millis} ms"),
        _ if millis.is_multiple_of(3_600_000) => format!("{} h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{} m", millis / 60_000),
        _ => format!("{} s", millis / 1000),
    }
}

/// The figures in a text, each with its unit, as ranges of bytes.
pub(crate) fn figures_in(text: &str) -> Vec<std::ops::Range<usize>> {
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
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
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

/// Text from the watched program made safe to draw: control characters become `·`.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_binary_units() {
        for (value, text) in [
            (0.0, "0 B"),
            (1.0, "1 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.00 KiB"),
            (10.0 * 1024.0, "10.0 KiB"),
            (1023.0 * 1024.0, "1023 KiB"),
            (1023.9 * 1024.0, "1.00 MiB"),
            (1536.0 * 1024.0 * 1024.0, "1.50 GiB"),
            (-2048.0, "-2.00 KiB"),
            (f64::NAN, "0 B"),
        ] {
            assert_eq!(bytes(value), text, "{value}");
        }
    }

    #[test]
    fn counts_are_grouped_then_scaled() {
        for (value, text) in [
            (0.0, "0"),
            (999.0, "999"),
            (1234.0, "1,234"),
            (9999.4, "9,999"),
            (12_345.0, "12.3 k"),
            (999_600.0, "1.00 M"),
            (4.56e9, "4.56 G"),
        ] {
            assert_eq!(count(value), text, "{value}");
        }
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn short_durations_are_exact() {
        assert_eq!(short_duration(Duration::from_millis(250)), "250 ms");
        assert_eq!(short_duration(Duration::from_secs(300)), "5 m");
        assert_eq!(short_duration(Duration::from_secs(90)), "90 s");
    }

    #[test]
    fn rare_events_do_not_read_as_none() {
        assert_eq!(count_rate(0.2), "0.2/s");
        assert_eq!(count_rate(0.0), "0/s");
        assert_eq!(count_rate(1234.0), "1,234/s");
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
