//! What the pool asks of the kernel: system calls, a thread of the kernel's, messages. No types of the pool.

pub mod aside;
pub mod credentials;
pub mod kernel_calls;
pub mod last_thread;
pub mod message;
pub mod os;
pub mod plain;
pub mod raw_thread;
pub mod system_call;
pub mod this_thread;
