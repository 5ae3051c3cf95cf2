//! Reads the segments of processes on the pool and turns them into profiles.
//!
//! ```text
//! segment file -> SegmentReader -> Snapshot -> ProfileBuilder -> Profile -> pprof, SVG, text, JSON, dashboard
//!   (discovery)     (checked)       (plain)     (symbols)         (one model, several faces)
//! ```
//!
//! A segment is written by another process, which may be of another version, damaged or hostile: everything that comes
//! out of the file is checked in [`segment::reader`], and what passes can be used without care. Nothing here links the
//! allocator, and nothing here writes to a segment but a recorder's request (`recording::tap`).
//!
//! Folders, each of which uses only those before it:
//!
//! - [`words`]: amounts, text from outside and patterns, as people read and write them
//! - [`model`]: snapshots and profiles as plain data
//! - [`process`]: what the kernel says of a process
//! - [`segment`]: which segments there are, and what they say, checked
//! - [`symbols`]: names for addresses
//! - [`build`]: from a snapshot to a profile
//! - [`findings`]: what a person should know of a process, in words
//! - [`faces`]: what a profile is written as, one file a reporter
//! - `imports`: profiles that other tools wrote
//! - [`leaks`]: what was not freed, and what of it is known
//! - `reading`: what is known of a process at a moment, as bytes, for who watches from elsewhere
//! - `recording`: every allocation and free, in a file
//! - `http`: profiles for those that ask over the network
//!
//! ```no_run
//! use poolscope_profiler::{Metric, ProfileBuilder, SegmentReader};
//! use poolscope_profiler::segment::discovery;
//! use poolscope_profiler::faces::pprof;
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

pub mod build;
pub mod faces;
pub mod findings;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "convert")]
pub mod imports;
pub mod leaks;
pub mod model;
pub mod process;
#[cfg(feature = "reading")]
pub mod reading;
#[cfg(feature = "recording")]
pub mod recording;
pub mod segment;
pub mod symbols;
pub mod words;

pub use build::builder::ProfileBuilder;
pub use model::memory::Memory;
pub use model::profile::{Frame, Location, Metric, Profile, Site};
pub use model::snapshot::Snapshot;
pub use segment::reader::{ReadError, SegmentReader};
