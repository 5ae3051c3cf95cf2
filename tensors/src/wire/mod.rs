//! How processes talk over a socket: frames, and what requests have in them.

pub mod frame;
mod request;

pub use request::{Op, Request, Transport, address_of};
