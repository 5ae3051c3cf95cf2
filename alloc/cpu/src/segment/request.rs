//! What a recorder asks for: the word in this process's segment, and which of its values was seen.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::Segment;
use crate::sync::word::Word;

/// The last request that was seen, answered or not.
pub static SEEN: AtomicUsize = AtomicUsize::new(0);
/// The request word of this process's segment.
static REQUEST: AtomicPtr<AtomicUsize> = AtomicPtr::new((&raw const NOTHING).cast_mut());
/// In its place while there is no segment.
static NOTHING: AtomicUsize = AtomicUsize::new(0);

/// Tells where the request of this process's segment is.
pub(super) fn watch(segment: &Segment) {
    SEEN.store(0, Ordering::Relaxed);
    REQUEST.store(segment.trace_request().cast(), Ordering::Release);
}

/// The word.
#[inline(always)]
pub fn word() -> &'static AtomicUsize {
    // SAFETY: a static, or a word of a mapped segment, which is never unmapped.
    unsafe { &*REQUEST.load(Ordering::Relaxed) }
}

/// Whether there is a request that was not seen.
#[inline(always)]
pub fn is_new(request: &impl Word, seen: &impl Word) -> bool {
    request.load(Ordering::Relaxed) != seen.load(Ordering::Relaxed)
}

/// Whether there is a new request.
#[inline(always)]
pub fn is_asked() -> bool {
    is_new(word(), &SEEN)
}
