//! What a command is told to look at: a process id or a segment's file.

use std::path::PathBuf;

use color_eyre::eyre::Result;
use poolscope_profiler::discovery::{self, SegmentEntry};
use poolscope_profiler::{Profile, ProfileBuilder, SegmentReader, Snapshot};

use crate::failure::Failure;
use crate::sink;

/// The segment that an argument means.
pub(crate) fn find(argument: &str) -> Result<SegmentEntry, Failure> {
    discovery::find(argument).map_err(|e| Failure::usage(e.to_string()))
}

/// The newest segment of a process, if it has one yet.
pub(crate) fn newest_segment(pid: u32) -> Option<PathBuf> {
    discovery::find(&pid.to_string()).ok().map(|entry| entry.path)
}

/// Reads a segment once, with symbols. What keeps symbols from being found is said on standard error.
pub(crate) fn read(entry: &SegmentEntry) -> Result<(Snapshot, Profile), Failure> {
    let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
    let snapshot = SegmentReader::open(&entry.path).map_err(fail)?.snapshot().map_err(fail)?;
    let mut builder = ProfileBuilder::new();
    let profile = builder.build(&snapshot);
    for warning in builder.take_warnings() {
        sink::say(&format!("{warning}"));
    }
    Ok((snapshot, profile))
}
