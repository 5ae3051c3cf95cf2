//! `malloc` and its relatives.
//!
//! Architecture invariant: the fast path, [`malloc`], touches this thread's heap and the block, and nothing else.

use core::sync::atomic::Ordering;

use crate::arena::{self, PAGE as ARENA_PAGE};
use crate::os;
use crate::registry::{self, Entry};
use crate::size_class::{MEDIUM_MAX, SMALL_MAX, SizeClass};
use crate::slab::{Slab, owner};
use crate::spin_lock::SlowPath;
use crate::thread_cache::Heap;
use crate::{free, large, reentrant, sampler, thread_pointer};

/// Allocates `size` bytes at a multiple of 16; null and `ENOMEM` without memory. A size of 0 gets a block of its own.
#[inline(always)]
pub fn malloc(size: usize) -> *mut u8 {
    if size <= SMALL_MAX {
        // SAFETY: the thread pointer is always a heap, at least the empty one.
        let heap = unsafe { &*thread_pointer::get() };
        if let Some(p) = heap.pop(SizeClass::of_small(size)) {
            return p;
        }
    }
    malloc_slow(size)
}

#[cold]
#[inline(never)]
extern "C" fn malloc_slow(size: usize) -> *mut u8 {
    if size > SMALL_MAX && size <= MEDIUM_MAX {
        // SAFETY: as above. Medium blocks need no more than the fast path.
        let heap = unsafe { &*thread_pointer::get() };
        if let Some(p) = heap.pop(SizeClass::of(size)) {
            return p;
        }
    }
    allocate(size, 16).0
}

/// Allocates `size` bytes at a multiple of `align`, a power of two; null and `ENOMEM` without memory.
#[inline]
pub fn malloc_aligned(size: usize, align: usize) -> *mut u8 {
    if align <= 16 {
        return malloc(size);
    }
    if let Some(class) = SizeClass::of_aligned(size, align) {
        // SAFETY: as in `malloc`.
        let heap = unsafe { &*thread_pointer::get() };
        if let Some(p) = heap.pop(class) {
            return p;
        }
    }
    allocate(size, align).0
}

/// A block from this thread's list, if it has one: what C++'s `operator new` tries before it may have to throw.
#[inline(always)]
pub fn malloc_fast(size: usize, align: usize) -> Option<*mut u8> {
    if size > SMALL_MAX || align > 16 {
        return None;
    }
    // SAFETY: as in `malloc`.
    unsafe { &*thread_pointer::get() }.pop(SizeClass::of_small(size))
}

/// Allocates `size` zeroed bytes.
#[inline]
pub fn malloc_zeroed(size: usize) -> *mut u8 {
    if size <= MEDIUM_MAX {
        let p = malloc(size);
        if !p.is_null() {
            // SAFETY: the block holds `size` bytes.
            unsafe { p.write_bytes(0, size) };
        }
        return p;
    }
    let (p, zero) = allocate(size, 16);
    if !p.is_null() && !zero {
        // SAFETY: as above.
        unsafe { p.write_bytes(0, size) };
    }
    p
}

/// The slow path: the block, and whether it is known to read as zero.
#[cold]
#[inline(never)]
fn allocate(size: usize, align: usize) -> (*mut u8, bool) {
    let got = match registry::enter() {
        Entry::Heap(entered) => {
            take_in_waiting(entered.slow, entered.heap);
            // Without the divisions of the general case: this is what every refill goes through.
            let class = if align <= 16 && size <= MEDIUM_MAX {
                Some(SizeClass::of(size))
            } else {
                SizeClass::of_aligned(size, align)
            };
            match class {
                Some(class) => allocate_block(entered.slow, entered.heap, class, size).map(|p| (p, false)),
                None => large::alloc(entered.slow, entered.heap, size, align),
            }
        }
        Entry::Reentrant => {
            let p = reentrant::alloc(size, align);
            (!p.is_null()).then_some((p, true))
        }
        Entry::NoMemory(_) => None,
    };
    got.unwrap_or_else(|| {
        os::set_errno(libc::ENOMEM);
        (core::ptr::null_mut(), false)
    })
}

