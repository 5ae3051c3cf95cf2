//! Words for people: amounts and counts, text that comes from outside, and the patterns that people write.

pub mod figures;
#[cfg(feature = "flamegraph")]
pub(crate) mod markup;
pub(crate) mod pattern;
pub(crate) mod printable;
