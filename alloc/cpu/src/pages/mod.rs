//! Spans of pages, from the kernel and back to it, and tables whose idle pages go back as well.

pub mod apart;
pub mod clear;
pub mod decay;
pub mod frontier;
pub mod keeper;
pub mod page_heap;
pub mod placement;
pub mod remap;
pub mod slot_table;
pub mod system;
