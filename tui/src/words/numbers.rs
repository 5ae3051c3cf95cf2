//! Numbers for people: bytes in binary units, counts, rates, shares, durations. Widths stay the same from frame to
//! frame.

use std::time::Duration;

pub(crate) use poolscope_profiler::words::figures::{bytes, duration, grouped, nanoseconds};

const COUNT_UNITS: [&str; 5] = ["", " k", " M", " G", " T"];

/// Three significant digits: `1.23`, `12.3`, `123`.
fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `12.3 MiB ±4%`: an amount and its standard error, which is a share of it.
pub(crate) fn estimate(value: f64, error: f64) -> String {
    format!("{} ±{:.0}%", bytes(value), (100.0 * error).max(1.0))
}

/// `0`, `1,234`, `12.3 k`, `4.56 M`.
pub(crate) fn scaled(value: f64) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let sign = if value < 0.0 { "-" } else { "" };
    let mut number = value.abs().round();
    if number < 10_000.0 {
        return format!("{sign}{}", grouped(number as u64));
    }
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < COUNT_UNITS.len() {
        number /= 1000.0;
        unit += 1;
    }
    format!("{sign}{}{}", three_digits(number), COUNT_UNITS[unit])
}

/// `1 object`, `12.3 k objects`.
pub(crate) fn counted(count: f64, one: &str) -> String {
    let number = scaled(count);
    format!("{number} {one}{}", if number == "1" { "" } else { "s" })
}

/// Bytes per second.
pub(crate) fn byte_rate(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// Events per second; below ten with one decimal, so that a rare event doesn't read as none.
pub(crate) fn count_rate(value: f64) -> String {
    if value > 0.0 && value < 9.95 { format!("{value:.1}/s") } else { format!("{}/s", scaled(value)) }
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
    fn one_of_something_is_not_several() {
        assert_eq!((counted(1.0, "block"), counted(0.0, "block")), ("1 block".into(), "0 blocks".into()));
        assert_eq!(counted(12_345.0, "object"), "12.3 k objects");
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
            assert_eq!(scaled(value), text, "{value}");
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
}
