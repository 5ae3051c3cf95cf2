//! The pool's process-wide counters.

pub use poolscope_cpu::{TierCounter, counter, counters};
