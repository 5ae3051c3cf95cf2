//! Labels: a program's own words for what it is doing, which end in profiles, metrics and the dashboard.
//!
//! ```
//! fn fill_the_cache() -> Vec<u8> {
//!     let _cache = poolscope_alloc::tag!("cache");
//!     vec![0; 100_000] // Counts under `cache`, with all that this thread allocates until the end of the function.
//! }
//! # drop(fill_the_cache());
//! ```
//!
//! Where labels nest, the innermost one counts. A thread that is started under a label is under none; a future that is
//! [`labelled`] is under its label whenever it is polled, on whichever thread. What is freed is taken off the label
//! that it was allocated under. Where no label is set, they cost nothing.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use poolscope_cpu::label;

/// A label. There are 64 at most; those that are made later are as if none was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(u32);

/// This thread is under a label while it lives.
#[derive(Debug)]
#[must_use = "the label ends when this is dropped"]
pub struct Labelled {
    outer: u32,
    /// It is the thread's that made it.
    not_send: PhantomData<*const ()>,
}

/// What is done where a label has more in use than its limit.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    /// It is said on standard error, once until it falls below seven eighths.
    Warn,
    /// The same, and requests under the label that are due to be sampled find no memory. So what grows comes to a stop
    /// some samples beyond the limit; it is exact where every allocation is recorded.
    Refuse,
    /// The function is called with the label's name, the bytes in use and the limit, by the thread that passed it. It
    /// may allocate and free. It must not panic.
    Call(fn(&str, u64, u64)),
}

impl Label {
    /// The label of this name. Of a longer one the first 32 bytes count.
    pub fn new(name: &str) -> Label {
        Label(label::number(name.as_bytes()))
    }

    /// The same, looked up once: for [`tag!`](crate::tag).
    #[doc(hidden)]
    pub fn cached(number: &AtomicU32, name: &str) -> Label {
        match number.load(Ordering::Relaxed) {
            0 => {
                let label = Label::new(name);
                number.store(label.0, Ordering::Relaxed);
                label
            }
            known => Label(known),
        }
    }

    /// Puts this thread under the label, until what this returns is dropped.
    pub fn enter(self) -> Labelled {
        Labelled { outer: label::set(self.0), not_send: PhantomData }
    }

    /// Bytes in use of what was allocated under it, estimated from samples unless every allocation is recorded.
    pub fn in_use(self) -> u64 {
        label::in_use(self.0)
    }

    /// Sets the most bytes that it is to have in use, and what is done beyond; 0 bytes for no limit.
    ///
    /// # Errors
    /// Nothing is limited where there were 64 other labels when this one was made, or its name is empty.
    pub fn limit(self, bytes: u64, over: Over) -> Result<(), NoSuchLabel> {
        if self.0 == 0 {
            return Err(NoSuchLabel);
        }
        let over = match over {
            Over::Warn => label::Over::Warn,
            Over::Refuse => label::Over::Refuse,
            Over::Call(f) => label::Over::Call(call, f as *mut c_void),
        };
        // SAFETY: `call` may be called by any thread, with the address of such a function.
        unsafe { label::limit(self.0, bytes, over) };
        Ok(())
    }
}

/// A label that is as if none was set, so that it can't have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchLabel;

impl fmt::Display for NoSuchLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the label has no limit: there are 64 others already, or its name is empty")
    }
}

impl std::error::Error for NoSuchLabel {}

/// Passes what the pool says to a function of Rust's.
unsafe extern "C" fn call(name: *const c_char, in_use: u64, limit: u64, function: *mut c_void) {
    // SAFETY: `Label::limit` passes such a function, and the pool a text that ends with zero.
    let (name, function) = unsafe {
        (CStr::from_ptr(name).to_string_lossy(), std::mem::transmute::<*mut c_void, fn(&str, u64, u64)>(function))
    };
    function(&name, in_use, limit);
}

impl Drop for Labelled {
    fn drop(&mut self) {
        label::set(self.outer);
    }
}

/// A future that is under a label whenever it is polled.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct LabelledFuture<F> {
    future: Pin<Box<F>>,
    label: Label,
}

/// Puts a future under a label.
pub fn labelled<F: Future>(label: Label, future: F) -> LabelledFuture<F> {
    LabelledFuture { future: Box::pin(future), label }
}

impl<F: Future> Future for LabelledFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _under = self.label.enter();
        self.future.as_mut().poll(context)
    }
}

/// Puts this thread under the label of this name until the result is dropped: `let _cache = tag!("cache");`
///
/// A name that is written out is looked up once, and any other one each time: `tag!(&tenant.name)`.
#[macro_export]
macro_rules! tag {
    ($name:literal) => {{
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        $crate::label::Label::cached(&NUMBER, $name).enter()
    }};
    ($name:expr) => {
        $crate::label::Label::new($name).enter()
    };
}
