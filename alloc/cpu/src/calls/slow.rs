//! The slow path: one `allocate` and one `free`, whoever looks at the call.
//!
//! Hooks see a call from outside, it is traced where it is served, and in the hardened mode it is served by
//! that. While nobody looks, the tiers serve it.

use poolscope_capture::Caller;

use crate::calls::traced;
use crate::entry::{self, Entry};
use crate::hardened;
use crate::hooks;
use crate::kernel::os;
use crate::layout::block::BlockPtr;
use crate::sampler::copies;
use crate::serve::{self, reentrant};
use crate::sync::reasons;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;
use crate::tracer;

/// A block for the program's call at `caller`, and whether it is known to read as zero.
#[inline(always)]
pub fn allocate(size: usize, align: usize, caller: &Caller) -> (*mut u8, bool) {
    // Who starts the process may wait for it: then its very first allocation is seen as well.
    entry::start_process();
    if reasons::is_on() { allocate_seen(size, align, caller) } else { allocate_untraced(size, align, caller) }
}

/// An allocation of a program that is looked at.
#[inline(always)]
fn allocate_seen(size: usize, align: usize, caller: &Caller) -> (*mut u8, bool) {
    let allocate = || {
        if tracer::is_on() {
            traced::allocate(size, align, caller.pc, caller.sp, caller.fp)
        } else {
            allocate_untraced(size, align, caller)
        }
    };
    if hooks::are_on() { hooks::around_alloc(size, align, allocate, |got| got.0) } else { allocate() }
}

/// An allocation that is not traced.
pub fn allocate_untraced(size: usize, align: usize, caller: &Caller) -> (*mut u8, bool) {
    let got = match entry::enter() {
        Entry::Heap(entered) => allocate_entered(entered.slow, entered.heap, size, align, caller),
        Entry::Reentrant => {
            let p = reentrant::alloc(size, align);
            (!p.is_null()).then_some((p, true))
        }
        Entry::NoMemory(_) => None,
    };
    or_no_memory(got)
}

/// A block for a thread that is in the slow path with its heap: a checked one, or one of the tiers.
#[inline(always)]
pub fn allocate_entered(
    slow: SlowPath,
    heap: &'static Heap,
    size: usize,
    align: usize,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    if hardened::is_on() {
        return hardened::allocate(heap, slow, size, align, caller);
    }
    serve::free::take_in_waiting(slow, heap);
    serve::allocate::allocate(slow, heap, size, align, caller)
}

/// What an allocation returns that may have found no memory.
#[inline(always)]
pub fn or_no_memory(got: Option<(*mut u8, bool)>) -> (*mut u8, bool) {
    match got {
        Some(got) => got,
        None => {
            copies::refused();
            os::set_errno(libc::ENOMEM);
            (core::ptr::null_mut(), false)
        }
    }
}

/// Frees a block for whoever looks at it. `usable_size` says what it holds.
#[inline(always)]
pub fn free(p: *mut u8, usable_size: impl FnOnce() -> usize) {
    if !reasons::is_on() {
        return free_untraced(p);
    }
    let free = || if tracer::is_on() { traced::free(p) } else { free_untraced(p) };
    if hooks::are_on() { hooks::around_free(p, usable_size, free) } else { free() }
}

/// A free that is not traced.
pub fn free_untraced(p: *mut u8) {
    let entry = entry::enter();
    let (slow, heap) = match &entry {
        Entry::Heap(entered) => (entered.slow, Some(entered.heap)),
        Entry::NoMemory(homeless) => (homeless.slow, None),
        Entry::Reentrant if hardened::is_on() => return hardened::free_later(p),
        Entry::Reentrant => return reentrant::free(p),
    };
    if let Some(heap) = heap
        && reasons::is_on()
    {
        heap.unvisit();
    }
    free_entered(slow, heap, p);
}

/// Frees a block, in the slow path of the thread that has `heap`, or of one that has none.
#[inline(always)]
pub fn free_entered(slow: SlowPath, heap: Option<&'static Heap>, p: *mut u8) {
    if hardened::is_on() { hardened::free(slow, heap, p) } else { serve::free::free(slow, heap, BlockPtr::new(p)) }
}
