//! Making the memory of a large block read as zero, without giving memory to pages that have none.
//!
//! A block that `calloc` gives out may lie where another one was of which the program touched a part. To write zeroes
//! to all of it would make the rest resident: a program that asks for 64 MiB again and again and uses one of them
//! would have 64. So the kernel is asked which pages have memory (`mincore`), 1 to 2 us for each MiB, where to write
//! one takes 30 us and more.
//!
//! A page that the kernel names none for may be in the swap, and hold something. So it is given back, and not believed.
//! One that was only read counts as having memory, and has the kernel's page of zeroes. So pages are read before they
//! are written to; most that hold anything say so in their first bytes.

use crate::kernel::os;
use crate::pages::remap::{KERNEL_PAGE, is_zero};

/// Blocks of fewer bytes are written to as a whole.
const LEAST: usize = 1 << 20;
/// Pages that the kernel is asked about at once.
const ASKED: usize = 512;
/// Fewer pages than these without memory, in a row, are read: a call takes as long.
const ROW: usize = 16;

/// Makes `len` bytes at `p` read as zero.
///
/// # Safety
/// The bytes are a block's that the caller has, private and anonymous memory, and hold nothing of use.
pub unsafe fn clear(p: *mut u8, len: usize) {
    if len < LEAST {
        // SAFETY: the caller's promise.
        unsafe { p.write_bytes(0, len) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { clear_large(p, len) };
    }
}

/// # Safety
/// As for [`clear`].
#[cold]
#[inline(never)]
unsafe fn clear_large(p: *mut u8, len: usize) {
    let before = p.align_offset(KERNEL_PAGE).min(len);
    let pages = (len - before) / KERNEL_PAGE;
    let whole = pages * KERNEL_PAGE;
    // SAFETY: both parts lie in the block, and so do the pages between them.
    unsafe {
        p.write_bytes(0, before);
        p.add(before + whole).write_bytes(0, len - before - whole);
        let mut done = 0;
        while done < pages {
            let count = (pages - done).min(ASKED);
            clear_pages(p.add(before + done * KERNEL_PAGE), count);
            done += count;
        }
    }
}

/// Makes `count` pages read as zero, [`ASKED`] at most.
///
/// # Safety
/// As for [`clear`]; the pages are whole ones.
unsafe fn clear_pages(from: *mut u8, count: usize) {
    let mut has_memory = [0u8; ASKED];
    // SAFETY: there is a byte for each page.
    if !unsafe { os::resident(from as usize, count * KERNEL_PAGE, has_memory.as_mut_ptr()) } {
        has_memory.fill(1);
    }
    let mut left = &has_memory[..count];
    let mut page = from;
    while let Some(first) = left.first() {
        let row = left.iter().take_while(|byte| *byte & 1 == first & 1).count();
        let bytes = row * KERNEL_PAGE;
        // SAFETY: the pages are the caller's. Those that don't go back, since they are locked, are read.
        unsafe {
            if first & 1 != 0 || row < ROW || !os::decommit(page, bytes) {
                write_zeroes(page, row);
            }
            page = page.add(bytes);
        }
        left = &left[row..];
    }
}

/// Writes to those of `count` pages that hold anything.
///
/// # Safety
/// As for [`clear`]; the pages are whole ones.
unsafe fn write_zeroes(from: *mut u8, count: usize) {
    let mut done = 0;
    while done < count {
        // SAFETY: the pages are the caller's.
        unsafe {
            let holds = |page: &usize| !is_zero(from.add(page * KERNEL_PAGE), KERNEL_PAGE);
            let row = (done..count).take_while(holds).count();
            from.add(done * KERNEL_PAGE).write_bytes(0, row * KERNEL_PAGE);
            // Behind it lies a page that holds nothing, or the end.
            done += row + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Private anonymous memory that nobody has touched.
    struct Memory {
        p: *mut u8,
        len: usize,
    }

    impl Memory {
        fn new(len: usize) -> Self {
            let p = os::map(len);
            assert!(!p.is_null());
            // SAFETY: the mapping was just made. Huge pages would have memory where nothing was touched.
            assert_eq!(unsafe { libc::madvise(p.cast(), len, libc::MADV_NOHUGEPAGE) }, 0);
            Memory { p, len }
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the mapping is this value's.
            unsafe { core::slice::from_raw_parts_mut(self.p, self.len) }
        }

        fn resident(&self) -> Vec<bool> {
            let mut bytes = vec![0u8; self.len / KERNEL_PAGE];
            // SAFETY: there is a byte for each page.
            assert!(unsafe { os::resident(self.p as usize, self.len, bytes.as_mut_ptr()) });
            bytes.iter().map(|byte| byte & 1 != 0).collect()
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: the mapping is this value's.
            unsafe { libc::munmap(self.p.cast(), self.len) };
        }
    }

    #[test]
    fn what_was_touched_reads_as_zero_and_the_rest_gets_no_memory() {
        let mut memory = Memory::new(9 << 20);
        let touched = [(0, 1), (100, 40), (141, 1), (600, 1), (610, 1), (2000, 304)];
        for (page, count) in touched {
            memory.bytes()[page * KERNEL_PAGE..(page + count) * KERNEL_PAGE].fill(0xa5);
        }
        // From the middle of a page to the middle of another one.
        let (from, len) = (100, (9 << 20) - 300);
        // SAFETY: the bytes are the mapping's.
        unsafe { clear(memory.p.add(from), len) };
        let resident = memory.resident();
        let is_near = |page: usize| touched.iter().any(|(at, count)| page + ROW > *at && page < at + count + ROW);
        let far = (0..resident.len() - 1).filter(|page| resident[*page] && !is_near(*page)).collect::<Vec<_>>();
        assert!(far.is_empty(), "{far:?}");
        assert!(memory.bytes()[from..from + len].iter().all(|byte| *byte == 0));
        assert!(memory.bytes()[..from].iter().all(|byte| *byte == 0xa5));
    }
}
