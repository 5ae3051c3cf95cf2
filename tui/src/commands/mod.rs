//! One file for each command.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod convert;
mod dashboard_cost;
pub(crate) mod diff;
pub(crate) mod dump;
pub(crate) mod flamegraph;
pub(crate) mod gc;
mod gpu_trace;
pub(crate) mod help;
pub(crate) mod leaks;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod tensors;
pub(crate) mod top;
pub(crate) mod watch;
pub(crate) mod whatif;
