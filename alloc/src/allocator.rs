//! The pool as an allocator of single containers.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::Poolscope;

/// The pool as the allocator of one container, while the rest of the program stays on the allocator that it has.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use poolscope_alloc::Pool;
///
/// let mut weights = Vec::new_in(Pool);
/// weights.extend([0.25_f32, 0.5, 0.25]);
///
/// let mut index = hashbrown::HashMap::new_in(Pool);
/// index.insert("conv1", weights.len());
/// ```
///
/// Blocks hold what was asked for at any alignment; a container that grows or shrinks stays where it is when its block
/// or the pages behind it allow that. Every `Pool` is the same pool: what one allocated, another may free, on any
/// thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool;

/// What stands for a block of no bytes.
fn empty(layout: Layout) -> NonNull<[u8]> {
    // SAFETY: an alignment is never 0.
    let p = unsafe { NonNull::new_unchecked(std::ptr::without_provenance_mut(layout.align())) };
    NonNull::slice_from_raw_parts(p, 0)
}

fn block(p: *mut u8, size: usize) -> Result<NonNull<[u8]>, AllocError> {
    NonNull::new(p).map(|p| NonNull::slice_from_raw_parts(p, size)).ok_or(AllocError)
}

impl Pool {
    /// A block with another layout and the contents of the old one, as far as they fit.
    ///
    /// # Safety
    /// As for [`Allocator::grow`] and [`Allocator::shrink`].
    unsafe fn resize(&self, p: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate(new);
        }
        if new.size() == 0 {
            // SAFETY: the caller's promise.
            unsafe { self.deallocate(p, old) };
            return Ok(empty(new));
        }
        if p.addr().get().is_multiple_of(new.align()) {
            // SAFETY: the block is the pool's. In place it has the new alignment already,
            // elsewhere `realloc` sees to it.
            return block(unsafe { poolscope_cpu::realloc(p.as_ptr(), new.size(), new.align()) }, new.size());
        }
        let grown = self.allocate(new)?;
        // SAFETY: two blocks, each of at least so many bytes; the old one is used no more.
        unsafe {
            p.copy_to_nonoverlapping(grown.cast(), old.size().min(new.size()));
            self.deallocate(p, old);
        }
        Ok(grown)
    }
}

// SAFETY: a block stays where it is until it is freed or resized, whichever copy of `Pool` and whichever thread asks:
// there is one pool in a process.
unsafe impl Allocator for Pool {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: the size is not 0.
        block(unsafe { Poolscope.alloc(layout) }, layout.size())
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(empty(layout));
        }
        // SAFETY: the size is not 0.
        block(unsafe { Poolscope.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn deallocate(&self, p: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: a block of this layout, by the caller's promise.
            unsafe { Poolscope.dealloc(p.as_ptr(), layout) }
        }
    }

    unsafe fn grow(&self, p: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(p, old, new) }
    }

    unsafe fn grow_zeroed(&self, p: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if old.size() == 0 {
            return self.allocate_zeroed(new);
        }
        // SAFETY: the caller's promise; behind the old contents, the new block holds the difference.
        unsafe {
            let grown = self.resize(p, old, new)?;
            grown.cast::<u8>().add(old.size()).write_bytes(0, new.size() - old.size());
            Ok(grown)
        }
    }

    unsafe fn shrink(&self, p: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(p, old, new) }
    }
}
