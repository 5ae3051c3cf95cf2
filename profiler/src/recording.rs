//! Recordings: every allocation and free of a program, in a file.
//!
//! ```text
//! program -> rings -> Tap -> Recorder: Matcher, CallPaths -> Writer -> FILE -> Reader -> Replay -> Analysis -> report
//!            (words)                   (one order, blocks)             (columns)          (profiles at any moment)
//! ```
//!
//! A file may have several parts, one for each time that it was recorded to (`append.rs`).
//!
//! The recorder keeps no more than the blocks in use and the stacks, both bounded, so that its memory does not depend
//! on what it records.

pub mod alarm;
pub mod analysis;
pub mod append;
pub mod call_paths;
mod cautions;
mod collector;
pub mod device_trace;
mod figures;
pub mod format;
mod labels;
pub mod lanes;
pub mod live_table;
pub mod matcher;
pub mod page;
pub mod place;
mod prefetch;
mod process_snapshot;
pub mod reader;
pub mod recorder;
pub mod replay;
pub mod report;
mod report_json;
mod rings;
pub mod session;
mod sparse_pages;
pub mod tap;
pub mod writer;
