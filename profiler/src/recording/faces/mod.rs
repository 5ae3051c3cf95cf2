//! What is shown of a recording: each file is one reporter of an [`Analysis`](super::replay::analysis::Analysis).

pub mod json;
mod labels;
#[cfg(feature = "flamegraph")]
pub mod page;
pub mod text;
