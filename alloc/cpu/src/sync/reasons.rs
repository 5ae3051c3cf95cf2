//! Why every call is to take the slow path: one word, which anybody may read. Who sets a reason also has to close the
//! fast paths of threads ([`crate::threads::detour`]).

use core::sync::atomic::{AtomicUsize, Ordering};

/// Who wants to see every call.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Reason {
    /// There are hooks.
    Hooks = 1,
    /// The hardened mode is on.
    Hardened = 2,
    /// Every call is traced by a recorder.
    Trace = 4,
    /// Every call is counted.
    Count = 8,
}

/// Reasons that hold, as bits. A process begins with counted calls.
pub static REASONS: AtomicUsize = AtomicUsize::new(Reason::Count as usize);

/// Whether a reason holds.
#[inline]
pub fn is_on_for(reason: Reason) -> bool {
    REASONS.load(Ordering::Relaxed) & reason as usize != 0
}

/// Whether any reason holds.
#[inline]
pub fn is_on() -> bool {
    REASONS.load(Ordering::Relaxed) != 0
}

/// Whether each call is counted.
#[inline]
pub fn is_counting() -> bool {
    is_on_for(Reason::Count)
}
