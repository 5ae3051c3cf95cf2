//! Named tensors: one name, one piece of device memory, in every process of the machine.
//!
//! An owner ([`Owner`]) has the memory, in slabs that it exports once each, and keeps the books: which names there are,
//! where their tensors lie, and who holds them. Programs reach it over a socket ([`Store`]) or over Redis; a keeper
//! ([`keep`]) has the descriptors and the journal, too, so that names and memory outlive the owner. Layers, each of
//! which knows only those before it:
//!
//! - `words`: types of elements, shapes, names, refusals
//! - `identity`: which process
//! - `wire`: frames on a socket, and what requests have in them
//! - `books`: which tensors there are, and the journal of it
//! - `keeper`: who has the memory while there is no owner
//! - `owner`: the daemon
//! - `client`: what programs use
//! - `files`: tensors from files and to files

mod books;
mod client;
mod files;
mod identity;
mod keeper;
mod owner;
mod wire;
mod words;

pub use books::{Books, ClientEntry, Journal, Ready, Record, SlabEntry, Tensor as TensorEntry};
pub use client::{Created, NewTensor, RedisReader, Store, StoreOptions, Tensor, default_socket, gpu_uuid, ordinal};
pub use files::{get_file, put_file};
pub use identity::{Identity, Life};
pub use keeper::keep;
pub use owner::{COMMANDS, DeviceChoice, HASH, NAMES, OWNER_KEY, Options, Owner, REPLY};
pub use poolscope_gpu::Stream;
pub use wire::Transport;
pub use words::{Code, DTYPES, Dtype, Layout, Refusal};
