//! `free`.
//!
//! Architecture invariant: the fast path, [`free`], looks at the page's descriptor and this thread's heap and at
//! nothing else. One compare, the slab's owner against this thread's heap, sends blocks of other threads, sampled and
//! large blocks, and addresses that are no block's to the slow path; a second one sorts out medium blocks of this
//! thread's own.

use core::sync::atomic::Ordering;

use crate::calls::malloc;
use crate::census;
use crate::entry::registry::{self, Entry};
use crate::hardened;
use crate::hooks;
use crate::layout::arena::{self, PAGE};
use crate::layout::block::Batch;
use crate::layout::block::BlockPtr;
use crate::layout::misuse;
use crate::layout::slab::{Slab, owner};
use crate::sampler;
use crate::serve::reentrant;
use crate::sync::spin_lock::SlowPath;
use crate::threads::detour;
use crate::threads::thread_pointer;
use crate::tiers::central_cache;
use crate::tiers::large;
use crate::tiers::thread_cache::Heap;
use crate::tiers::thread_cache::heap_of;
use crate::tiers::transfer_cache;
use crate::tracer;

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

/// Frees a block of which the program says that it asked for this alignment, at most 16 if for none.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
pub unsafe fn free_aligned(p: *mut u8, align: usize) {
    // SAFETY: the caller's promise.
    if !unsafe { free_fast(p) } {
        free_aligned_slow(p, align);
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

/// Frees a block of a slab of this thread's own. False if it is none.
///
/// # Safety
/// As for [`free`].
#[inline(always)]
unsafe fn free_fast(p: *mut u8) -> bool {
    let Some(page) = arena::fast_page_of(p) else { return false };
    let heap = thread_pointer::get();
    let tag = page.owner.load(Ordering::Relaxed);
    if tag == heap as usize {
        // SAFETY: the slab is this thread's, the block was handed out (the caller's promise).
        if unsafe { page.push(BlockPtr::new(p)) } {
            free_last(page);
        }
        return true;
    }
    if tag == heap as usize + owner::MEDIUM {
        // SAFETY: the thread pointer is always a heap; the block is as above.
        if unsafe { (*heap).push_medium(page.class.get(), BlockPtr::new(p)) } {
            free_overflow(page);
        }
        return true;
    }
    false
}

#[cold]
#[inline(never)]
extern "C" fn free_sized_slow(p: *mut u8, size: usize) {
    hardened::check_claim(p, Some(size), None);
    free_slow(p);
}

#[cold]
#[inline(never)]
extern "C" fn free_aligned_slow(p: *mut u8, align: usize) {
    hardened::check_claim(p, None, Some(align));
    free_slow(p);
}

#[cold]
#[inline(never)]
extern "C" fn free_aligned_sized_slow(p: *mut u8, size: usize, align: usize) {
    hardened::check_claim(p, Some(size), Some(align));
    free_slow(p);
}

/// The slab's countdown ran out with this free.
#[cold]
#[inline(never)]
extern "C" fn free_last(slab: &'static Slab) {
    if let Entry::Heap(entered) = registry::enter() {
        entered.heap.on_countdown(entered.slow, slab);
    }
}

/// The thread has more freed blocks of this page's class than it is to keep.
#[cold]
#[inline(never)]
extern "C" fn free_overflow(page: &'static Slab) {
    if let Entry::Heap(entered) = registry::enter() {
        entered.heap.flush_medium(entered.slow, page.class.get());
    }
}

#[cold]
#[inline(never)]
extern "C" fn free_slow(p: *mut u8) {
    if !gather(p) {
        free_rest(p);
    }
}

/// The slow path's own fast path: a block of another heap's slab joins those of the same slab that this thread has
/// freed before. False if it is anything else.
#[inline(always)]
fn gather(p: *mut u8) -> bool {
    let Some(page) = arena::fast_page_of(p) else { return false };
    let Some(own) = registry::enter_own() else { return false };
    let pages = page.pages_behind_head();
    let slab = page.page_back(pages);
    let tag = slab.owner.load(Ordering::Acquire) & !owner::MEDIUM;
    let offset = pages as usize * PAGE + p as usize % PAGE;
    tag > owner::LARGE
        && tag != own.heap.tag()
        && misuse::inside_block(slab, offset) == 0
        && own.heap.gather(own.slow, slab, BlockPtr::new(p))
}

#[inline(never)]
fn free_rest(p: *mut u8) {
    if p.is_null() {
        return;
    }
    if !detour::is_on() {
        return free_unseen(p);
    }
    if hooks::are_on() {
        // SAFETY: the block is allocated (the caller's promise).
        return hooks::around_free(p, || unsafe { malloc::usable_size(p) }, || free_unhooked(p));
    }
    free_unhooked(p);
}

#[inline(always)]
fn free_unhooked(p: *mut u8) {
    if tracer::is_on() { tracer::free(p) } else { free_unseen(p) }
}

/// A free of the slow path that nobody is told of.
pub fn free_unseen(p: *mut u8) {
    let entry = registry::enter();
    if let Entry::Heap(entered) = &entry
        && detour::is_on()
    {
        entered.heap.unvisit();
    }
    match entry {
        Entry::Heap(entered) if hardened::is_on() => hardened::free(entered.slow, Some(entered.heap), p),
        Entry::NoMemory(entered) if hardened::is_on() => hardened::free(entered.slow, None, p),
        Entry::Heap(entered) => free_dispatch(entered.slow, Some(entered.heap), BlockPtr::new(p)),
        Entry::Reentrant => reentrant::free(p),
        Entry::NoMemory(entered) => free_dispatch(entered.slow, None, BlockPtr::new(p)),
    }
}

/// Frees a block wherever it belongs, in the slow path of the thread that has `heap`, or of one that has none.
pub fn free_dispatch(slow: SlowPath, heap: Option<&'static Heap>, block: BlockPtr) {
    let Some(slab) = slab_of(block) else { return };
    match slab.owner.load(Ordering::Acquire) {
        owner::NONE => misuse::invalid(block.address()),
        owner::SAMPLED => sampler::free_block(slow, slab, block),
        owner::LARGE => large::free(slow, slab, block.address()),
        tag => match heap {
            Some(heap) if tag != owner::CENTRAL && tag & !owner::MEDIUM != heap.tag() => {
                misuse::check_alignment(slab, block);
                heap.free_remote(slow, slab, block);
            }
            _ => {
                misuse::check_start(slab, block);
                if let Some(heap) = heap
                    && tag == heap.tag() + owner::MEDIUM
                    && census::is_counting()
                {
                    return heap.free_medium(slow, slab.class.get(), block);
                }
                free_batch(slow, heap, Batch::of(block));
            }
        },
    }
}

/// Frees a batch of blocks of one slab, as [`free_dispatch`] does.
pub fn free_batch(slow: SlowPath, heap: Option<&'static Heap>, batch: Batch) {
    let Some(slab) = slab_of(batch.first) else { return };
    loop {
        match slab.owner.load(Ordering::Acquire) {
            // Single blocks, which a signal handler left behind.
            owner::NONE | owner::SAMPLED | owner::LARGE => return free_dispatch(slow, heap, batch.first),
            // A thread may take the slab over before its lock is had: then it has another owner.
            owner::CENTRAL if central_cache::free(slow, slab, batch) => return,
            owner::CENTRAL => {}
            tag => {
                // SAFETY: any other tag is a heap's.
                let heap_of_slab = unsafe { heap_of(tag) };
                return match heap {
                    Some(heap) if core::ptr::eq(heap, heap_of_slab) => {
                        if tag & owner::MEDIUM != 0 {
                            heap.count_frees(slab.class.get(), batch.count);
                        }
                        // SAFETY: the slab is this heap's.
                        let due = unsafe { slab.push_batch(batch) };
                        heap.count_freed(slab, batch.count);
                        if due {
                            heap.on_countdown(slow, slab);
                        }
                    }
                    _ => transfer_cache::deliver(slow, heap, heap_of_slab, batch),
                };
            }
        }
    }
}

/// The slab of a block; `None` if the block was a mapping of its own, which is gone now.
fn slab_of(block: BlockPtr) -> Option<&'static Slab> {
    let p = block.address();
    let Some(page) = arena::page_of(p) else {
        if !reentrant::free_mapping(p) {
            misuse::invalid(p);
        }
        return None;
    };
    Some(page.head())
}
