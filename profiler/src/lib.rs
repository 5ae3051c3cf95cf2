//! Reads the segments of processes on the pool and turns them into profiles.
pub mod profile;
pub mod snapshot;
