//! What a program asks for beside memory.

pub mod data_ptr;
pub mod device;
pub mod dump;
pub mod label;
pub mod leaks;
pub mod python;
pub mod scope;
pub mod statistics;
