//! What the dashboard itself costs: processor time and memory, as the kernel counts them.

use std::time::{Duration, Instant};

/// What it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct OwnCost {
    /// Of one core, 0 to 1 and more, since the last time that it was looked at.
    pub(crate) cpu: f64,
    /// Its resident set, in bytes.
    pub(crate) rss: u64,
}

/// Processor time of this process so far.
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: the structure is plain numbers, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Resident bytes of this process; 0 if nobody says.
pub(crate) fn rss() -> u64 {
    poolscope_profiler::process::memory(std::process::id()).map_or(0, |memory| memory.rss)
}

/// Has what a reading frees serve the next one, whichever thread frees it, and goes back where it doesn't: the tables of
/// many call sites are megabytes, made anew at each reading by one thread and freed by another. Before there are
/// threads.
pub(crate) fn spare_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions. A value that is set stays, where the C library's own would go up to what was
    // freed last.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20);
    }
}

/// Gives the kernel back what lies free between blocks: symbols are read into much more memory than they keep.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions, and touches free blocks only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Looks now and then.
#[derive(Debug)]
pub(crate) struct Meter {
    at: Instant,
    cpu: Duration,
}

/// Between two looks.
const EVERY: Duration = Duration::from_secs(2);

impl Meter {
    /// From now on.
    pub(crate) fn new() -> Meter {
        Meter { at: Instant::now(), cpu: cpu_time() }
    }

    /// What it has cost since the last time, if that is long enough ago. Memory that it does not need goes back first.
    pub(crate) fn look(&mut self) -> Option<OwnCost> {
        let since = self.at.elapsed();
        if since < EVERY {
            return None;
        }
        give_back();
        let cpu = cpu_time();
        let share = cpu.saturating_sub(self.cpu).as_secs_f64() / since.as_secs_f64();
        *self = Meter { at: Instant::now(), cpu };
        Some(OwnCost { cpu: share, rss: rss() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_has_computed() {
        let before = cpu_time();
        let mut sum = 0u64;
        while cpu_time() < before + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        assert!(rss() > 1 << 20);
        let mut meter = Meter { at: Instant::now() - EVERY, cpu: before };
        let cost = meter.look().expect("it is time");
        assert!(cost.cpu >= 0.02 / (EVERY.as_secs_f64() * 1.5) && cost.rss > 1 << 20, "{cost:?}");
        assert_eq!(meter.look(), None);
    }
}
