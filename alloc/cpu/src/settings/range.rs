//! Which values a setting takes, and how they are written.

use core::ffi::CStr;
use core::fmt::{self, Write};

use poolscope_wire::quantity::{Quantity, decimal};

use super::signal;
use super::values::{NEVER, NodeSet, Numa, Word};

/// Which values a setting takes. Each reads a text into a word, and writes a word as that text.
#[derive(Debug)]
pub enum Range {
    /// Bytes or a count.
    Of(Quantity),
    /// Milliseconds from `min` to `max`, or -1, which is never.
    Milliseconds {
        /// The fewest.
        min: u64,
        /// The most.
        max: u64,
    },
    /// 0 or 1.
    Switch,
    /// An absolute path. The word is the address of its text, 0 for the default.
    Folder {
        /// What the folder is when none is named.
        default: &'static str,
    },
    /// One of these names; the word is its place.
    OneOf(&'static [&'static str]),
    /// A [`Numa`].
    NumaPolicy,
    /// The number of a signal that a program can handle, or 0; names are read, too.
    Signal,
}

impl Range {
    /// The word of a text; `None` if it is none of the values.
    pub fn parse(&self, text: &CStr) -> Option<u64> {
        let bytes = text.to_bytes();
        let word = match self {
            Range::Of(quantity) => quantity.parse(bytes)?,
            Range::Milliseconds { .. } if bytes == b"-1" => NEVER,
            Range::Milliseconds { .. } => decimal(bytes)?,
            Range::Switch => match bytes {
                b"0" => 0,
                b"1" => 1,
                _ => return None,
            },
            Range::Folder { .. } => return bytes.starts_with(b"/").then(|| text.as_ptr().expose_provenance() as u64),
            Range::OneOf(names) => names.iter().position(|name| name.as_bytes() == bytes)? as u64,
            Range::NumaPolicy => match bytes {
                b"off" => Numa::Off,
                b"local" => Numa::Local,
                b"interleave" => Numa::Interleave,
                _ => Numa::Bind(NodeSet::parse(bytes.strip_prefix(b"bind:")?)?),
            }
            .to_word(),
            Range::Signal => signal::parse(bytes)?,
        };
        self.allows(word).then_some(word)
    }

    /// Whether a word is one of the values.
    pub fn allows(&self, word: u64) -> bool {
        match *self {
            Range::Of(quantity) => quantity.allows(word),
            Range::Milliseconds { min, max } => word == NEVER || (min..=max).contains(&word),
            Range::Switch => word <= 1,
            Range::Folder { .. } => {
                <Option<&'static CStr>>::from_word(word).is_none_or(|text| text.to_bytes().starts_with(b"/"))
            }
            Range::OneOf(names) => word < names.len() as u64,
            Range::NumaPolicy => Numa::from_word(word).to_word() == word,
            Range::Signal => word <= signal::LAST && !signal::has_no_use(word),
        }
    }

    /// A word as [`Range::parse`] reads it.
    pub fn show(&self, word: u64) -> impl fmt::Display {
        Shown { range: self, word }
    }
}

/// "bytes from 64K to 1G".
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Range::Of(quantity) => quantity.fmt(f),
            Range::Milliseconds { min, max } => {
                write!(f, "milliseconds from {min}")?;
                f.write_str(if min == 0 { " (at once)" } else { "" })?;
                write!(f, " to {max}, or -1 (never)")
            }
            Range::Switch => f.write_str("0 or 1"),
            Range::Folder { .. } => f.write_str("an absolute path"),
            Range::OneOf(names) => {
                for (at, name) in names.iter().enumerate() {
                    let last = at + 1 == names.len();
                    f.write_str(if at == 0 {
                        ""
                    } else if last {
                        " or "
                    } else {
                        ", "
                    })?;
                    f.write_str(name)?;
                }
                Ok(())
            }
            Range::NumaPolicy => {
                write!(f, "off, local, interleave, or bind: and nodes from 0 to {}, as bind:0,2-3", NodeSet::MAX)
            }
            Range::Signal => f.write_str("a signal that can be handled, as 12, USR2, SIGUSR2 or RTMIN+3, or 0"),
        }
    }
}

