//! What threads share without a lock, and the lock: loom checks both.

pub mod apart;
pub mod reasons;
pub mod spin_lock;
pub mod waits;
pub mod word;
