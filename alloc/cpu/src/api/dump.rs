//! A copy of what other processes see of the heap, in a file.

use core::ffi::{CStr, c_int};

use crate::census;
use crate::entry::{self, Entry};
use crate::kernel::os;
use crate::sampler;

/// Writes a copy of the segment to a file, with counters as of now: what `poolscope` reads of this process, for later
/// or for another machine. A file that is there is overwritten. On failure the error's number: `EAGAIN` from a signal
/// handler that interrupted the pool, `ENODATA` if the process has no segment (`POOLSCOPE_PLAIN=1`).
pub fn dump(path: &CStr) -> Result<(), c_int> {
    os::keep_errno(|| {
        let Entry::Heap(entered) = entry::enter() else { return Err(libc::EAGAIN) };
        census::take(entered.slow);
        sampler::copy_segment(entered.slow, path, 0)
    })
}