struct Shown<'a> {
    range: &'a Range,
    word: u64,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.range {
            Range::Of(quantity) => quantity.write(self.word, f),
            Range::Milliseconds { .. } if self.word == NEVER => f.write_str("-1"),
            Range::Milliseconds { .. } | Range::Switch | Range::Signal => write!(f, "{}", self.word),
            Range::Folder { default } => match <Option<&'static CStr>>::from_word(self.word) {
                Some(text) => Printable(text.to_bytes()).fmt(f),
                None => f.write_str(default),
            },
            Range::OneOf(names) => f.write_str(names.get(self.word as usize).unwrap_or(&"?")),
            Range::NumaPolicy => Numa::from_word(self.word).fmt(f),
        }
    }
}

/// Text from outside: what is not printable ASCII is shown as a question mark, and what is long is cut.
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0.iter().take(100) {
            f.write_char(if (b' '..=b'~').contains(&byte) { byte as char } else { '?' })?;
        }
        f.write_str(if self.0.len() > 100 { "..." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn parse(range: &Range, text: &str) -> Option<u64> {
        range.parse(&CString::new(text).unwrap())
    }

    #[test]
    fn bytes_take_a_binary_suffix_and_nothing_else() {
        let any = Range::Of(Quantity::Bytes { min: 0, max: u64::MAX });
        for (text, bytes) in
            [("512K", 512 << 10), ("1MiB", 1 << 20), ("0", 0), ("7B", 7), ("2g", 2 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(parse(&any, text), Some(bytes), "{text}");
        }
        for bad in ["", "abc", "K", "-1", "+1", "1P", "1KK", "1Ki", "99999999999999999999", "99999999T", "1 K", "1.5M"]
        {
            assert_eq!(parse(&any, bad), None, "{bad}");
        }
    }

    #[test]
    fn values_end_at_their_range() {
        let bytes = Range::Of(Quantity::Bytes { min: 64 << 10, max: 1 << 30 });
        assert_eq!(
            ["65535", "64K", "1G", "1073741825"].map(|text| parse(&bytes, text).is_some()),
            [false, true, true, false]
        );
        let power = Range::Of(Quantity::PowerOfTwo { min: 64 << 20, max: 1 << 40 });
        assert_eq!(
            ["32M", "64M", "96M", "1T", "2T"].map(|text| parse(&power, text).is_some()),
            [false, true, false, true, false]
        );
        let time = Range::Milliseconds { min: 1, max: 1000 };
        assert_eq!(
            ["-1", "0", "1", "1000", "1001", "-2"].map(|text| parse(&time, text).is_some()),
            [true, false, true, true, false, false]
        );
        let folder = Range::Folder { default: "/x" };
        assert_eq!(["/tmp", "tmp", ""].map(|text| parse(&folder, text).is_some()), [true, false, false]);
    }

    #[test]
    fn every_value_is_written_as_it_is_read() {
        let bytes = Range::Of(Quantity::Bytes { min: 0, max: u64::MAX });
        let time = Range::Milliseconds { min: 0, max: 3_600_000 };
        let names = Range::OneOf(&["off", "madvise"]);
        for (range, text) in [
            (&bytes, "0"),
            (&bytes, "1"),
            (&bytes, "1025"),
            (&bytes, "512K"),
            (&bytes, "256G"),
            (&time, "-1"),
            (&time, "10000"),
            (&Range::Switch, "1"),
            (&names, "madvise"),
            (&Range::NumaPolicy, "off"),
            (&Range::NumaPolicy, "interleave"),
            (&Range::NumaPolicy, "bind:0,2-3"),
        ] {
            assert_eq!(range.show(parse(range, text).unwrap()).to_string(), text);
        }
    }

    #[test]
    fn a_range_says_what_it_allows() {
        assert_eq!(Range::Of(Quantity::Bytes { min: 64 << 10, max: 1 << 30 }).to_string(), "bytes from 64K to 1G");
        assert_eq!(Range::OneOf(&["off", "madvise", "explicit"]).to_string(), "off, madvise or explicit");
        assert_eq!(
            Range::Milliseconds { min: 0, max: 9 }.to_string(),
            "milliseconds from 0 (at once) to 9, or -1 (never)"
        );
    }
}
