//! What a program calls: the fast paths, and what becomes of a call that takes the slow one.

pub mod free;
pub mod malloc;
pub mod realloc;
mod slow;
mod traced;
