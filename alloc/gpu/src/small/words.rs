//! Words about device memory, which the host never touches: some for each unit of it.
//!
//! They are memory of the kernel's own, which makes a page of them when the first of them is written, and gives it back
//! with the table. Plain loads and stores will do where who frees a block got its address from who allocated it.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// The words of so many bytes of device memory, all 0 at first: as many for each unit of it as are said last.
pub struct Words<const BYTES: u64, const UNIT: u64, const EACH: usize>(NonNull<[AtomicU32; EACH]>);

// SAFETY: it owns a mapping of atomic words, which any thread may use.
unsafe impl<const BYTES: u64, const UNIT: u64, const EACH: usize> Send for Words<BYTES, UNIT, EACH> {}
// SAFETY: as above.
unsafe impl<const BYTES: u64, const UNIT: u64, const EACH: usize> Sync for Words<BYTES, UNIT, EACH> {}

impl<const BYTES: u64, const UNIT: u64, const EACH: usize> Words<BYTES, UNIT, EACH> {
    const LAYOUT: Layout = match Layout::array::<[AtomicU32; EACH]>((BYTES / UNIT) as usize) {
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

    /// The words of a unit by its offset in the memory, which is taken modulo all of it.
    #[inline]
    pub fn at(&self, offset: u64) -> &[AtomicU32; EACH] {
        let at = (offset % BYTES / UNIT) as usize;
        // SAFETY: the mapping has words for each unit, which begin as 0, and stays as long as this.
        unsafe { self.0.add(at).as_ref() }
    }
}

impl<const BYTES: u64, const UNIT: u64, const EACH: usize> Drop for Words<BYTES, UNIT, EACH> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's alone. A failure would leave it there.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::LAYOUT.size()) };
    }
}
