//! A program that is busy for a while, to see what an attached dashboard costs it.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::calls::Linked;
use crate::random::Replacement;
use crate::single::Workload;

/// Prints a line each 100 ms: the time since the start in milliseconds, and the replacements since the last line.
pub fn run(duration: Duration) {
    const SLOT: Duration = Duration::from_millis(100);
    let start = Instant::now();
    let mut replacement = Replacement::<Linked>::new(4096, 8, 511, 0);
    let (mut out, mut next, mut done) = (std::io::stdout(), SLOT, 0);
    while start.elapsed() < duration {
        done += replacement.run(2000);
        let now = start.elapsed();
        if now >= next {
            // One write, flushed at once: the reader is another process.
            let _ = writeln!(out, "{} {done}", now.as_millis()).and_then(|()| out.flush());
            (done, next) = (0, now + SLOT);
        }
    }
}
