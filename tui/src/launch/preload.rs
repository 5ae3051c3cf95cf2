//! The environment of a program on the pool.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The command with the library preloaded, before what is preloaded already.
pub(crate) fn command(program: &[OsString], library: &Path, period: Option<u64>) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    command.env("LD_PRELOAD", preload(library, std::env::var_os("LD_PRELOAD").as_deref()));
    if let Some(period) = period {
        command.env("POOLSCOPE_PERIOD", period.to_string());
    }
    command
}

fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

/// A number of bytes as people write it: `4096`, `512KiB`, `1M`; units are powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim().find(|c: char| !c.is_ascii_digit()).unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("not a number of bytes: write 4096, 512KiB, 1M or 1GiB".into()),
    };
    let number: u64 = number.parse().map_err(|_| "not a number of bytes: write 4096, 512KiB, 1M or 1GiB".to_owned())?;
    number.checked_mul(1 << shift).filter(|&n| n <= 1 << 40).ok_or_else(|| "more than 1 TiB".into())
}

/// The mean number of bytes between two samples; 0 and 1 both mean every allocation.
pub(crate) fn parse_period(text: &str) -> Result<u64, String> {
    parse_bytes(text).map(|period| period.max(1))
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
    fn the_library_comes_before_what_is_preloaded_already() {
        let library = Path::new("/lib/libpoolscope.so");
        assert_eq!(preload(library, None), "/lib/libpoolscope.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/lib/libpoolscope.so");
        assert_eq!(preload(library, Some(OsStr::new("a.so b.so"))), "/lib/libpoolscope.so:a.so b.so");
    }
}
