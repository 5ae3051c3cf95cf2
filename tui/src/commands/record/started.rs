//! What a recorded command started: a launcher does hardly anything itself, and who records it is to hear so.

use std::time::{Duration, Instant};

use poolscope_profiler::process;
use poolscope_profiler::process::family::{self, Child};
use poolscope_profiler::words::figures;

/// Time to the first look at what was started. Each next one comes after twice as long, up to a second.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(1);
/// Looks take one part in so many of the time, on a machine with many processes.
const PART: u32 = 100;

/// The largest process that a command has started.
pub(super) struct Started {
    pid: u32,
    looked: Instant,
    wait: Duration,
    /// The command's own resident set at its most, and that of the largest that it started.
    own: u64,
    largest: Option<Child>,
}

impl Started {
    pub(super) fn by(pid: u32) -> Self {
        Started { pid, looked: Instant::now(), wait: FIRST, own: 0, largest: None }
    }

    /// To be called now and then.
    pub(super) fn look(&mut self) {
        if self.looked.elapsed() < self.wait {
            return;
        }
        let begun = Instant::now();
        self.own = self.own.max(process::memory(self.pid).map_or(0, |memory| memory.rss));
        let largest = family::children(self.pid).into_iter().max_by_key(|child| child.rss);
        let larger = |child: &Child| self.largest.as_ref().is_none_or(|before| child.rss > before.rss);
        if let Some(child) = largest.filter(larger) {
            self.largest = Some(child);
        }
        // The recorded program may wait for its recorder meanwhile.
        self.wait = (2 * self.wait).min(LONGEST).max(PART * begun.elapsed());
        self.looked = Instant::now();
    }

    /// What to say of it, if it was larger than the command itself.
    pub(super) fn remark(&self) -> Option<String> {
        let child = self.largest.as_ref().filter(|child| child.rss > self.own)?;
        Some(format!(
            "{} ({}), which it started, is not recorded and had {} of memory, more than itself: record that program, \
             or that process by its id",
            child.name,
            child.pid,
            figures::bytes(child.rss as f64)
        ))
    }
}
