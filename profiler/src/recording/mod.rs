//! Recordings: every allocation and free of a program, in a file.
//!
//! ```text
//! program -> rings -> Tap -> Recorder: Matcher, CallPaths -> Writer -> FILE -> Reader -> Replay -> Analysis -> report
//!            (words)                   (one order, blocks)             (columns)          (profiles at any moment)
//! ```
//!
//! A file may have several parts, one for each time that it was recorded to (`file/append.rs`).
//!
//! The recorder keeps no more than the blocks in use and the stacks, both bounded, so that its memory does not depend
//! on what it records.

pub mod events;
pub mod faces;
pub mod file;
pub mod recorder;
pub mod replay;
pub mod tap;
#[cfg(test)]
mod tests;
pub mod whatif;
