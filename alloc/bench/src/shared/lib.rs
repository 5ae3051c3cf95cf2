//! What the benchmarks of host and device memory share: the machine that figures come from, what rounds come to, pages
//! that figures are put into, and the colours of pictures.

pub mod machine;
pub mod page;
pub mod palette;
pub mod statistics;

/// An error is a line for the person who started the benchmark.
pub type Result<T> = std::result::Result<T, String>;
