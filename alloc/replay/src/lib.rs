//! Recorded traces of allocations, on poolscope's device pool and on other ways to place blocks.
//!
//! It is what benchmarks, `poolscope bench gpu` and `poolscope whatif` are made of; a program on the pool links none of
//! it. Layers, each of which knows only those before it:
//!
//! - `trace`: what a program allocated and freed, in a file
//! - `synthetic`: traces that are made from the shapes of models
//! - `playback`: a trace on a [`Policy`], and what a pass of it did
//! - `policies`: the ways to place blocks
//! - `at_work`: a policy where streams are behind the host
//! - `trial`: one of them tried on a trace, cold and warm

mod at_work;
mod playback;
pub mod policies;
pub mod synthetic;
mod trace;
mod trial;

pub use at_work::AtWork;
pub use playback::{Latencies, LoopCost, Pass, Playback, Policy, PolicyError, PolicyStats, Replay, ReplayError};
pub use trace::{Trace, TraceBuilder, TraceError};
pub use trial::{Trial, TrialPass};
