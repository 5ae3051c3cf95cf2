//! What a profile is written as: each file is one reporter, which reads the model and changes nothing.

pub mod devices;
pub mod difference;
pub mod flamegraph;
pub mod pprof;
pub mod report;
