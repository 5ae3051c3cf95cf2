//! Once a process: fork, the pool's own thread, giving everything back.

pub mod exit;
pub mod fork;
pub mod identity;
pub mod reservation;
pub mod reset;
pub mod scavenger;
pub mod start;
