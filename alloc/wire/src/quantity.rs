//! Numbers and bytes as settings write them: `512K`, `2G`, `100`.

use core::fmt;

/// Bytes with the largest suffix that loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

const SUFFIXES: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        let (suffix, shift) = SUFFIXES.into_iter().find(|&(_, shift)| fits(shift)).unwrap_or(("", 0));
        write!(f, "{}{suffix}", self.0 >> shift)
    }
}

/// Which numbers a setting takes, and in which unit they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes from `min` to `max`.
    Bytes {
        /// The fewest.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A power of two of bytes from `min` to `max`.
    PowerOfTwo {
        /// The fewest.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A count from `min` to `max`.
    Number {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
}

impl Quantity {
    /// The number of a text; `None` if it is none of these.
    pub fn parse(self, text: &[u8]) -> Option<u64> {
        let number = match self {
            Quantity::Bytes { .. } | Quantity::PowerOfTwo { .. } => parse_bytes(text)?,
            Quantity::Number { .. } => decimal(text)?,
        };
        self.allows(number).then_some(number)
    }

    /// Whether a number is one of these.
    pub fn allows(self, number: u64) -> bool {
        match self {
            Quantity::Bytes { min, max } | Quantity::Number { min, max } => (min..=max).contains(&number),
            Quantity::PowerOfTwo { min, max } => (min..=max).contains(&number) && number.is_power_of_two(),
        }
    }

    /// Writes a number as [`Quantity::parse`] reads it.
    pub fn write(self, number: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Bytes { .. } | Quantity::PowerOfTwo { .. } => write!(f, "{}", Bytes(number)),
            Quantity::Number { .. } => write!(f, "{number}"),
        }
    }
}

/// "bytes from 64K to 1G".
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Quantity::Bytes { min, max } => write!(f, "bytes from {} to {}", Bytes(min), Bytes(max)),
            Quantity::PowerOfTwo { min, max } => {
                write!(f, "a power of two of bytes from {} to {}", Bytes(min), Bytes(max))
            }
            Quantity::Number { min, max } => write!(f, "a number from {min} to {max}"),
        }
    }
}

/// Bytes with an optional suffix K, M, G or T, which may be followed by `iB` or `B`.
pub fn parse_bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix {
        b"" | b"B" => 0,
        [letter] | [letter, b'B'] | [letter, b'i', b'B'] => {
            let letter = [letter.to_ascii_uppercase()];
            SUFFIXES.into_iter().find(|(suffix, _)| suffix.as_bytes() == letter)?.1
        }
        _ => return None,
    };
    decimal(number)?.checked_mul(1 << shift)
}

/// A number in decimal digits, nothing else.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        byte.is_ascii_digit().then_some(())?;
        value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}
