//! From a snapshot to a profile: names for addresses, without the pool's own frames, and what a call site is called.

pub mod builder;
pub mod by_names;
pub(crate) mod java;
pub(crate) mod javascript;
pub mod language;
mod module_index;
pub mod plumbing;
pub(crate) mod pool_frames;
pub mod python;
pub mod ruby;
pub mod site_name;
