//! How a thread enters the slow path: which heap is its own, and what it captures there.

pub mod capture;
pub mod registry;
