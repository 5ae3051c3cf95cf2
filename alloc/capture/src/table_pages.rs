//! Pages of unwind tables, given back when a walk has read them.
//!
//! A rule is learned once, from tables that lie all over a module's file. Around each byte that is touched the kernel
//! maps 64 KiB of the file and more, so the tables of other libraries would be most of what sampling adds to a small
//! program. The first walks that read tables leave none of them mapped. The system's cache of files has them as before,
//! and who touches them next (another walk, an exception that is thrown) has them mapped again.
//!
//! Only what is the file's own goes back, of segments to which nobody is to write: a page that somebody has written to
//! all the same (a relocation, a debugger) is memory of the process, and then all of that module's stay.
//! `/proc/self/pagemap` tells the one from the other.

use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::loader;
use crate::system;

/// Walks after which tables are given back. A program that has met more new stacks is a large one, and keeps what the
/// next walk is likely to read.
const WALKS: u32 = 64;

/// Walks that have read tables so far, up to [`WALKS`].
static SO_FAR: AtomicU32 = AtomicU32::new(0);

/// The kernel's table of the process's pages: a word for each (`Documentation/admin-guide/mm/pagemap.rst`).
const PAGEMAP: &CStr = c"/proc/self/pagemap";
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A page of a file, or one that processes share.
const OF_FILE: u64 = 1 << 61;

/// Pages that are looked at together.
const PART: usize = 128;

/// Whether a walk that has read tables is to give them back.
pub(crate) fn is_due() -> bool {
    let so_far = SO_FAR.load(Ordering::Relaxed);
    if so_far < WALKS {
        SO_FAR.store(so_far.wrapping_add(1), Ordering::Relaxed);
    }
    so_far < WALKS
}

/// Gives back the pages between the addresses of each of these tables, of modules that are there until this returns, if
/// all of a table's that are mapped are the file's.
#[inline(never)]
pub(crate) fn give_back(tables: impl Iterator<Item = Range<usize>>) {
    let Some(page) = loader::page_size() else { return };
    let Some(pagemap) = system::File::open(PAGEMAP) else {
        // It will not be there the next time.
        SO_FAR.store(WALKS, Ordering::Relaxed);
        return;
    };
    for addresses in tables {
        let (first, end) = (addresses.start.div_ceil(page), addresses.end.div_ceil(page));
        if is_of_file(&pagemap, first..end) {
            let (start, bytes) = (first.wrapping_mul(page), end.wrapping_sub(first).wrapping_mul(page));
            // SAFETY: the pages hold what their file holds at these places, and are read from there again. Nobody
            // writes to a segment that is not to be written to, between the look and this.
            unsafe { system::unmap_pages_of_file(start, bytes) };
        }
    }
}

/// Whether some of these pages are mapped, and all of those are a file's.
fn is_of_file(pagemap: &system::File, pages: Range<usize>) -> bool {
    let mut words = [0u64; PART];
    let mut is_mapped = false;
    let mut at = pages.start;
    while at < pages.end {
        let part = PART.min(pages.end.wrapping_sub(at));
        let Some(part) = words.get_mut(..part) else { return false };
        if !pagemap.read_words(part, at as u64) {
            return false;
        }
        if part
            .iter()
            .any(|word| word & (PRESENT | SWAPPED) != 0 && word & (PRESENT | SWAPPED | OF_FILE) != PRESENT | OF_FILE)
        {
            return false;
        }
        is_mapped |= part.iter().any(|word| word & PRESENT != 0);
        at = at.wrapping_add(PART);
    }
    is_mapped
}
