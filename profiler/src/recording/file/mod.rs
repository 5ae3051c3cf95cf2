//! The file of a recording: its format, who writes it, who reads it, and how a part is added.

pub mod append;
pub(crate) mod format;
pub mod reader;
pub(crate) mod writer;

pub use format::{OLDEST_VERSION, VERSION};
