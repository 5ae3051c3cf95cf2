//! Which small blocks the program has: a word for every 256 bytes that a slab may lie in, set while a block that begins
//! there is the program's.
//!
//! The host never touches device memory, so a block can't carry the mark itself. A free that finds no mark is refused:
//! of a block that was freed before, of an address inside of one. Marks are plain stores, because who frees a block got
//! its address from who allocated it. Two threads that free one block at the same moment may both find the mark, on the
//! fast path; a hardened pool has none.
//!
//! A word and not a bit, so that threads don't write to the same word; and as long as that a batch of the smallest
//! blocks, which goes to one thread, has a cache line of its own. The kernel makes a page of words when the first of
//! its blocks is allocated.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// So many words, all 0 at first: memory of the kernel's own, which is no block of the program's allocator.
pub struct Words<const COUNT: usize>(NonNull<AtomicU32>);

// SAFETY: it owns a mapping of atomic words, which any thread may use.
unsafe impl<const COUNT: usize> Send for Words<COUNT> {}
// SAFETY: as above.
unsafe impl<const COUNT: usize> Sync for Words<COUNT> {}

impl<const COUNT: usize> Words<COUNT> {
    const LAYOUT: Layout = match Layout::array::<AtomicU32>(COUNT) {
        Ok(layout) => layout,
        Err(_) => panic!("there are not so many addresses"),
    };

    pub fn new() -> Self {
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: the kernel finds a place for a mapping of its own.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), Self::LAYOUT.size(), access, flags, -1, 0) };
        match NonNull::new(first) {
            Some(mapping) if first != libc::MAP_FAILED => Words(mapping.cast()),
            _ => handle_alloc_error(Self::LAYOUT),
        }
    }

    /// A word by its number, which is taken modulo all of them.
    #[inline]
    pub fn at(&self, number: usize) -> &AtomicU32 {
        // SAFETY: the mapping has so many words, which begin as 0, and stays as long as this.
        unsafe { self.0.add(number % COUNT).as_ref() }
    }
}

impl<const COUNT: usize> Drop for Words<COUNT> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's alone. A failure would leave it there.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::LAYOUT.size()) };
    }
}
