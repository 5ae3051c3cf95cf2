//! What programs use: a store of names, and guards of tensors.

mod devices;
mod link;
mod redis_reader;
mod store;
mod tensor;
mod timeline;

pub use devices::{gpu_uuid, ordinal};
pub use redis_reader::RedisReader;
pub use store::{Created, NewTensor, Store, StoreOptions, default_socket};
pub use tensor::Tensor;
