//! Moving the memory of a large block to other addresses without copying it, by `mremap`.
//!
//! Four things of the kernel's and of emulators' shape this:
//!
//! - **It does not move all or nothing.** The destination is unmapped first, and a range of several mappings is refused
//!   after that before Linux 6.17, and moved piece by piece from then on. So a range is asked about first, and each of
//!   its mappings is moved by a call of its own. A piece that can't be moved is copied; a hole that a failed call
//!   leaves is closed again, unless another thread's mapping was faster: then what was moved comes back by copying, and
//!   the destination's addresses are given up.
//! - **What is moved keeps the offset of where it came from** (`vm_pgoff`), so that its mapping never becomes one with
//!   its neighbours. A range that is mapped anew ([`renew`]) is like them again, but has lost its memory.
//! - **A process has some 65,000 mappings** (`vm.max_map_count`), then no thread starts and no library loads. So the
//!   pool's are counted, by guess and now and then by the kernel's list. From [`KEPT_MAX`] on a block that was moved is
//!   renewed when it is freed, from [`MAPPINGS_MAX`] on blocks are copied.
//! - **qemu-user takes what was moved away for unmapped** (`target_mremap`, up to version 10 at least): vector loads from
//!   there end the program, system calls refuse it, and `MADV_DONTNEED` says that it worked and does nothing. So the
//!   first range that is moved is tried ([`is_kept`]), and where it is forgotten, blocks are copied from then on.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::kernel::aside::aside;
use crate::kernel::os;
use crate::layout::arena;
use crate::pages::system::System;

/// Most mappings that blocks which were moved may have: a quarter of what a process has by default.
const MAPPINGS_MAX: usize = 16 * 1024;
/// A block of more mappings is copied: then it is one.
const PIECES_MAX: usize = 8;
/// Bytes of a page of the kernel's.
pub(super) const KERNEL_PAGE: usize = 4096;

/// Mappings up to which the memory of a moved block stays, when it is freed, for the next one.
const KEPT_MAX: usize = 1024;
/// After so many more by the guess, the kernel is asked.
const COUNT_EVERY: usize = 256;

/// Mappings that moves have made, by guess: one that lies where an earlier one was takes its place.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);
/// The guess at which the kernel is asked again.
static COUNT_AT: AtomicUsize = AtomicUsize::new(KEPT_MAX);

/// Whether ranges that memory was moved away from were seen to stay usable, or to be forgotten.
static KEPT: AtomicBool = AtomicBool::new(false);
static FORGOTTEN: AtomicBool = AtomicBool::new(false);

/// Whether any memory was moved, so that there may be more mappings than needed.
pub fn has_moved() -> bool {
    MAPPINGS.load(Ordering::Relaxed) > 0
}

/// Whether there are so many mappings that what is freed is to be renewed.
pub fn is_crowded() -> bool {
    let guess = MAPPINGS.load(Ordering::Relaxed);
    if guess <= KEPT_MAX || guess < COUNT_AT.load(Ordering::Relaxed) {
        return guess > KEPT_MAX;
    }
    // Not on the program's stack, which may be small.
    let Some(counted) = aside(count) else { return true };
    MAPPINGS.store(counted, Ordering::Relaxed);
    COUNT_AT.store(counted.max(KEPT_MAX) + COUNT_EVERY, Ordering::Relaxed);
    counted > KEPT_MAX
}

/// The mappings of all arenas, by `/proc/self/maps`. `None` where there is no such file.
fn count() -> Option<usize> {
    let mut lines = Lines { address: 0, is_at_start: true, in_arenas: 0 };
    os::read_whole_file(c"/proc/self/maps", |bytes| bytes.iter().for_each(|&byte| lines.take(byte)))
        .then_some(lines.in_arenas)
}

/// Lines that begin with an address of an arena's.
struct Lines {
    address: usize,
    /// The address is being read.
    is_at_start: bool,
    in_arenas: usize,
}

impl Lines {
    fn take(&mut self, byte: u8) {
        match (byte, (byte as char).to_digit(16)) {
            (b'\n', _) => (self.address, self.is_at_start) = (0, true),
            (_, Some(digit)) if self.is_at_start => self.address = self.address << 4 | digit as usize,
            _ if self.is_at_start => {
                self.is_at_start = false;
                self.in_arenas += usize::from(arena::is_of_arena(self.address));
            }
            _ => {}
        }
    }
}

/// What came of moving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The memory is at the destination, in so many mappings; the source reads as zero.
    Yes(u16),
    /// Everything is as it was; what the destination holds does not matter.
    No,
    /// The memory is where it was, and the destination's addresses are not all the pool's any more.
    Lost,
}

