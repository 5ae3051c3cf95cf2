//! Once a process: fork, the pool's own thread, giving everything back.

pub mod fork;
pub mod reset;
pub mod scavenger;
