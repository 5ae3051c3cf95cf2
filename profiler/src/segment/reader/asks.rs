//! How often the kernel is asked about a process's pages.

use std::time::{Duration, Instant};

/// Between two times, the kernel is left alone for so many times as long as it took.
const REST: u32 = 50;

/// When the kernel was asked, and when it may be asked again. Until somebody sets an interval, it is asked each time.
#[derive(Debug, Default)]
pub(super) struct Asks {
    interval: Option<Duration>,
    next: Option<Instant>,
}

impl Asks {
    /// Sets the least time between two of them.
    pub(super) fn every(&mut self, interval: Duration) {
        self.interval = Some(interval);
    }

    /// Whether it may be asked now.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    /// It was asked, and has answered by now.
    pub(super) fn asked(&mut self, begun: Instant) {
        let took = begun.elapsed();
        self.next = self.interval.map(|interval| begun + interval.max(took.saturating_mul(REST)));
    }
}
