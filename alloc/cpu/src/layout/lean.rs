//! A narrow limit of data (`RLIMIT_DATA`, `ulimit -d`): memory is made usable block by block,
//! and closed when it is free.
//!
//! The kernel counts what may be written to, whether it is touched or not. A pool that makes 64 KiB usable for each
//! class of blocks then takes several times what the program needs. So under a narrow limit the page heap's spans are
//! only addresses. A slab opens the pages of the blocks that are cut from it ([`open`]), a large block its own; a span
//! that is freed is closed as a whole. That takes a system call for each of these, and a mapping, so it is done where
//! the limit is narrow at the start of the process. A plain pool can't ask for the limit, and tries. Whoever limits
//! itself later has the kernel refuse what is new, and keeps what there is.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::kernel::os;
use crate::layout::slab::Slab;
use crate::settings::{self, Huge, Numa};

/// A limit below this is narrow.
const NARROW: usize = 64 << 20;
/// The least that a plain pool tries: with less, no program starts.
const NARROW_LEAST: usize = 256 << 10;
const KERNEL_PAGE: usize = 4096;
/// Blocks of more bytes have spans of their own: freed, they are to be no part of a slab that stays.
pub const IN_SLABS: usize = 16 << 10;

static ON: AtomicBool = AtomicBool::new(false);

/// Looks at the limit. To be called before the first span is taken.
pub fn start() {
    let settings = settings::current();
    if settings.plain() {
        os::try_data_limit(NARROW, NARROW_LEAST);
    }
    // A plain pool has neither huge pages nor nodes.
    let is_simple = settings.plain() || settings.huge() == Huge::System && settings.numa() == Numa::Off;
    ON.store(is_simple && os::data_limit() < NARROW, Ordering::Relaxed);
}

/// Whether memory is opened and closed.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The bytes of whole pages that `bytes` bytes take, at least one.
pub fn pages_of(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(KERNEL_PAGE)
}

/// Makes the bytes of a span from `from` up to `to` usable, both multiples of a page. False without memory.
#[cold]
pub fn open(span: &'static Slab, from: usize, to: usize) -> bool {
    debug_assert!(to <= span.bytes());
    // SAFETY: the range is the span's; what is usable already stays as it is.
    from >= to || unsafe { os::commit(span.address().add(from), to - from) }
}

/// Takes memory and access from the bytes of a span from `from` on, up to `to`. Whether they will read as zero.
#[cold]
pub fn close(span: &'static Slab, from: usize, to: usize) -> bool {
    // SAFETY: the range is the span's, and holds nothing of use.
    from >= to || unsafe { os::close_pages(span.address().add(from), to - from) }
}
