//! A leak checker for Rust tests.
//!
//! ```
//! #[global_allocator]
//! static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
//!
//! # fn parse(text: &str) -> Vec<&str> { text.split(' ').collect() }
//! # fn main() { parsing_frees_everything() }
//! // `#[poolscope_heapcheck::test]` above a test does the same for its whole body.
//! fn parsing_frees_everything() {
//!     let _scope = poolscope_heapcheck::scope().max_bytes(64 << 10);
//!     parse("a text of some words");
//! }
//! ```
//!
//! Everything that is allocated between [`scope()`] and the end of the block, and that nobody has freed by then, fails
//! the test, with sizes and stacks. A scope is a thread's. Threads that are started in it are in it, too, and so are
//! futures that it watches ([`Scope::watch`]), whenever they are polled. What other threads allocate meanwhile, such as
//! tests that run in parallel, is not looked at; a block that another thread frees is freed.
//!
//! Some of what is left at the end is no leak:
//!
//! - What a static or a thread-local keeps that held nothing when the scope began: a `OnceLock`, a lazily made table.
//!   One that held something before and has grown is a leak.
//! - What the standard library keeps on purpose (the buffer of `stdout`, the output that the test harness captures).
//!   `poolscope check --list-rules` lists the rules.
//! - What [`Scope::suppress`] names, and as many bytes as [`Scope::allow`] accepts.

mod gather;
mod macros;
mod names;
#[doc(hidden)]
pub mod outcome;
mod roots;
mod threads;
mod verdict;
mod watch;

use std::panic::Location;

use poolscope_alloc::scope::{self, Handle, Scope as Recording};
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;

pub use poolscope_alloc::scope::Counts;
pub use poolscope_heapcheck_macros::test;
pub use watch::Watched;

use verdict::Limits;

/// A running check; its end is the check. Declare it first, so that it ends after what it watches.
#[derive(Debug)]
#[must_use = "a scope that is dropped at once checks nothing: bind it to a name such as `_scope`"]
pub struct Scope {
    recording: Recording,
    suppressions: Suppressions,
    /// What statics and thread-locals held before; `None` where leaks are not asked for.
    held: Option<roots::Held>,
    limits: Limits,
    began_at: &'static Location<'static>,
    process: u32,
    done: bool,
}

/// Begins a check of what this thread allocates, and the threads that it starts.
///
/// # Panics
///
/// If poolscope is not this program's global allocator, because no leak could then be seen.
#[track_caller]
pub fn scope() -> Scope {
    Scope::begin()
}

impl Scope {
    /// As [`scope()`].
    ///
    /// # Panics
    ///
    /// As [`scope()`].
    #[track_caller]
    pub fn begin() -> Scope {
        Scope::make(Recording::begin, true)
    }

    /// A check that this thread is not in: only of futures that it watches ([`Scope::watch`]), and of threads that
    /// enter it.
    ///
    /// # Panics
    ///
    /// As [`scope()`].
    #[track_caller]
    pub fn open() -> Scope {
        Scope::make(Recording::open, true)
    }

    /// A check of limits alone: what is left at its end is no matter.
    ///
    /// # Panics
    ///
    /// As [`scope()`].
    #[track_caller]
    pub fn counting() -> Scope {
        Scope::make(Recording::begin, false)
    }

    #[doc(hidden)]
    #[track_caller]
    pub fn counting_futures() -> Scope {
        Scope::make(Recording::open, false)
    }

    #[track_caller]
    fn make(begin: fn() -> Option<Recording>, leaks: bool) -> Scope {
        let out = scope::leave();
        assert!(is_seen(), "{}", verdict::NOT_THE_ALLOCATOR);
        threads::are_followed();
        threads::note_this_one();
        let suppressions = Suppressions::defaults();
        let held = leaks.then(roots::held);
        let began_at = Location::caller();
        drop(out);
        let recording = begin().expect("the pool has served this program before");
        let process = std::process::id();
        Scope { recording, suppressions, held, limits: Limits::default(), began_at, process, done: false }
    }

