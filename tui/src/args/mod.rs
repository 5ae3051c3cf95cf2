//! Options that several commands share, and how their values are written.

mod format;
pub(crate) mod lsan;
mod memory;
pub(crate) mod token;
mod values;

pub(crate) use format::{Format, Origin};
pub(crate) use memory::{MemoryArgs, MetricName};
pub(crate) use values::{at_most, parse_bytes, parse_mask, parse_period, parse_seconds, parse_size};
