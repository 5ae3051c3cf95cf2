//! Traced calls, served from the thread's own lists as the fast path would.

use core::sync::atomic::Ordering;

use poolscope_capture::Caller;

use crate::calls::free::free_own;
use crate::calls::slow;
use crate::entry::{self, Entry};
use crate::hardened;
use crate::layout::arena;
use crate::layout::size_class::{MEDIUM_MAX, SMALL_MAX, SizeClass};
use crate::layout::slab::owner;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;
use crate::tracer::{is_on, is_traced, thread};

/// A traced allocation of the slow path, for the program's call with these registers ([`Caller`]; word by
/// word, since a structure would go through memory, and its words be waited for). The block, and whether it is known to
/// read as zero.
#[inline(never)]
pub fn allocate(size: usize, align: usize, pc: usize, sp: usize, fp: usize) -> (*mut u8, bool) {
    if let Some(own) = entry::enter_detoured() {
        if let Some(p) = pop(own.heap, own.slow, size, align, Caller { pc, sp, fp }) {
            return (p, false);
        }
        return slow::or_no_memory(allocate_entered(own.heap, own.slow, size, align, pc, sp, fp));
    }
    allocate_otherwise(size, align, pc, sp, fp)
}

/// The same, of a thread whose fast path is not closed.
#[cold]
#[inline(never)]
fn allocate_otherwise(size: usize, align: usize, pc: usize, sp: usize, fp: usize) -> (*mut u8, bool) {
    let Entry::Heap(entered) = entry::enter() else {
        return slow::allocate_untraced(size, align, &Caller { pc, sp, fp });
    };
    slow::or_no_memory(allocate_entered(entered.heap, entered.slow, size, align, pc, sp, fp))
}

/// A block from the thread's own lists, if they have one, which is traced.
#[inline(always)]
fn pop(heap: &'static Heap, slow: SlowPath, size: usize, align: usize, caller: Caller) -> Option<*mut u8> {
    if align > 16 || hardened::is_on() || !is_traced(heap) {
        return None;
    }
    if size <= SMALL_MAX {
        let class = SizeClass::of_small(size);
        // Where the list goes on stands in the block, which has gone cold: it comes while the stack is looked at.
        heap.prefetch(class);
        let event = thread::begin_alloc(heap, slow, caller);
        let p = heap.pop(class)?;
        // And of the next one, which has more time to come where classes alternate.
        heap.prefetch(class);
        thread::note_alloc(event, slow, p, size);
        Some(p)
    } else if size <= MEDIUM_MAX {
        let p = heap.pop_medium(SizeClass::of_medium(size))?;
        thread::note_alloc(thread::begin_alloc(heap, slow, caller), slow, p, size);
        Some(p)
    } else {
        None
    }
}

#[inline(never)]
fn allocate_entered(
    heap: &'static Heap,
    slow: SlowPath,
    size: usize,
    align: usize,
    pc: usize,
    sp: usize,
    fp: usize,
) -> Option<(*mut u8, bool)> {
    let caller = Caller { pc, sp, fp };
    let got = slow::allocate_entered(slow, heap, size, align, &caller);
    if let Some((p, _)) = got
        && is_traced(heap)
    {
        thread::note_taken_in(heap);
        // A block that is not of the thread's own slabs may just have been freed by another thread.
        if !is_own(heap, p) {
            thread::note_time(heap);
        }
        thread::note_alloc(thread::begin_alloc(heap, slow, caller), slow, p, size);
    }
    got
}

/// Whether a block is of a slab of this heap's.
fn is_own(heap: &Heap, p: *mut u8) -> bool {
    arena::fast_page_of(p).is_some_and(|page| page.owner.load(Ordering::Relaxed) == heap.tag())
}

/// A traced free of the slow path. `p` is not null.
#[inline(never)]
pub fn free(p: *mut u8) {
    if let Some(own) = entry::enter_detoured() {
        free_from(own.heap, own.slow, p);
    } else if let Entry::Heap(entered) = entry::enter() {
        free_from(entered.heap, entered.slow, p);
    } else {
        slow::free_untraced(p);
    }
}

#[inline(always)]
fn free_from(heap: &'static Heap, slow: SlowPath, p: *mut u8) {
    let page = arena::fast_page_of(p);
    let tag = page.map_or(owner::NONE, |page| page.owner.load(Ordering::Relaxed));
    if is_traced(heap) {
        thread::note_free(heap, slow, p, tag != heap.tag());
    }
    if let Some(page) = page
        && !hardened::is_on()
    {
        // SAFETY: the heap is this thread's, and the block is allocated (the program's promise).
        if unsafe { free_own(page, heap, p, |page| heap.on_due(slow, page)) } {
            return;
        }
    }
    slow::free_entered(slow, Some(heap), p);
    thread::note_taken_in(heap);
}

/// A traced `realloc` of a block that holds `held` bytes.
#[inline(never)]
pub fn realloc(p: *mut u8, size: usize, resize: impl FnOnce() -> *mut u8) -> *mut u8 {
    let quiet = match entry::enter() {
        Entry::Heap(entered) if is_traced(entered.heap) => {
            entered.heap.calls.in_realloc.set(true);
            Some(entered.heap)
        }
        _ => None,
    };
    let new = resize();
    let Some(heap) = quiet else { return new };
    heap.calls.in_realloc.set(false);
    if !new.is_null()
        && let Entry::Heap(entered) = entry::enter()
        && is_on()
    {
        let (heap, slow) = (entered.heap, entered.slow);
        thread::note_free(heap, slow, p, new != p);
        thread::note_alloc(thread::begin_alloc(heap, slow, Caller::here()), slow, new, size);
    }
    new
}
