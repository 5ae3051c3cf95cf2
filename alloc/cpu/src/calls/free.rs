//! `free`.
//!
//! Architecture invariant: the fast path, [`free`], looks at the page's descriptor and this thread's heap and at
//! nothing else. One compare, the slab's owner against this thread's heap, sends blocks of other threads, sampled and
//! large blocks, and addresses that are no block's to the slow path. What the block is pushed onto stands in the
//! descriptor.

use core::sync::atomic::Ordering;

use crate::calls::realloc::usable_size;
use crate::calls::slow;
use crate::entry::{self, Entry};
use crate::hardened::{self, Origin};
use crate::layout::arena::{self, ARENA_PAGE};
use crate::layout::block::BlockPtr;
use crate::layout::slab::{Slab, owner};
use crate::threads::thread_pointer;
use crate::tiers::thread_cache::Heap;

/// Frees a block. Null is allowed; errno is kept.
///
/// # Safety
/// `p` is null or a block that this pool allocated and that was not freed yet; nobody uses it any more.
#[inline(always)]
pub unsafe fn free(p: *mut u8) {
    // SAFETY: the caller's promise.
    if !unsafe { free_fast(p) } {
        free_slow(p);
    }
}

/// Frees a block of which the program says that it asked for `size` bytes: the hardened mode compares.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub unsafe fn free_sized(p: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    if !unsafe { free_fast(p) } {
        free_sized_slow(p, size);
    }
}

/// Frees a block of which the program says that it asked for `size` bytes at a multiple of `align`, at most 16 if for
/// none.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub unsafe fn free_aligned_sized(p: *mut u8, align: usize, size: usize) {
    // SAFETY: the caller's promise.
    if !unsafe { free_fast(p) } {
        free_aligned_sized_slow(p, size, align);
    }
}

/// Frees a block as one of C++'s `operator delete` does: the hardened mode looks at whether that goes with what
/// allocated it. `align` is at most 16 if the program asked for none.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub unsafe fn delete(p: *mut u8, origin: Origin, align: usize, size: Option<usize>) {
    // SAFETY: the caller's promise.
    if !unsafe { free_fast(p) } {
        delete_slow(p, size.unwrap_or(NO_SIZE), align, origin);
    }
}

/// No block has it.
const NO_SIZE: usize = usize::MAX;

/// Frees a block of a slab of this thread's own. False if it is none.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
unsafe fn free_fast(p: *mut u8) -> bool {
    let Some(page) = arena::fast_page_of(p) else { return false };
    // SAFETY: the thread pointer is always a heap; the block is as the caller promises.
    unsafe { free_own(page, thread_pointer::get(), p, |page| free_due(page)) }
}

/// Frees a block of a slab of the heap's own, which the calling thread has; what it calls for is left to the function.
/// False if it is none.
///
/// # Safety
/// `heap` is a heap, and `p` lies in `page`; further as for [`free`].
#[inline(always)]
pub unsafe fn free_own(page: &'static Slab, heap: *const Heap, p: *mut u8, due: impl FnOnce(&'static Slab)) -> bool {
    if page.owner.load(Ordering::Relaxed) != heap as usize {
        return false;
    }
    // SAFETY: the slab is this thread's, the block was handed out (the caller's promise).
    if unsafe { page.frees_into().push(BlockPtr::new(p)) } {
        due(page);
    }
    true
}

#[cold]
#[inline(never)]
extern "C" fn free_sized_slow(p: *mut u8, size: usize) {
    hardened::check_claim(p, Some(size), None, Some(Origin::Malloc));
    free_claimed(p);
}

#[cold]
#[inline(never)]
extern "C" fn delete_slow(p: *mut u8, size: usize, align: usize, origin: Origin) {
    hardened::check_claim(p, Some(size).filter(|size| *size != NO_SIZE), Some(align), Some(origin));
    free_claimed(p);
}

#[cold]
#[inline(never)]
extern "C" fn free_aligned_sized_slow(p: *mut u8, size: usize, align: usize) {
    hardened::check_claim(p, Some(size), Some(align), Some(Origin::Malloc));
    free_claimed(p);
}

/// The countdown of the page's list ran out with this free: its slab has enough free blocks to be looked at, or the
/// thread has more of its class than it is to keep.
#[cold]
#[inline(never)]
extern "C" fn free_due(page: &'static Slab) {
    // The fast path was open a moment before.
    match entry::enter_own() {
        Some(own) => own.heap.on_due(own.slow, page),
        None => free_due_otherwise(page),
    }
}

#[cold]
#[inline(never)]
fn free_due_otherwise(page: &'static Slab) {
    if let Entry::Heap(entered) = entry::enter() {
        entered.heap.on_due(entered.slow, page);
    }
}

#[cold]
#[inline(never)]
extern "C" fn free_slow(p: *mut u8) {
    if !gather(p) {
        hardened::check_claim(p, None, None, Some(Origin::Malloc));
        free_rest(p);
    }
}

/// Frees a block of which the hardened mode has seen what the program says of it.
fn free_claimed(p: *mut u8) {
    if !gather(p) {
        free_rest(p);
    }
}

/// The slow path's own fast path: a medium block of another heap's slab is kept, or a block joins those of the same slab
/// that this thread has freed before. False if it is anything else.
#[inline(always)]
fn gather(p: *mut u8) -> bool {
    let Some(page) = arena::fast_page_of(p) else { return false };
    let Some(own) = entry::enter_own() else { return false };
    let pages = page.pages_behind_head();
    let slab = page.page_back(pages);
    let tag = slab.owner.load(Ordering::Acquire);
    let offset = pages as usize * ARENA_PAGE + p as usize % ARENA_PAGE;
    tag > owner::LARGE
        && tag != own.heap.tag()
        && slab.class.get().begins_at(offset as u32)
        && (own.heap.keep(own.slow, slab.class.get(), BlockPtr::new(p))
            || own.heap.gather(own.slow, slab, BlockPtr::new(p)))
}

#[inline(never)]
fn free_rest(p: *mut u8) {
    if p.is_null() {
        return;
    }
    // SAFETY: the block is allocated (the caller's promise).
    slow::free(p, || unsafe { usable_size(p) });
}
