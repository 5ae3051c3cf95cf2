//! What a recording is made of: memory, sessions, threads, call paths and blocks in use.

pub mod call_paths;
pub mod lanes;
pub mod live_table;
pub mod place;
mod prefetch;
pub mod session;
