//! Figures as people read them: `1.5 MiB`, `1,234 B`, `12,345 blocks`.

use std::time::Duration;

/// Bytes with a binary unit and three digits: `1.50 MiB`. What is no number is 0.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let bytes = if bytes.is_finite() { bytes } else { 0.0 };
    let sign = if bytes < 0.0 { "-" } else { "" };
    let mut value = bytes.abs();
    let mut unit = 0;
    // 1023.5 KiB would be written as 1024 KiB.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{sign}{value:.digits$} {}", UNITS[unit])
}

/// A whole number with commas: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things with the right ending: `1 block`, `2 blocks`.
pub fn count(number: u64, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", grouped(number))
}

/// `0.4 s`, `42 s`, `3m 07s`, `2h 05m`, `3d 04h`.
pub fn duration(value: Duration) -> String {
    let seconds = value.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", value.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A time of a call: `0`, `412 ns`, `37.5 us`, `1.24 ms`, `2.10 s`.
pub fn nanoseconds(value: f64) -> String {
    let (number, unit) = match value {
        0.0 => return "0".to_owned(),
        _ if value < 999.5 => return format!("{value:.0} ns"),
        _ if value < 999.5e3 => (value / 1e3, "us"),
        _ if value < 999.5e6 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let digits = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.digits$} {unit}")
}

/// An estimate as a whole number; what is no number at all is 0.
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_two_units() {
        for (millis, text) in
            [(400, "0.4 s"), (42_000, "42 s"), (187_000, "3m 07s"), (7_500_000, "2h 05m"), (273_600_000, "3d 04h")]
        {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        let shown: Vec<String> =
            [0.0, 1.0, 1023.0, 1024.0, 1536.0, 10_239.0, 1024.0 * 1023.9, 1e9, 1e30, -2048.0].map(bytes).into();
        assert_eq!(
            shown,
            [
                "0 B",
                "1 B",
                "1023 B",
                "1.00 KiB",
                "1.50 KiB",
                "10.0 KiB",
                "1.00 MiB",
                "954 MiB",
                "867361737988 EiB",
                "-2.00 KiB"
            ]
        );
    }

    #[test]
    fn whole_numbers_are_grouped_by_three() {
        assert_eq!([0, 12, 123, 1234, 1_234_567].map(grouped), ["0", "12", "123", "1,234", "1,234,567"]);
        assert_eq!(count(1, "block"), "1 block");
        assert_eq!(count(1000, "block"), "1,000 blocks");
        assert_eq!(whole(f64::NAN), 0);
    }

    #[test]
    fn times_of_calls_have_three_digits() {
        let times = [0.0, 1.0, 999.0, 999.6, 37_500.0, 999_600.0, 1_240_000.0, 31_500_000.0, 2.1e9];
        let texts = ["0", "1 ns", "999 ns", "1.00 us", "37.5 us", "1.00 ms", "1.24 ms", "31.5 ms", "2.10 s"];
        assert_eq!(times.map(nanoseconds), texts);
    }
}
