//! Names for addresses: from files with symbols, from the kernel's library and from perf maps.

mod build_id;
mod disk_cache;
pub mod function_name;
mod perf_map;
mod symbol_files;
pub mod symbolize;
pub mod variables;
mod vdso;
pub mod warning;
