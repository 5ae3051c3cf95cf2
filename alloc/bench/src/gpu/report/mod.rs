//! The faces of the results. Each reads [`crate::results::Results`] and changes nothing.

pub mod plot;
pub mod tables;
