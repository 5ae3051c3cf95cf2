//! Where requests of the slow path are served.

pub mod mappings;
pub mod reentrant;
