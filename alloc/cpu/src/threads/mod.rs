//! A thread's words, and how its fast path is closed.

pub mod detour;
pub mod heaps;
pub mod thread_pointer;
