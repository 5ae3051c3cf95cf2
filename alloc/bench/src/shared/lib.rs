//! The harness under the three benchmarks. Each says what its rows and its contestants are, how one of them is measured
//! in one row, and which tables and goals its figures make. The rest is here: rounds in which all take turns, what the
//! rounds come to, and the faces of that: JSON, tables on the terminal and as Markdown, and the base of a picture.

pub mod error;
pub mod goal;
pub mod harness;
pub mod machine;
pub mod options;
pub mod page;
pub mod plot;
pub mod progress;
pub mod report;
pub mod results;
pub mod rounds;
pub mod statistics;
pub mod table;

pub use error::Result;
