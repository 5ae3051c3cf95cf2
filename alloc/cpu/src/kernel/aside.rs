//! What takes more of a stack than a small one has runs on a stack of the pool's own.

use crate::kernel::os;

/// Calls `f` there. A plain pool, which can't hold signals back, stays where it is.
pub fn aside<R>(f: impl FnOnce() -> R) -> R {
    if os::is_plain() { f() } else { poolscope_capture::aside(f) }
}
