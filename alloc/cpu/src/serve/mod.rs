//! Where requests of the slow path are served.

pub mod allocate;
pub mod free;
pub mod heartbeat;
pub mod large;
mod mappings;
pub mod reclaim;
pub mod reentrant;
