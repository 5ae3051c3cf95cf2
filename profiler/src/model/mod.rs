//! The profile model: plain data, without files, symbols or output.
//!
//! A [`Snapshot`](snapshot::Snapshot) is what a segment said; a [`Profile`](profile::Profile) is what people look at.

pub mod accounting;
#[cfg(feature = "reading")]
pub(crate) mod carried;
pub mod difference;
pub mod frames;
pub mod functions;
pub mod growth;
pub mod history;
pub mod holders;
pub mod memory;
pub mod naming;
pub mod of_memory;
pub mod peak;
pub mod profile;
pub mod reach;
pub mod snapshot;
#[cfg(test)]
pub(crate) mod testing;
