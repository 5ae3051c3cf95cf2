//! How long a file system without room is left alone.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::kernel::os;

/// So long after there was none nobody asks again: to say so takes up to a tenth of a millisecond, and each allocation
/// that is recorded would ask.
pub const PAUSE_NS: u64 = 100_000_000;

/// What is known of the room for a segment's file.
#[derive(Default)]
pub(super) struct Room {
    /// When there was none, nanoseconds of `CLOCK_MONOTONIC`; 0 if there was some when last asked for.
    refused_at: AtomicU64,
}

impl Room {
    /// As much as the file system has room for, by what `ask` says of so many bytes: `most`, or a half of it, or a half
    /// of that, but no less than `least`. It is not asked soon after it had none.
    pub(super) fn find(&self, most: u64, least: u64, mut ask: impl FnMut(u64) -> bool) -> Option<u64> {
        let refused_at = self.refused_at.load(Ordering::Relaxed);
        if refused_at > 0 && now() < refused_at + PAUSE_NS {
            return None;
        }
        let mut len = most;
        let found = loop {
            if ask(len) {
                break Some(len);
            }
            if len <= least {
                break None;
            }
            len = (len / 2).next_multiple_of(4096).clamp(least, len - 1);
        };
        self.refused_at.store(if found.is_none() { now() } else { 0 }, Ordering::Relaxed);
        found
    }
}

fn now() -> u64 {
    os::clock_ns(libc::CLOCK_MONOTONIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn less_will_do_and_without_room_nobody_asks_again_at_once() {
        let (room, mut asked) = (Room::default(), Vec::new());
        let mut find = |free: u64| {
            room.find(13 * PAGE, 2 * PAGE, |length| {
                asked.push(length / PAGE);
                length <= free * PAGE
            })
        };
        assert_eq!([find(13), find(5), find(1), find(99)], [Some(13 * PAGE), Some(4 * PAGE), None, None]);
        std::thread::sleep(std::time::Duration::from_nanos(PAUSE_NS));
        assert_eq!(find(13), Some(13 * PAGE));
        assert_eq!(asked, [13, 13, 7, 4, 13, 7, 4, 2, 13]);
    }

    #[test]
    fn whatever_is_asked_for_the_search_ends() {
        for most in [0, 1, PAGE - 1, PAGE, 3 * PAGE, u64::MAX / 2] {
            for least in [0, 1, PAGE, 2 * PAGE] {
                assert_eq!(Room::default().find(most, least, |_| false), None);
            }
        }
    }
}
