//! `realloc`, and how much a block holds.

use core::sync::atomic::Ordering;

use crate::calls::free::free;
use crate::calls::malloc::malloc_aligned;
use crate::calls::traced;
use crate::entry::{self, Entry};
use crate::hardened;
use crate::hooks;
use crate::kernel::os;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::lean;
use crate::layout::misuse;
use crate::layout::size_class::MEDIUM_MAX;
use crate::layout::slab::owner;
use crate::pages::remap;
use crate::sampler;
use crate::serve::{self, heartbeat, large, reentrant};
use crate::sync::reasons;
use crate::tracer;

/// Bytes that the block at `p` holds; 0 for null.
///
/// # Safety
/// `p` is null or an allocated block of this pool.
pub unsafe fn usable_size(p: *mut u8) -> usize {
    if p.is_null() {
        return 0;
    }
    if hardened::is_on() {
        return hardened::usable_size(p);
    }
    serve::allocate::block_bytes(p).or_else(|| reentrant::usable_size(p)).unwrap_or_else(|| misuse::invalid(p))
}

/// Changes a block's size, in place if it fits and wastes less than half; null and `ENOMEM` without memory (the
/// block then stays as it is).
///
/// # Safety
/// `p` is an allocated block of this pool; after success only the returned block is.
pub unsafe fn realloc(p: *mut u8, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if hardened::is_on() && !hardened::may_resize(p) {
            os::set_errno(libc::ENOMEM);
            return core::ptr::null_mut();
        }
        let usable = usable_size(p);
        if reasons::is_on() {
            return realloc_seen(p, usable, size, align);
        }
        realloc_unseen(p, usable, size, align)
    }
}

/// # Safety
/// As for [`realloc_unseen`].
#[cold]
unsafe fn realloc_seen(p: *mut u8, usable: usize, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let resize = || unsafe { realloc_unseen(p, usable, size, align) };
    let tell = || if tracer::is_on() { traced::realloc(p, size, resize) } else { resize() };
    if hooks::are_on() { hooks::around_realloc(p, usable, size, align, tell) } else { tell() }
}

/// # Safety
/// As for [`realloc`]; the block holds `usable` bytes.
unsafe fn realloc_unseen(p: *mut u8, usable: usize, size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        if hardened::is_on() {
            return realloc_by_copy(p, usable, size, align);
        }
        if size <= usable && (size > usable / 2 || usable <= 64) {
            note_size(p, size);
            return p;
        }
        if (size > MEDIUM_MAX || lean::is_on())
            && let Some(p) = realloc_large(p, size, align)
        {
            return p;
        }
        realloc_by_copy(p, usable, size, align)
    }
}

/// # Safety
/// As for [`realloc_unseen`].
unsafe fn realloc_by_copy(p: *mut u8, usable: usize, size: usize, align: usize) -> *mut u8 {
    let new = if size > usable && size > MEDIUM_MAX { allocate_growing(size, align) } else { None };
    // No closure: its frame would be the standard library's, between the pool's own, which are left out of stacks.
    let (new, zero) = match new {
        Some(new) => new,
        // A new block reads as zero in the hardened mode.
        None => (malloc_aligned(size, align), hardened::is_on()),
    };
    if !new.is_null() {
        // SAFETY: the caller's promise; the new block holds `size` bytes.
        unsafe {
            if usable < MOVE_MIN || lean::is_on() {
                core::ptr::copy_nonoverlapping(p, new, size.min(usable));
            } else {
                remap::copy(p, new, size.min(usable), zero);
            }
            free(p);
        }
    }
    new
}

/// A large block for one that has outgrown its own, and will do so again, and whether it reads as zero.
/// `None` if it can't be.
#[cold]
fn allocate_growing(size: usize, align: usize) -> Option<(*mut u8, bool)> {
    if align > ARENA_PAGE || hardened::is_on() {
        return None;
    }
    let Entry::Heap(entered) = entry::enter() else { return None };
    large::alloc_growing(entered.slow, entered.heap, size)
}

/// Blocks from this size on are moved by the kernel, page by page: below, copying is cheaper.
const MOVE_MIN: usize = 2 << 20;

/// Resizes a block that is large and stays large: in place, or by moving its pages. `None` if it has to be copied, null
/// if it may not grow.
#[cold]
fn realloc_large(p: *mut u8, size: usize, align: usize) -> Option<*mut u8> {
    let span = serve::allocate::slab_of(p).filter(|slab| slab.owner.load(Ordering::Relaxed) == owner::LARGE)?;
    let Entry::Heap(entered) = entry::enter() else { return None };
    heartbeat::poll(entered.slow);
    if size > span.bytes() && sampler::is_refused(entered.slow, entered.heap) {
        return Some(core::ptr::null_mut());
    }
    if large::resize_in_place(entered.slow, entered.heap, span, size) {
        return Some(p);
    }
    if span.bytes() >= MOVE_MIN && align <= ARENA_PAGE {
        return large::move_to_larger(entered.slow, entered.heap, span, size);
    }
    None
}

/// Notes the new size of a block that stays where it is, if its size is recorded.
fn note_size(p: *mut u8, size: usize) {
    let Some(slab) = serve::allocate::slab_of(p) else { return };
    let tag = slab.owner.load(Ordering::Relaxed);
    if tag != owner::LARGE && tag != owner::SAMPLED {
        return;
    }
    // A signal handler in the slow path goes without.
    let Entry::Heap(entered) = entry::enter() else { return };
    if tag == owner::LARGE {
        large::resize(entered.slow, entered.heap, slab, size);
    } else {
        sampler::resize_block(entered.slow, slab, p, size);
    }
}
