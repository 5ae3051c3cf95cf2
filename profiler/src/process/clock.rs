//! The machine's clocks. Those of this process may be ahead of them: a time namespace (time_namespaces(7)) moves
//! `CLOCK_MONOTONIC` and the time since boot. What segments say is the machine's.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

/// In the files of `/proc`, on every machine that this runs on (`USER_HZ`).
const TICKS_PER_SECOND: i64 = 100;

/// Nanoseconds that this process's clocks are ahead: `CLOCK_MONOTONIC`, and the time since boot.
fn ahead() -> (i64, i64) {
    static AHEAD: OnceLock<(i64, i64)> = OnceLock::new();
    // Linux before 5.6 has no such file.
    *AHEAD.get_or_init(|| parse(&std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default()))
}

fn parse(text: &str) -> (i64, i64) {
    let of = |clock: &str| {
        let mut fields = text.lines().find_map(|line| line.strip_prefix(clock))?.split_ascii_whitespace();
        let mut number = || fields.next()?.parse::<i64>().ok();
        Some(number()?.saturating_mul(1_000_000_000).saturating_add(number()?))
    };
    (of("monotonic").unwrap_or(0), of("boottime").unwrap_or(0))
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let ns = (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64);
    ns.saturating_add_signed(-ahead().0)
}

/// Clock ticks after the machine's boot, of those after this process's.
pub fn ticks_of_the_machine(ticks: u64) -> u64 {
    ticks.saturating_add_signed(-ahead().1 / (1_000_000_000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_be_ahead_or_behind() {
        let text = "monotonic      864000         5\nboottime       -10000         0\n";
        assert_eq!(parse(text), (864_000_000_000_005, -10_000_000_000_000));
        assert_eq!(parse(""), (0, 0));
    }
}