fn take_in_waiting(slow: SlowPath, heap: &'static Heap) {
    let mut block = reentrant::take_waiting();
    while !block.is_null() {
        // SAFETY: the list is ours now.
        let next = unsafe { block.next() };
        free::free_dispatch(slow, Some(heap), block);
        block = next;
    }
}

fn allocate_block(slow: SlowPath, heap: &'static Heap, class: SizeClass, size: usize) -> Option<*mut u8> {
    loop {
        if sampler::records_all(heap) && !heap.in_sampler.get() {
            return sampler::sample_block(slow, heap, class, size);
        }
        if let Some(p) = heap.pop(class) {
            return Some(p);
        }
        let budget = &heap.budget[class.index()];
        if budget.get() <= 0 {
            let drawn = sampler::draw(heap);
            budget.set(drawn);
            if !heap.in_sampler.get() {
                return sampler::sample_block(slow, heap, class, size);
            }
            // What capture allocates is not sampled, however short the period.
            budget.set(drawn.max(2 * class.block() as i64));
        } else if !heap.refill(slow, class) && budget.get() > 0 {
            return None;
        }
    }
}

/// The slab of an allocated block; `None` for a mapping that a signal handler got.
fn slab_of(p: *mut u8) -> Option<&'static Slab> {
    let page = arena::page_of(p)?;
    let slab = if page.owner.load(Ordering::Acquire) == owner::INTERIOR { page.head() } else { page };
    if slab.owner.load(Ordering::Acquire) == owner::NONE {
        free::invalid(p);
    }
    Some(slab)
}

/// Bytes that the block at `p` holds; 0 for null.
///
/// # Safety
/// `p` is null or an allocated block of this pool.
pub unsafe fn usable_size(p: *mut u8) -> usize {
    if p.is_null() {
        return 0;
    }
    match slab_of(p) {
        Some(slab) if slab.owner.load(Ordering::Relaxed) == owner::LARGE => slab.bytes(),
        Some(slab) => slab.class.get().block(),
        None => reentrant::usable_size(p).unwrap_or_else(|| free::invalid(p)),
    }
}

/// Changes a block's size, in place if it fits and wastes less than half; null and `ENOMEM` without memory (the
/// block then stays as it is).
///
/// # Safety
/// `p` is an allocated block of this pool; after success only the returned block is.
pub unsafe fn realloc(p: *mut u8, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        let usable = usable_size(p);
        if size <= usable && (size > usable / 2 || usable <= 64) {
            note_size(p, size);
            return p;
        }
        if size > MEDIUM_MAX
            && let Some(p) = realloc_large(p, size, align)
        {
            return p;
        }
        let new = malloc_aligned(size, align);
        if !new.is_null() {
            core::ptr::copy_nonoverlapping(p, new, size.min(usable));
            free::free(p);
        }
        new
    }
}

/// Blocks from this size on are moved by the kernel, page by page: below, copying is cheaper.
const MOVE_MIN: usize = 2 << 20;

/// Resizes a block that is large and stays large: in place, or by moving its pages. `None` if it has to be copied.
#[cold]
fn realloc_large(p: *mut u8, size: usize, align: usize) -> Option<*mut u8> {
    let span = slab_of(p).filter(|slab| slab.owner.load(Ordering::Relaxed) == owner::LARGE)?;
    let Entry::Heap(entered) = registry::enter() else { return None };
    if large::resize_in_place(entered.slow, span, size) {
        return Some(p);
    }
    if span.bytes() >= MOVE_MIN && align <= ARENA_PAGE {
        return large::move_to_larger(entered.slow, entered.heap, span, size);
    }
    None
}

/// Notes the new size of a block that stays where it is, if its size is recorded.
fn note_size(p: *mut u8, size: usize) {
    let Some(slab) = slab_of(p) else { return };
    let tag = slab.owner.load(Ordering::Relaxed);
    if tag != owner::LARGE && tag != owner::SAMPLED {
        return;
    }
    // A signal handler in the slow path goes without.
    let Entry::Heap(entered) = registry::enter() else { return };
    if tag == owner::LARGE {
        large::resize(entered.slow, slab, size);
    } else {
        sampler::resize_block(entered.slow, slab, p, size);
    }
}
