//! What a scope is held to, and what a test that it fails says.

use std::fmt::Write as _;
use std::panic::Location;

use poolscope_alloc::scope::Counts;
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::words::figures::{count, grouped};

pub(crate) const NOT_THE_ALLOCATOR: &str = "poolscope is not the allocator of this program, so no leak can be seen. Add to the test's crate:\n\
     #[global_allocator]\n\
     static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;";

/// Limits of a scope.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limits {
    /// Bytes of leaks that are accepted.
    pub(crate) allowed: u64,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_allocations: Option<u64>,
    pub(crate) exact_allocations: Option<u64>,
}

impl Limits {
    fn are_given(&self) -> bool {
        [self.max_bytes, self.max_allocations, self.exact_allocations].iter().any(Option::is_some)
    }

    /// Why a test fails with this report, with these counts, and with threads of the scope that still run. `None` if it
    /// does not.
    pub(crate) fn failure(
        &self,
        report: &LeakReport,
        counts: Option<Counts>,
        running: usize,
        began_at: &Location<'_>,
    ) -> Option<String> {
        let mut failure = String::new();
        if counts.is_none() && self.are_given() {
            failure.push_str(
                "this scope was not counted: more than 255 were open at a time, so its limits hold nothing\n",
            );
        }
        let Counts { allocations: calls, peak, .. } = counts.unwrap_or_default();
        if let Some(limit) = self.max_bytes.filter(|&limit| peak > limit) {
            let _ = writeln!(
                failure,
                "this scope had {} B in use at its peak, and may have {}",
                grouped(peak),
                grouped(limit)
            );
        }
        if let Some(limit) = self.max_allocations.filter(|&limit| calls > limit) {
            let calls = count(calls, "time");
            let _ = writeln!(failure, "this scope asked for memory {calls}, and may do so {}", count(limit, "time"));
        }
        if let Some(expected) = self.exact_allocations.filter(|&expected| counts.is_some() && calls != expected) {
            let calls = count(calls, "time");
            let _ =
                writeln!(failure, "this scope asked for memory {calls}, and should do so {}", count(expected, "time"));
        }
        let is_over = !failure.is_empty();
        // A block of no bytes leaks, too.
        let leaks = report.has_leaks() && (self.allowed == 0 || report.bytes() > self.allowed);
        if leaks {
            failure.push_str("this scope leaked");
            if self.allowed > 0 {
                let _ = write!(failure, " more than the {} B that it may", grouped(self.allowed));
            }
            let _ = write!(failure, ":\n{}", report.to_text());
        } else if report.missed > 0 {
            let missed = count(report.missed, "block");
            let _ = writeln!(failure, "{missed} found no room in the records, so nothing can be said of this scope");
        }
        if failure.is_empty() {
            return None;
        }
        let _ = writeln!(failure, "\nThe scope began at {began_at}.");
        if running > 0 {
            let threads = count(running as u64, "thread");
            let _ = writeln!(failure, "{threads} that it started still ran at its end: join them in it.");
        }
        if leaks {
            let (name, bytes) = (known_name(report), report.bytes());
            let _ = writeln!(
                failure,
                "What lives on until the end of the test: drop it before the scope ends, or declare it before the \
                 scope begins.\n\
                 What is kept on purpose: .suppress({name:?}) leaves it out by a name in its stack, .allow({bytes}) \
                 accepts so many bytes."
            );
        }
        if is_over {
            failure.push_str("Who asked for the memory: run the test under `poolscope record --`.\n");
        }
        Some(failure)
    }
}

/// A function in the largest leak's stack that a rule could name.
fn known_name(report: &LeakReport) -> &str {
    let asked = report.leaks.first().and_then(|leak| leak.frames.get(leak.asked));
    let path = asked.map_or("", |frame| frame.name.as_str());
    // A closure has the name of the function that it stands in, and a part of its own.
    let has_a_name = |part: &&str| !part.is_empty() && !part.starts_with(['[', '{']);
    path.rsplit("::").find(has_a_name).unwrap_or("NAME")
}

pub(crate) fn in_a_child(began_at: &Location<'_>) -> String {
    format!(
        "the scope that began at {began_at} is the parent's: in a forked child nothing can be said of it. Leave the \
         child by _exit, or begin a scope there."
    )
}
