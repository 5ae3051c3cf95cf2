//! What threads share without a lock, and the lock: loom checks both.

pub mod apart;
pub mod reasons;
pub mod spin_lock;
pub mod waits;
pub mod word;

/// Times that words are read at most.
const LOOKS: usize = 4;

/// What several words say that another thread may be changing, as of one moment: they are read until they are what they
/// were the time before, a few times at most.
pub fn look<T: Copy + PartialEq>(read: impl Fn() -> T) -> T {
    let mut now = read();
    for _ in 1..LOOKS {
        let again = read();
        if core::mem::replace(&mut now, again) == again {
            break;
        }
    }
    now
}
