//! What memory waits for: how far the work of each stream is, and points in it.

mod lanes;
mod pending;

pub use lanes::Lanes;
pub use pending::{LaneId, Pending, Point};
