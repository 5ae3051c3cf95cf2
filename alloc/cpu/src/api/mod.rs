//! What a program asks for beside memory.

pub mod data_ptr;
pub mod device;
pub mod dump;
pub mod label;
pub mod leaks;
pub mod scope;
pub mod script;
pub mod statistics;
