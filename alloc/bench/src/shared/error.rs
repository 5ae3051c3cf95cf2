//! What goes wrong, in words.

/// An error is a line for the person who started the benchmark.
pub type Result<T> = std::result::Result<T, String>;
