//! Starting programs on the pool: where the library is, what the environment says, how the program ends.

pub(crate) mod child;
pub(crate) mod embedded;
pub(crate) mod executable;
pub(crate) mod library;
pub(crate) mod out_of_memory;
pub(crate) mod own_pool;
pub(crate) mod preload;
pub(crate) mod sanitizer;
