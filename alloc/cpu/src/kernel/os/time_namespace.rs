//! How far the clocks of this process are from those of the machine: a time namespace (time_namespaces(7)) moves
//! `CLOCK_MONOTONIC` and the time since boot. What other processes are told is the machine's.

use super::{is_plain, proc_files};

/// Nanoseconds that this process's clocks are ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// `CLOCK_BOOTTIME`, from which the kernel counts a process's start.
    pub boottime: i64,
}

/// As the kernel says; nothing where it has no such namespaces (before Linux 5.6), and in a plain pool.
#[cold]
#[inline(never)]
pub fn ahead() -> Ahead {
    let mut ahead = Ahead::default();
    if !is_plain() {
        proc_files::for_each_line(c"/proc/self/timens_offsets", |line| {
            let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
            let (name, seconds, rest) = (fields.next(), number(fields.next()), number(fields.next()));
            let ns = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
            match name {
                Some(b"monotonic") => ahead.monotonic = ns,
                Some(b"boottime") => ahead.boottime = ns,
                _ => {}
            }
        });
    }
    ahead
}

/// A decimal number, which may be negative.
fn number(text: Option<&[u8]>) -> i64 {
    let text = text.unwrap_or_default();
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    let number = digits.fold(0i64, |number, digit| number.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')));
    if text.first() == Some(&b'-') { -number } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_be_negative() {
        assert_eq!([Some(&b"864000"[..]), Some(b"-10000"), None].map(number), [864_000, -10_000, 0]);
    }
}
