//! Values as people write them: bytes, times, sizes of a screen.

use std::time::Duration;

use ratatui::layout::Size;

/// A number of bytes as people write it: `4096`, `512KiB`, `1M`; units are powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim().find(|c: char| !c.is_ascii_digit()).unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err("not a number of bytes: write 4096, 512KiB, 1M or 1GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "not a number of bytes: write 4096, 512KiB, 1M or 1GiB".to_owned())?;
    number.checked_mul(1 << shift).filter(|&n| n <= 1 << 46).ok_or_else(|| "more than 64 TiB".into())
}

/// The mean number of bytes between two samples; 0 and 1 both mean every allocation.
pub(crate) fn parse_period(text: &str) -> Result<u64, String> {
    parse_bytes(text).map(|period| period.max(1))
}

/// A time, `30` or `0.5`.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds: write 30 or 0.5".to_owned())?;
    if (0.01..=31_536_000.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 0.01 seconds and a year".into())
    }
}

/// How many are to be had at most: what was said, or what is usual, where 0 is all.
pub(crate) fn at_most(said: Option<usize>, usual: usize) -> usize {
    match said {
        Some(0) => usize::MAX,
        Some(most) => most,
        None => usual,
    }
}

/// A mask in hexadecimal digits, behind `0x` or not.
pub(crate) fn parse_mask(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|e| format!("write the bits as a hexadecimal number: {e}"))
}

/// `120x36`.
pub(crate) fn parse_size(text: &str) -> Result<Size, String> {
    let wrong = || "not a size: write COLUMNSxROWS, as 120x36".to_owned();
    let (width, height) = text.split_once('x').ok_or_else(wrong)?;
    let size = Size { width: width.parse().map_err(|_| wrong())?, height: height.parse().map_err(|_| wrong())? };
    if (1..=1000).contains(&size.width) && (1..=1000).contains(&size.height) {
        Ok(size)
    } else {
        Err("between 1x1 and 1000x1000".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("4096", 4096),
            ("512KiB", 512 << 10),
            ("1M", 1 << 20),
            ("2 mb", 2 << 20),
            ("1g", 1 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "abc", "-1", "1.5M", "1X", "99999999999999999999", "9999999G"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(parse_period("0"), Ok(1));
    }

    #[test]
    fn sizes_of_a_screen() {
        assert_eq!(parse_size("120x36"), Ok(Size { width: 120, height: 36 }));
        assert!(parse_size("120").is_err() && parse_size("0x1").is_err() && parse_size("9999x9").is_err());
    }
}
