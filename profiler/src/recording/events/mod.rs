//! What a recording is made of: memory, sessions, threads, call paths and blocks in use.

pub(crate) mod call_paths;
pub(crate) mod functions;
pub(crate) mod lanes;
pub(crate) mod live_table;
pub(crate) mod place;
mod processor;
pub mod session;
