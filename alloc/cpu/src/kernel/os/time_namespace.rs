//! How far the clocks of this process are from those of the machine: a time namespace (time_namespaces(7)) moves
//! `CLOCK_MONOTONIC` and the time since boot. What other processes are told is the machine's.

use super::read_file;

/// Nanoseconds that this process's clocks are ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// `CLOCK_MONOTONIC`.
    pub monotonic: i64,
    /// `CLOCK_BOOTTIME`, from which the kernel counts a process's start.
    pub boottime: i64,
}

/// As the kernel says; nothing where it has no such namespaces (before Linux 5.6), and in a plain pool.
#[inline(never)]
pub fn ahead() -> Ahead {
    let mut text = [0; 128];
    let len = read_file(c"/proc/self/timens_offsets", &mut text);
    let [monotonic, boottime] = parse(text.get(..len).unwrap_or_default());
    Ahead { monotonic, boottime }
}

/// Of two lines, each of a clock, seconds and nanoseconds.
fn parse(text: &[u8]) -> [i64; 2] {
    let (mut numbers, mut at) = ([0i64; 4], 0);
    for word in text.split(u8::is_ascii_whitespace) {
        let (sign, digits) = if let [b'-', digits @ ..] = word { (-1, digits) } else { (1, word) };
        if digits.first().is_some_and(u8::is_ascii_digit) {
            let number = digits.iter().fold(0i64, |n, digit| n.wrapping_mul(10).wrapping_add(i64::from(digit & 15)));
            numbers[at % 4] = sign * number;
            at += 1;
        }
    }
    let [monotonic, monotonic_ns, boottime, boottime_ns] = numbers;
    let ns = |seconds: i64, ns| seconds.wrapping_mul(1_000_000_000).wrapping_add(ns);
    [ns(monotonic, monotonic_ns), ns(boottime, boottime_ns)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_be_ahead_or_behind() {
        let text = b"monotonic      864000         5\nboottime       -10000         0\n";
        assert_eq!(parse(text), [864_000_000_000_005, -10_000_000_000_000]);
        assert_eq!(parse(b""), [0, 0]);
    }
}