    /// Accepts blocks whose stack has a function, file or module that `pattern` matches, as a line `leak:PATTERN` of
    /// LeakSanitizer does: `*` stands for anything, `^` and `$` for the ends.
    ///
    /// # Panics
    ///
    /// If the pattern is empty.
    #[track_caller]
    pub fn suppress(mut self, pattern: &str) -> Self {
        let out = scope::leave();
        let added = self.suppressions.add(&format!("leak:{pattern}"), "suppress()");
        drop(out);
        if let Err(error) = added {
            self.done = true;
            panic!("{error}");
        }
        self
    }

    /// Accepts leaks of so many bytes together.
    pub fn allow(mut self, bytes: u64) -> Self {
        self.limits.allowed = bytes;
        self
    }

    /// Fails if more bytes than this were in use at a time, of what was allocated in the scope and in those in it.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.limits.max_bytes = Some(bytes);
        self
    }

    /// Fails if memory was asked for more often than this, in the scope and in those in it. A block whose size changes
    /// was asked for again.
    pub fn max_allocations(mut self, calls: u64) -> Self {
        self.limits.max_allocations = Some(calls);
        self
    }

    #[doc(hidden)]
    pub fn exact_allocations(mut self, calls: u64) -> Self {
        self.limits.exact_allocations = Some(calls);
        self
    }

    /// A future that is in the scope whenever it is polled, on whichever thread. What other futures on the same thread
    /// do between its polls is not.
    pub fn watch<F: Future>(&self, future: F) -> Watched<F> {
        Watched::new(future, self.recording.handle())
    }

    /// The scope's name, by which a thread that was there before enters it.
    pub fn handle(&self) -> Handle {
        self.recording.handle()
    }

    /// How often memory was asked for so far, and so on. `None` if more than 255 scopes are open.
    pub fn counts(&self) -> Option<Counts> {
        self.recording.counts()
    }

    /// Ends the check with a report of what was not freed instead of a panic. Limits are not looked at.
    pub fn finish(mut self) -> LeakReport {
        self.done = true;
        let _out = scope::leave();
        self.report().0
    }

    /// Ends the check here.
    ///
    /// # Panics
    ///
    /// As at the end of a block.
    #[track_caller]
    pub fn check(mut self) {
        self.done = true;
        let out = scope::leave();
        let failure = self.failure();
        drop(out);
        if let Some(failure) = failure {
            panic!("{failure}");
        }
    }

    /// Ends it without a check.
    pub fn abandon(mut self) {
        self.done = true;
    }

    /// What is left, and how many threads that were started in the scope still run.
    fn report(&self) -> (LeakReport, usize) {
        let scope = self.recording.handle();
        let running =
            if self.recording.counts().is_none_or(|counts| counts.blocks > 0) { threads::running(scope) } else { 0 };
        let report = gather::leaks(&self.recording, &self.suppressions, self.held.as_ref());
        threads::forget(scope);
        (report, running)
    }

    /// Why the test fails, if it does. The calling thread is in no scope.
    fn failure(&self) -> Option<String> {
        if self.process != std::process::id() {
            return Some(verdict::in_a_child(self.began_at));
        }
        let counts = self.recording.counts();
        let (report, running) = match self.held {
            Some(_) => self.report(),
            None => {
                self.recording.hand_over();
                (LeakReport { missed: self.recording.dropped(), ..LeakReport::default() }, 0)
            }
        };
        self.limits.failure(&report, counts, running, self.began_at)
    }
}

/// Whether the pool serves this program: a block of Rust's is one of the pool's.
fn is_seen() -> bool {
    let probe = std::hint::black_box(Box::new(0u8));
    scope::is_of_pool(std::ptr::from_ref::<u8>(&probe).addr())
}

impl Drop for Scope {
    /// # Panics
    ///
    /// If something leaked, or was over a limit, unless the test fails already.
    fn drop(&mut self) {
        if self.done || std::thread::panicking() {
            return;
        }
        let out = scope::leave();
        let failure = self.failure();
        drop(out);
        if let Some(failure) = failure {
            panic!("{failure}");
        }
    }
}
