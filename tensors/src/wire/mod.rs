//! How processes talk over a socket: frames, and what requests have in them.

pub mod frame;
mod request;

pub use request::{Op, Request, Transport, address_of};

/// Bytes of a request over the socket at most.
pub const REQUEST_LIMIT: usize = 1 << 20;
