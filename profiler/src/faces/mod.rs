//! What a profile is written as: each file is one reporter, which reads the model and changes nothing.

pub mod collapsed;
pub mod csv;
pub mod devices;
#[cfg(feature = "convert")]
pub mod dhat;
pub mod difference;
#[cfg(feature = "convert")]
pub mod firefox;
#[cfg(feature = "flamegraph")]
pub mod flamegraph;
#[cfg(feature = "json")]
pub mod json;
#[cfg(feature = "convert")]
pub mod perfetto;
#[cfg(feature = "pprof")]
pub mod pprof;
pub mod process;
pub mod text;
