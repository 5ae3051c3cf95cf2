//! How much free memory may stay resident: a smooth decay.
//!
//! Memory that became free in one step of time may stay whole at first, and not at all after the delay; in between, its
//! share falls along the smoothstep curve, slow, fast and slow again (jemalloc's decay, `decay.c`, has this form). What
//! is used again meanwhile lowers the free memory below what is allowed, and then nothing is released: a program that
//! frees and allocates in waves keeps its memory.

/// Steps that the delay is divided into.
const STEPS: usize = 16;

/// The free memory of the last steps, by when it became free.
pub struct Decay {
    /// Bytes that became free in each step, the latest at `newest`.
    freed: [usize; STEPS],
    newest: usize,
    /// When the latest step began, in milliseconds; 0 before the first.
    began_ms: u64,
    /// What was allowed at the end of the last look.
    last_allowed: usize,
}

impl Decay {
    /// Nothing seen yet.
    pub const fn new() -> Self {
        Decay { freed: [0; STEPS], newest: 0, began_ms: 0, last_allowed: 0 }
    }

    /// How much of `free` bytes may stay at the time `now_ms`, with a delay of `delay_ms`.
    pub fn allowed(&mut self, now_ms: u64, delay_ms: u64, free: usize) -> usize {
        let step = (delay_ms / STEPS as u64).max(1);
        let passed = if self.began_ms == 0 { 0 } else { (now_ms - self.began_ms) / step };
        self.began_ms = if self.began_ms == 0 { now_ms } else { self.began_ms + passed * step };
        for _ in 0..passed.min(STEPS as u64) {
            self.newest = (self.newest + 1) % STEPS;
            self.freed[self.newest] = 0;
        }
        self.freed[self.newest] += free.saturating_sub(self.last_allowed);
        let share = |age: usize| {
            let left = 1.0 - age as f64 / STEPS as f64;
            left * left * (3.0 - 2.0 * left)
        };
        let allowed: f64 =
            (0..STEPS).map(|age| self.freed[(self.newest + STEPS - age) % STEPS] as f64 * share(age)).sum();
        self.last_allowed = (allowed as usize).min(free);
        self.last_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every `tick` milliseconds from `from` to `to`, releasing what is not allowed: what is left.
    fn run(decay: &mut Decay, (from, to): (u64, u64), tick: u64, mut free: usize) -> usize {
        for now in (from..=to).step_by(tick as usize) {
            let allowed = decay.allowed(now, 10_000, free);
            assert!(allowed <= free);
            free = allowed;
        }
        free
    }

    #[test]
    fn free_memory_is_all_gone_after_the_delay_and_most_of_it_stays_at_first() {
        let mut decay = Decay::new();
        let free = 1 << 30;
        let first = run(&mut decay, (1000, 2000), 500, free);
        assert!(first > free * 9 / 10, "{first}");
        let half = run(&mut decay, (2500, 6000), 500, first);
        assert!((free / 4..free * 3 / 4).contains(&half), "{half}");
        assert_eq!(run(&mut decay, (6500, 11_600), 500, half), 0);
    }

    #[test]
    fn memory_that_is_used_in_waves_is_kept() {
        let mut decay = Decay::new();
        for wave in 0..50 {
            let now = 1000 + wave * 1000;
            // Free for half a second, in use for half a second.
            let kept = decay.allowed(now, 10_000, 100 << 20);
            assert!(kept > 95 << 20, "{kept}");
            decay.allowed(now + 500, 10_000, 0);
        }
    }

    #[test]
    fn a_pause_longer_than_the_delay_lets_everything_go() {
        let mut decay = Decay::new();
        decay.allowed(1000, 10_000, 1 << 30);
        assert_eq!(decay.allowed(100_000, 10_000, 1 << 30), 0);
    }
}
