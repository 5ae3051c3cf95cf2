//! Hooks: closures that see every allocation and every free of the pool, before and after it.
//!
//! ```
//! use poolscope_alloc::hooks::{self, Moment};
//! use std::sync::atomic::{AtomicUsize, Ordering};
//!
//! static FREED: AtomicUsize = AtomicUsize::new(0);
//! let guard = hooks::add(|event| {
//!     if event.moment == Moment::AfterFree {
//!         FREED.fetch_add(event.size, Ordering::Relaxed);
//!     }
//! });
//! drop(guard); // The hook is gone.
//! ```
//!
//! A hook may allocate: what it does so is reported to nobody. Without a hook nothing gets slower; with one, every call
//! takes the pool's slow path.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use poolscope_cpu::hooks::{Event, Moment};
use poolscope_cpu::hooks::{HookId, add_hook, remove_hook};

type Closure = Box<dyn Fn(&Event) + Send + Sync>;

/// A hook that is there until this is dropped.
#[must_use = "the hook goes when this is dropped"]
pub struct Hook {
    id: HookId,
    /// What the pool has the address of.
    closure: Option<Box<Closure>>,
}

/// Adds a hook; it sees what begins from now on, on every thread. A hook that panics ends the process. `None` without
/// memory.
pub fn add(hook: impl Fn(&Event) + Send + Sync + 'static) -> Option<Hook> {
    let closure: Box<Closure> = Box::new(Box::new(hook));
    let context = (&raw const *closure).cast_mut().cast::<c_void>();
    let id = add_hook(call, context)?;
    Some(Hook { id, closure: Some(closure) })
}

extern "C" fn call(event: &Event, context: *mut c_void) {
    // SAFETY: `add` passed the address of a closure that lives until after the hook's removal.
    let closure = unsafe { &*context.cast::<Closure>() };
    INSIDE.set(INSIDE.get() + 1);
    if catch_unwind(AssertUnwindSafe(|| closure(event))).is_err() {
        std::process::abort();
    }
    INSIDE.set(INSIDE.get() - 1);
}

thread_local! {
    /// Hooks that this thread is in.
    static INSIDE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

impl Drop for Hook {
    fn drop(&mut self) {
        remove_hook(self.id);
        let closure = self.closure.take();
        // Dropped inside a hook, others may still be in this one: its closure stays.
        if INSIDE.get() > 0 {
            std::mem::forget(closure);
        }
    }
}
