//! A leak checker for Rust tests.
//!
//! ```
//! #[global_allocator]
//! static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
//!
//! # fn main() { frees_what_it_allocates() }
//! // In a test:
//! fn frees_what_it_allocates() {
//!     let _scope = poolscope_heapcheck::scope();
//!     drop(vec![0; 1000]);
//! }
//! ```
//!
//! Everything that *this thread* allocates between [`scope`] and the end of the block, and that nobody has freed by
//! then, fails the test, with sizes and stacks. What other threads allocate meanwhile, such as tests that run in
//! parallel, is not looked at; a block that another thread frees is freed.
//!
//! Memory that the standard library keeps on purpose (the buffer of `stdout`, the output that the test harness
//! captures) is suppressed by a table of rules. What a program itself keeps for good, such as a `OnceLock` that is
//! filled inside the scope, is reported: fill it before, or name it in [`Scope::suppress`].

mod gather;

use poolscope_alloc::scope::Scope as Recording;
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;

/// A running check; its end is the check. Declare it first, so that it ends after what it watches.
#[derive(Debug)]
#[must_use = "a scope that is dropped at once checks nothing: bind it to a name such as `_scope`"]
pub struct Scope {
    recording: Recording,
    suppressions: Suppressions,
    done: bool,
}

/// Begins a check of what this thread allocates.
///
/// # Panics
///
/// If poolscope is not this program's global allocator, because no leak could then be seen.
pub fn scope() -> Scope {
    let suppressions = Suppressions::defaults();
    let Some(recording) = Recording::begin() else {
        panic!(
            "poolscope is not the allocator of this program, so no leak can be seen. Add to the test's crate:\n\
             #[global_allocator]\n\
             static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;"
        );
    };
    Scope { recording, suppressions, done: false }
}

impl Scope {
    /// Accepts blocks whose stack has a function, file or module that `pattern` matches, as a line `leak:PATTERN` of
    /// LeakSanitizer does: `*` stands for anything, `^` and `$` for the ends.
    ///
    /// # Panics
    ///
    /// If the pattern is empty.
    pub fn suppress(mut self, pattern: &str) -> Self {
        self.recording.pause();
        let added = self.suppressions.add(&format!("leak:{pattern}"), "suppress()");
        self.recording.resume();
        if let Err(error) = added {
            panic!("{error}");
        }
        self
    }

    /// Ends the check with a report instead of a panic.
    pub fn finish(mut self) -> LeakReport {
        self.done = true;
        self.report()
    }

    fn report(&self) -> LeakReport {
        self.recording.pause();
        gather::leaks(&self.recording, &self.suppressions)
    }
}

impl Drop for Scope {
    /// # Panics
    ///
    /// If something leaked, unless the test fails already.
    fn drop(&mut self) {
        if self.done || std::thread::panicking() {
            return;
        }
        let report = self.report();
        if report.has_leaks() || report.missed > 0 {
            panic!("this scope leaked:\n{}", report.to_text());
        }
    }
}
