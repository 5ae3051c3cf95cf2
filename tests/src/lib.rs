//! What the end-to-end tests share. They run what a user runs: `poolscope`, `libpoolscope.so`, and programs that nobody
//! here wrote.
//!
//! `make test` builds the binaries, installs the tools, and runs several of these programs at a time
//! (`src/bin/run-tests.rs`). So a test may not count on a quiet machine: what it waits for, it waits for with a limit
//! that only a hang reaches. A test that misses one of them fails and says so. What no
//! package brings (a right that the machine refuses, a newer CPython) may be missing: such a test calls [`skip`], and
//! `make test` lists it in its summary.

pub mod artifacts;
pub mod calls;
pub mod compiler;
pub mod imports;
pub mod leak_scenarios;
pub mod pool;
pub mod pprof;
pub mod pprof_rules;
pub mod process;
pub mod pythons;
pub mod scratch;
pub mod terminal;
pub mod truth;

pub use artifacts::{gpu_library, library, poolscope, repository, sample};
pub use pool::{Pool, Segment};
pub use process::{Output, Program, Running};
pub use scratch::Scratch;

/// Says that the running test can't look at what it is for, and why. The line goes to `e2e-skipped` in the target
/// folder, which `make test` empties at its start and prints at its end.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let list = artifacts::release().with_file_name("e2e-skipped");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&list);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, format!("{test}: {why}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{} can't be written: {error}", list.display()));
}
