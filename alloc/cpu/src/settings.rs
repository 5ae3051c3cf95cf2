//! Settings from the environment, read once at the first allocation.

use core::ffi::{CStr, c_char};

use crate::message::Message;
use crate::os;

/// A row of the table of settings.
pub struct SettingInfo {
    /// Environment variable.
    pub name: &'static CStr,
    /// What holds when it is not set, or not valid.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// Every environment variable that the pool reads.
pub const SETTINGS: [SettingInfo; 4] = [
    SettingInfo {
        name: c"POOLSCOPE_PERIOD",
        default: "512K",
        help: "Mean bytes between two samples, with an optional K, M or G; 0 or 1 records every allocation.",
    },
    SettingInfo {
        name: c"POOLSCOPE_DIR",
        default: "/dev/shm/poolscope-UID",
        help: "Folder of the segments; made with mode 0700 if it is missing.",
    },
    SettingInfo { name: c"POOLSCOPE_KEEP", default: "0", help: "1 keeps the segment after a normal exit." },
    SettingInfo {
        name: c"POOLSCOPE_VERBOSE",
        default: "0",
        help: "1 says on standard error when the pool has to do without something, such as its segment.",
    },
];

/// Mean bytes between two samples when nothing else is said: that of gperftools, jemalloc and Go.
pub const DEFAULT_PERIOD: u64 = 512 * 1024;
const MAX_PERIOD: u64 = 1 << 40;

/// The settings in force.
#[derive(Clone, Copy)]
pub struct Settings {
    /// Mean bytes between two samples; at most 1 when every allocation is recorded.
    pub period: u64,
    /// Folder of the segments.
    pub dir: Option<&'static CStr>,
    /// Keep the segment at exit.
    pub keep: bool,
    /// Say what is missing.
    pub verbose: bool,
    /// Drawn at random for this image.
    pub generation: u64,
}

impl Settings {
    /// What holds without an environment.
    pub const fn default() -> Self {
        Settings { period: DEFAULT_PERIOD, dir: None, keep: false, verbose: false, generation: 0 }
    }

    /// Reads the environment; names every bad value on standard error and uses the default for it.
    pub fn from_environment() -> Self {
        let mut settings = Settings::default();
        settings.generation = os::random_seed();
        let [period, dir, keep, verbose] = &SETTINGS;
        if let Some(value) = get(period.name) {
            match parse_bytes(value.to_bytes()) {
                Some(bytes) if bytes <= MAX_PERIOD => settings.period = bytes,
                _ => complain(period, value),
            }
        }
        if let Some(value) = get(dir.name) {
            if value.to_bytes().starts_with(b"/") {
                settings.dir = Some(value);
            } else {
                complain(dir, value);
            }
        }
        settings.keep = switch(keep);
        settings.verbose = switch(verbose);
        settings
    }
}

fn switch(setting: &SettingInfo) -> bool {
    let Some(value) = get(setting.name) else { return false };
    match value.to_bytes() {
        b"0" | b"" => false,
        b"1" => true,
        _ => {
            complain(setting, value);
            false
        }
    }
}

#[cold]
fn complain(setting: &SettingInfo, value: &CStr) {
    Message::new("")
        .bytes(setting.name.to_bytes())
        .text("=")
        .bytes(value.to_bytes().get(..64).unwrap_or(value.to_bytes()))
        .text(" is not valid, ")
        .text(setting.default)
        .text(" is used. ")
        .text(setting.help)
        .print();
}

/// Bytes with an optional suffix K, M or G, which may be followed by `iB` or `B`.
fn parse_bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut value = 0u64;
    for &digit in text.get(..digits).filter(|digits| !digits.is_empty())? {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    let shift = match &text[digits..] {
        b"" | b"B" => 0,
        b"K" | b"k" | b"KiB" | b"KB" => 10,
        b"M" | b"m" | b"MiB" | b"MB" => 20,
        b"G" | b"g" | b"GiB" | b"GB" => 30,
        _ => return None,
    };
    value.checked_mul(1 << shift)
}

/// An environment variable; none in a set-uid program, whose caller must not steer it.
fn get(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: getauxval and getenv read memory that the C library keeps; the value lives as long as the process
    // unless the program changes this very variable, and it is read at once or (the folder) compared as it is.
    unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        let value: *const c_char = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_take_a_binary_suffix_and_nothing_else() {
        assert_eq!(parse_bytes(b"512K"), Some(512 * 1024));
        assert_eq!(parse_bytes(b"1MiB"), Some(1 << 20));
        assert_eq!(parse_bytes(b"0"), Some(0));
        for bad in [&b""[..], b"abc", b"-1", b"1T", b"99999999999999999999", b"1 K"] {
            assert_eq!(parse_bytes(bad), None);
        }
    }
}
