//! What the end-to-end tests share. They run what a user runs: `poolscope`, `libpoolscope.so`, and programs that nobody
//! here wrote.
//!
//! `make test` builds the binaries and installs the tools. A test that misses one of them fails and says so: nothing
//! is skipped.

pub mod artifacts;
pub mod compiler;
pub mod pool;
pub mod pprof;
pub mod pprof_rules;
pub mod process;
pub mod scratch;
pub mod truth;

pub use artifacts::{gpu_library, library, poolscope, repository, sample};
pub use pool::Pool;
pub use process::{Output, Program, Running};
pub use scratch::Scratch;
