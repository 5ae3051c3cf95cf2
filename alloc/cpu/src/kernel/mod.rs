//! What the pool asks of the kernel and the processor: system calls, a thread of the kernel's, messages, hints. No types of the pool.

pub mod aside;
pub mod credentials;
pub mod kernel_calls;
pub mod message;
pub mod os;
pub mod plain;
pub mod processor;
pub mod raw_thread;
pub mod this_thread;
