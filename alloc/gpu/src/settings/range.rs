//! Which values a setting takes, and how they are written:
//! as those of the host's pool are (`poolscope-cpu`, `settings/range.rs`).

use std::fmt;

use poolscope_wire::quantity::{Quantity, decimal};

/// A value that is kept as one word.
pub(super) trait Value {
    fn to_word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

impl Value for u64 {
    fn to_word(self) -> u64 {
        self
    }

    fn from_word(word: u64) -> u64 {
        word
    }
}

impl Value for usize {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> usize {
        word as usize
    }
}

impl Value for bool {
    fn to_word(self) -> u64 {
        u64::from(self)
    }

    fn from_word(word: u64) -> bool {
        word != 0
    }
}

impl Value for f64 {
    fn to_word(self) -> u64 {
        self.to_bits()
    }

    fn from_word(word: u64) -> f64 {
        f64::from_bits(word)
    }
}

/// Which values a setting takes. Each reads a text into a word, and writes a word as that text.
#[derive(Debug)]
pub enum Range {
    /// Bytes or a count.
    Of(Quantity),
    /// Milliseconds from `min` to `max`.
    Milliseconds {
        /// The fewest.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A number from 0 to 1.
    Fraction,
    /// 0 or 1; `false` and `true` are read, too.
    Switch,
}

impl Range {
    /// The word of a text; `None` if it is none of the values.
    pub fn parse(&self, text: &str) -> Option<u64> {
        let word = match self {
            Range::Of(quantity) => quantity.parse(text.as_bytes())?,
            Range::Milliseconds { .. } => decimal(text.as_bytes())?,
            Range::Fraction => text.parse::<f64>().ok()?.to_bits(),
            Range::Switch => match text {
                "0" | "false" => 0,
                "1" | "true" => 1,
                _ => return None,
            },
        };
        self.allows(word).then_some(word)
    }

    /// Whether a word is one of the values.
    pub fn allows(&self, word: u64) -> bool {
        match *self {
            Range::Of(quantity) => quantity.allows(word),
            Range::Milliseconds { min, max } => (min..=max).contains(&word),
            Range::Fraction => (0.0..=1.0).contains(&f64::from_bits(word)),
            Range::Switch => word <= 1,
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
            Range::Milliseconds { min, max } => write!(f, "milliseconds from {min} to {max}"),
            Range::Fraction => f.write_str("a number from 0 to 1"),
            Range::Switch => f.write_str("0 or 1"),
        }
    }
}

struct Shown<'a> {
    range: &'a Range,
    word: u64,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Range::Of(quantity) => quantity.write(self.word, f),
            Range::Milliseconds { .. } | Range::Switch => self.word.fmt(f),
            Range::Fraction => f64::from_bits(self.word).fmt(f),
        }
    }
}
