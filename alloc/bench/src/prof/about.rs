//! What is known of a run besides its rows.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::scrape::ScrapeCost;

/// The whole run: what every report is made from. Rows are programs, and contestants are the tools that look at them.
pub type Results = poolscope_bench::results::Results<About>;

#[derive(Serialize)]
pub struct About {
    /// The machine's load when it began: what else ran.
    pub load: String,
    /// Pairs of allocation and free in a program, where they are known.
    pub pairs: BTreeMap<&'static str, u64>,
    pub scrape: Option<ScrapeCost>,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "load at the start {}", self.load)
    }
}

/// What programs without a profiler on the C library's own allocator take is what all are held against.
pub const BASE: &str = "glibc";
