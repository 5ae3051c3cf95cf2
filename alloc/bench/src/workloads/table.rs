//! The workloads' own memory, which must not come from the allocator that they measure.

use std::ops::{Deref, DerefMut};

/// A slice in pages of its own, all of them touched.
pub struct Table<T: Copy> {
    start: *mut T,
    len: usize,
}

impl<T: Copy> Table<T> {
    /// `len` times `value`.
    pub fn new(len: usize, value: T) -> Table<T> {
        let bytes = len * size_of::<T>();
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages, wherever the kernel likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        assert!(start != libc::MAP_FAILED, "no memory for a table of {bytes} bytes");
        let start = start.cast::<T>();
        for index in 0..len {
            // SAFETY: inside the mapping, which is aligned to a page.
            unsafe { start.add(index).write(value) };
        }
        Table { start, len }
    }
}

impl<T: Copy> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` wrote all of it.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl<T: Copy> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T: Copy> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody borrows any more.
        unsafe { libc::munmap(self.start.cast(), self.len * size_of::<T>()) };
    }
}
