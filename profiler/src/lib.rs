//! Reads the segments of processes on the pool and turns them into profiles.
//!
//! ```text
//! segment file -> SegmentReader -> Snapshot -> ProfileBuilder -> Profile -> pprof, SVG, text, JSON, dashboard
//!   (discovery)     (checked)       (plain)     (symbols)         (one model, several faces)
//! ```
//!
//! A segment is written by another process, which may be of another version, damaged or hostile: everything that
//! comes out of the file is checked in [`reader`], and what passes can be used without care. Nothing here links the
//! allocator, and nothing here writes to a segment but a recorder's request ([`recording::tap`]).
//!
//! ```no_run
//! use poolscope_profiler::{Metric, ProfileBuilder, SegmentReader, discovery, pprof};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let entry = discovery::find("1234")?;
//! let snapshot = SegmentReader::open(&entry.path)?.snapshot()?;
//! let profile = ProfileBuilder::new().build(&snapshot);
//! pprof::write_pprof(&profile, Metric::InUseBytes, std::fs::File::create("heap.pb.gz")?)?;
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod build_id;
pub mod builder;
pub mod device_report;
pub mod difference;
pub mod difference_report;
pub mod differential;
pub mod discovery;
pub mod ending;
pub mod figures;
pub mod flamegraph;
pub mod function_name;
pub mod holders;
#[cfg(feature = "http")]
pub mod http;
pub mod leaks;
pub mod memory;
mod outline;
mod pattern;
pub mod peak;
mod perf_map;
pub mod plumbing;
mod pool_frames;
pub mod pprof;
pub mod pprof_reader;
mod printable;
pub mod process;
pub mod profile;
pub mod python;
mod read_error;
pub mod reader;
pub mod recording;
pub mod report;
mod segment_file;
pub mod site_name;
pub mod snapshot;
pub mod suppressions;
mod symbol_files;
pub mod symbolize;
#[cfg(test)]
mod testing;
mod vdso;

pub use builder::ProfileBuilder;
pub use memory::Memory;
pub use profile::{Frame, Location, Metric, Profile, Site};
pub use reader::{ReadError, SegmentReader};
pub use snapshot::Snapshot;
