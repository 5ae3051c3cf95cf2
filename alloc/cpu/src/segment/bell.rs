//! How another process asks for a search for unreachable blocks: words of the segment, and a bell.
//!
//! The bell is a word of the segment's file, so that another process can wake the pool's thread by it. Where every
//! allocation is recorded, that thread sleeps on it for as long as it takes, and without a wake-up.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use poolscope_wire::{ReachRequest, flags};

use super::{Segment, file};
use crate::kernel::os;

/// The words of this process's segment; null where nobody can ask, or nothing could be answered.
static REQUEST: AtomicPtr<ReachRequest> = AtomicPtr::new(core::ptr::null_mut());
/// The last request that was seen.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// The file was cut off: there is no bell any more.
static LOST: AtomicBool = AtomicBool::new(false);

/// What another process asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Its number.
    pub request: u64,
    /// Bits of [`poolscope_wire::reach::option`].
    pub options: u64,
    /// Bits that are no part of an address.
    pub tag_mask: u64,
}

/// Tells where the words of this process's segment are.
pub(super) fn watch(segment: &Segment) {
    let is_exact = segment.header().flags & flags::EXACT != 0;
    SEEN.store(0, Ordering::Relaxed);
    LOST.store(false, Ordering::Relaxed);
    let request = if is_exact && file::is_in_a_file() {
        // SAFETY: a field of the header, which is mapped.
        unsafe { &raw mut (*segment.raw_header()).reach_request }
    } else {
        core::ptr::null_mut()
    };
    REQUEST.store(request, Ordering::Release);
}

/// The words, as each side reads and writes them.
struct Words {
    request: &'static AtomicU64,
    options: &'static AtomicU64,
    tag_mask: &'static AtomicU64,
    answer: &'static AtomicU64,
    bell: &'static AtomicU32,
    listener: &'static AtomicU32,
    filters: &'static AtomicU32,
}

fn words() -> Option<Words> {
    let request = REQUEST.load(Ordering::Acquire);
    if request.is_null() || LOST.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: aligned words of a mapped segment, which is never unmapped; everybody uses them as atomics.
    unsafe {
        let long = |word: *mut u64| AtomicU64::from_ptr(word);
        let short = |word: *mut u32| AtomicU32::from_ptr(word);
        Some(Words {
            request: long(&raw mut (*request).request),
            options: long(&raw mut (*request).options),
            tag_mask: long(&raw mut (*request).tag_mask),
            answer: long(&raw mut (*request).answer),
            bell: short(&raw mut (*request).bell),
            listener: short(&raw mut (*request).listener),
            filters: short(&raw mut (*request).filters),
        })
    }
}

/// Whether other processes can ask.
pub fn is_there() -> bool {
    !REQUEST.load(Ordering::Relaxed).is_null() && !LOST.load(Ordering::Relaxed)
}

/// What the bell says now, for [`sleep`]. To be asked for before the reasons not to sleep are looked at.
pub fn rung() -> u32 {
    words().map_or(0, |words| words.bell.load(Ordering::SeqCst))
}

/// Sleeps until the bell is rung, unless it was since [`rung`] said so, or for `ms` milliseconds. False if there is no
/// bell.
pub fn sleep(rung: u32, ms: u64) -> bool {
    let Some(words) = words() else { return false };
    let slept = os::sleep_on_file(words.bell, rung, ms);
    if !slept {
        LOST.store(true, Ordering::Relaxed);
    }
    slept
}

/// Wakes the pool's thread.
pub fn ring() {
    if let Some(words) = words() {
        words.bell.fetch_add(1, Ordering::SeqCst);
        os::wake_shared(words.bell);
    }
}

/// Says who listens, and how many filters of system calls this thread has.
pub fn listen(tid: u32, filters: Option<u32>) {
    if let Some(words) = words() {
        // Those that it began with: a later thread may have more.
        if words.filters.load(Ordering::Relaxed) == 0 {
            words.filters.store(filters.map_or(0, |filters| filters + 1), Ordering::Relaxed);
        }
        words.listener.store(tid, Ordering::Release);
    }
}

/// Whether there is a request that was not seen.
pub fn is_asked() -> bool {
    words().is_some_and(|words| {
        let request = words.request.load(Ordering::Acquire);
        request != 0 && request != SEEN.load(Ordering::Relaxed)
    })
}

/// The new request, if there is one.
pub fn take() -> Option<Asked> {
    if !is_asked() {
        return None;
    }
    let words = words()?;
    let request = words.request.load(Ordering::Acquire);
    SEEN.store(request, Ordering::Relaxed);
    let (options, tag_mask) = (words.options.load(Ordering::Relaxed), words.tag_mask.load(Ordering::Relaxed));
    Some(Asked { request, options, tag_mask })
}

/// Says that a request was answered.
pub fn answer(request: u64) {
    if let Some(words) = words() {
        words.answer.store(request, Ordering::Release);
    }
}
