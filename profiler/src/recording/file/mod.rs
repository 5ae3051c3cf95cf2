//! The file of a recording: its format, who writes it, who reads it, and how a part is added.

pub mod append;
pub mod format;
pub mod reader;
pub mod writer;