/// Moves `len` bytes from `from` to `to`.
///
/// # Safety
/// Both ranges are the caller's, usable, private and anonymous, whole pages, apart from each other;
/// `to` holds nothing of use.
pub unsafe fn move_pages<S: System>(system: &S, from: *mut u8, to: *mut u8, len: usize) -> Moved {
    if MAPPINGS.load(Ordering::Relaxed) > MAPPINGS_MAX || FORGOTTEN.load(Ordering::Relaxed) {
        return Moved::No;
    }
    let mut ends = [0; PIECES_MAX];
    let Some(pieces) = mappings_of(system, from, len, &mut ends) else { return Moved::No };
    let mut begin = 0;
    for &end in ends.iter().take(pieces) {
        // SAFETY: the piece lies in both ranges.
        let (source, destination) = unsafe { (from.add(begin), to.add(begin)) };
        // SAFETY: as above.
        match unsafe { move_mapping(system, source, destination, end - begin) } {
            Moved::Yes(_) => {}
            // It need not fail again, but it would be copied piece by piece.
            Moved::No if begin == 0 => return Moved::No,
            // SAFETY: both pieces are usable, and the source is whole.
            Moved::No => unsafe { copy(source, destination, end - begin, false) },
            Moved::Lost => {
                // SAFETY: what was moved is at the destination; the source is usable, and reads as zero there.
                unsafe { copy(to, from, begin, true) };
                return Moved::Lost;
            }
        }
        begin = end;
    }
    // The destination parts what it lies in.
    let mappings = pieces as u16 + 1;
    MAPPINGS.fetch_add(mappings.into(), Ordering::Relaxed);
    Moved::Yes(mappings)
}

/// Moves a range that is one mapping.
///
/// # Safety
/// As for [`move_pages`].
unsafe fn move_mapping<S: System>(system: &S, from: *mut u8, to: *mut u8, len: usize) -> Moved {
    // SAFETY: the caller's promise.
    unsafe {
        if system.remap(from, to, len) {
            if !KEPT.load(Ordering::Relaxed) {
                try_source(system, from, len);
            }
            return Moved::Yes(1);
        }
        // Whatever it was, the source is whole. The destination is a hole, or it was not looked at.
        if system.close_hole(to, len) || system.has_no_hole(to, len) { Moved::No } else { Moved::Lost }
    }
}

/// Looks, until that is known, whether a range that memory was just moved away from stays usable, and makes it so.
///
/// # Safety
/// As for [`is_kept`].
#[cold]
unsafe fn try_source<S: System>(system: &S, from: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    match unsafe { is_kept(system, from, len) } {
        Some(true) => KEPT.store(true, Ordering::Relaxed),
        Some(false) => {
            FORGOTTEN.store(true, Ordering::Relaxed);
            // What is mapped anew is known again.
            // SAFETY: the caller's promise.
            unsafe { system.renew(from, len) };
        }
        None => {}
    }
}

/// Whether pages of a range that memory was just moved away from go back to the system as others do; it reads as zero
/// again if so. `None` if they can't go back at all (`mlockall`).
///
/// # Safety
/// The range is the caller's, usable, private and anonymous, and reads as zero.
unsafe fn is_kept<S: System>(system: &S, from: *mut u8, len: usize) -> Option<bool> {
    // SAFETY: the caller's promise. The compiler must not know what is read.
    unsafe {
        from.write_volatile(1);
        let gone = system.decommit(from, len);
        let kept = gone.then(|| from.read_volatile() == 0);
        if kept != Some(true) {
            from.write_volatile(0);
        }
        kept
    }
}

/// The mappings that a range is made of: their number, and where each ends, from the range's start. `None` if they are
/// too many.
fn mappings_of<S: System>(system: &S, p: *mut u8, len: usize, ends: &mut [usize; PIECES_MAX]) -> Option<usize> {
    let is_one = |from: usize, to: usize| system.is_one_mapping((p as usize + from) as *mut u8, to - from);
    let mut begin = 0;
    for (at, end) in ends.iter_mut().enumerate() {
        if is_one(begin, len) {
            *end = len;
            return Some(at + 1);
        }
        // The longest start that is one mapping; one page always is.
        let (mut good, mut bad) = (begin + KERNEL_PAGE, len);
        while bad - good > KERNEL_PAGE {
            let middle = good + (bad - good) / 2 / KERNEL_PAGE * KERNEL_PAGE;
            if is_one(begin, middle) {
                good = middle;
            } else {
                bad = middle;
            }
        }
        *end = good;
        begin = good;
    }
    None
}

/// Copies `len` bytes of a large block; nothing that was never touched is touched at the destination if that reads as
/// zero.
///
/// # Safety
/// The source can be read, the destination can be written to, and they are apart.
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize, to_is_zero: bool) {
    let mut at = 0;
    while at < len {
        let part = (len - at).min(KERNEL_PAGE);
        // SAFETY: the caller's promise.
        unsafe {
            if !(to_is_zero && is_zero(from.add(at), part)) {
                core::ptr::copy_nonoverlapping(from.add(at), to.add(at), part);
            }
        }
        at += part;
    }
}

/// Whether bytes are all zero.
///
/// # Safety
/// They can be read.
pub(super) unsafe fn is_zero(from: *const u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    let bytes = unsafe { core::slice::from_raw_parts(from, len) };
    // A page that holds anything mostly says so in its first bytes.
    bytes.chunks(128).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

/// Makes a range that memory was moved to like what lies around it; it reads as zero then. `mappings` is what
/// [`move_pages`] said, or 0. Returns whether it worked.
///
/// # Safety
/// The range is the caller's, usable, private and anonymous, and holds nothing of use.
pub unsafe fn renew<S: System>(system: &S, p: *mut u8, len: usize, mappings: u16) -> bool {
    // SAFETY: the caller's promise.
    let renewed = unsafe { system.renew(p, len) };
    // What can't be renewed stays a mapping of its own, and counts.
    if renewed && mappings > 0 {
        let less = |guess: usize| Some(guess.saturating_sub(mappings.into()).max(1));
        let _ = MAPPINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
    renewed
}

#[cfg(test)]
mod tests;
