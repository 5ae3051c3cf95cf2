//! Whether a thread is so busy that its short lists are to grow.
//!
//! A class of which a thread has few blocks at a time comes to the end of its list again and again. New blocks make the
//! list longer, so that a refill serves more calls. But they take memory: in the end a slab of each class, of which the
//! thread needs a page. A thread that works without a pause gets them. One that wakes up now and then, as those of a
//! server do, makes do with what it has: its refills are no part of its time that anybody would notice.

use core::cell::Cell;

use crate::kernel::os;

/// Refills that found few blocks, between two looks at the clock.
const SHORT_LISTS: u32 = 64;
/// They take some 5 us. Where they come in this time or a longer one, they are a fiftieth of it at most.
const QUIET_NS: u64 = 250_000;

/// Of one heap. Zeroed memory is that of a thread which is not busy.
#[derive(Default)]
pub struct Thrift {
    short_lists: Cell<u32>,
    is_busy: Cell<bool>,
    /// When the clock was looked at last.
    looked_ns: Cell<u64>,
}

impl Thrift {
    /// To be asked at a refill that has found few blocks: whether it is to add new ones.
    pub fn is_busy(&self) -> bool {
        self.is_busy_by(|| os::clock_ns(libc::CLOCK_MONOTONIC))
    }

    fn is_busy_by(&self, clock_ns: impl FnOnce() -> u64) -> bool {
        let short_lists = self.short_lists.get() + 1;
        self.short_lists.set(short_lists % SHORT_LISTS);
        if short_lists == SHORT_LISTS {
            let now_ns = clock_ns();
            let took_ns = now_ns.saturating_sub(self.looked_ns.replace(now_ns));
            // Under valgrind everything takes fifty times as long.
            self.is_busy.set(took_ns < QUIET_NS || os::is_emulated());
        }
        self.is_busy.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many refills are to add blocks, which come at this distance from each other.
    fn busy(thrift: &Thrift, from_ns: u64, distance_ns: u64, refills: u64) -> usize {
        (0..refills).filter(|at| thrift.is_busy_by(|| from_ns + at * distance_ns)).count()
    }

    #[test]
    fn a_thread_is_busy_from_the_second_look_at_the_clock_on_and_until_it_pauses() {
        const SECOND: u64 = 1_000_000_000;
        let thrift = Thrift::default();
        assert_eq!(busy(&thrift, 100 * SECOND, 80, 127), 0);
        assert_eq!(busy(&thrift, 100 * SECOND + 127 * 80, 80, 1000), 1000);
        let round = u64::from(SHORT_LISTS);
        let rest = round - (1127 % round);
        assert_eq!(busy(&thrift, 101 * SECOND, 80, rest), rest as usize - 1, "the last one has seen the pause");
        assert_eq!(busy(&thrift, 102 * SECOND, QUIET_NS / round + 1, 10 * round), 0);
    }

    #[test]
    fn a_clock_that_goes_back_makes_it_busy_and_nothing_worse() {
        let thrift = Thrift::default();
        assert_eq!(busy(&thrift, 1 << 40, 1 << 20, 64), 0);
        assert_eq!(busy(&thrift, 0, 0, 64), 1);
    }
}
