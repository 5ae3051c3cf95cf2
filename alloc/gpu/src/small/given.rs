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

use super::classes::size_of;

/// The words of so many bytes of device memory, all 0 at first: memory of the kernel's own, which is no block of the
/// program's allocator.
pub struct Words<const BYTES: u64>(NonNull<AtomicU32>);

// SAFETY: it owns a mapping of atomic words, which any thread may use.
unsafe impl<const BYTES: u64> Send for Words<BYTES> {}
// SAFETY: as above.
unsafe impl<const BYTES: u64> Sync for Words<BYTES> {}

impl<const BYTES: u64> Words<BYTES> {
    const LAYOUT: Layout = match Layout::array::<AtomicU32>((BYTES / size_of(0)) as usize) {
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

    /// The word of a block by its offset in the memory, which is taken modulo all of it.
    #[inline]
    pub fn at(&self, offset: u64) -> &AtomicU32 {
        let at = (offset % BYTES / size_of(0)) as usize;
        // SAFETY: the mapping has a word for each block, which begins as 0, and stays as long as this.
        unsafe { self.0.add(at).as_ref() }
    }
}

impl<const BYTES: u64> Drop for Words<BYTES> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's alone. A failure would leave it there.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::LAYOUT.size()) };
    }
}
