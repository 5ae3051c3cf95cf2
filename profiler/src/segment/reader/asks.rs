//! How often the kernel is asked about a process's pages.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Between two times, the kernel is left alone for so many times as long as the processor was busy with it: that others
/// had the processor meanwhile is no cost, and figures would be old where most is going on.
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

    /// It was asked at a moment, and has answered by now.
    pub(super) fn asked(&mut self, begun: Begun) {
        let took = thread_time().saturating_sub(begun.busy);
        self.next = self.interval.map(|interval| begun.at + interval.max(took.saturating_mul(REST)));
    }
}

/// The moment at which the kernel is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Instant,
    /// What the thread had taken of a processor by then.
    busy: Duration,
}

impl Begun {
    /// Now.
    pub(super) fn now() -> Begun {
        Begun { at: Instant::now(), busy: thread_time() }
    }
}

/// What the calling thread has taken of a processor.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is busy with others makes no figure old.
    #[test]
    fn waiting_is_no_cost_and_working_is() {
        let interval = Duration::from_millis(20);
        let mut asks = Asks::default();
        assert!(asks.is_due());
        asks.every(interval);
        let begun = Begun::now();
        std::thread::sleep(interval * 2);
        asks.asked(begun);
        assert!(asks.is_due(), "it waited for twice the interval, and did next to nothing");
        let begun = Begun::now();
        while thread_time() < begun.busy + interval {
            std::hint::spin_loop();
        }
        asks.asked(begun);
        let next = asks.next.expect("it is known");
        assert!(next >= begun.at + interval * REST, "50 times 20 milliseconds later");
    }
}
