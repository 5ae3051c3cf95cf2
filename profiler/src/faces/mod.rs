//! What a profile is written as: each file is one reporter, which reads the model and changes nothing.

pub mod devices;
pub mod difference;
#[cfg(feature = "flamegraph")]
pub mod flamegraph;
#[cfg(feature = "json")]
pub mod json;
#[cfg(feature = "pprof")]
pub mod pprof;
pub mod process;
pub mod text;
