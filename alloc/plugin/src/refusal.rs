//! What a function says when it can't: C gets a number or null, and asks for the words.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::ptr;

use poolscope_gpu::PoolError;

/// Why a call was refused, in words.
#[derive(Clone, Debug)]
pub struct Refusal {
    why: String,
    is_out_of_memory: bool,
}

impl Refusal {
    pub fn new(why: impl fmt::Display) -> Refusal {
        Refusal { why: why.to_string(), is_out_of_memory: false }
    }

    /// Whether the device, or the limit of the pool, has no memory left.
    pub fn is_out_of_memory(&self) -> bool {
        self.is_out_of_memory
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Refusal {
        match error {
            PoolError::OutOfMemory { .. } => {
                let words = error.to_string();
                let (words, pid) = (words.trim_end(), std::process::id());
                let why = format!("{words}\n  who holds the rest: poolscope top {pid}, view 6\n");
                Refusal { why, is_out_of_memory: true }
            }
            _ => Refusal::new(error),
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps the words for this thread. A thread that is ending has no place for them.
pub fn keep(refusal: &Refusal) {
    let words = CString::new(refusal.why.replace('\0', " ")).ok();
    let _ = LAST.try_with(|last| *last.borrow_mut() = words);
}

/// The words of this thread's last refusal, until its next one; null without any.
pub fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ref().map_or(ptr::null(), |words| words.as_ptr())).unwrap_or(ptr::null())
}

/// 0, or -1 with words.
pub fn status(result: Result<(), Refusal>) -> i32 {
    value(result.map(|()| 0)).unwrap_or(-1)
}

/// The value, or nothing with words.
pub fn value<T>(result: Result<T, Refusal>) -> Option<T> {
    result.inspect_err(keep).ok()
}
