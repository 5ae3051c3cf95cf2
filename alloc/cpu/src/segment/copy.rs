//! A copy of the segment in a file of the program's choice: as complete as the segment is, and readable where neither
//! the process nor its segment is.

use core::ffi::{CStr, c_int};

use super::Segment;
use crate::kernel::os;
use crate::kernel::system_call::system_call;

/// Writes what exists of the segment to a file, each part in its place: what does not exist is a hole and takes no
/// room. `how` are flags for opening it beside the usual ones. On failure the error's number; what was written by then
/// stays. The caller holds the sampler's lock, so that no record is changing.
pub fn copy(segment: &Segment, path: &CStr, how: c_int) -> Result<(), c_int> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOCTTY | how;
    // SAFETY: the path ends with zero.
    let fd = unsafe { os::open(path.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(os::errno());
    }
    let parts = segment.committed_parts();
    let mut result = Ok(());
    for (part, len) in parts {
        let offset = part as usize - segment.base as usize;
        result = write_at(fd, part, len, offset as u64);
        if result.is_err() {
            break;
        }
    }
    // SAFETY: the descriptor is this function's.
    unsafe { os::close(fd) };
    result
}

fn write_at(fd: c_int, from: *const u8, len: usize, offset: u64) -> Result<(), c_int> {
    let mut done = 0;
    while done < len {
        // SAFETY: reads a committed part of the segment.
        let written = unsafe { system_call!(libc::SYS_pwrite64, fd, from.add(done), len - done, offset + done as u64) };
        match written {
            written if written > 0 => done += written as usize,
            0 => return Err(libc::ENOSPC),
            _ if os::errno() == libc::EINTR => {}
            _ => return Err(os::errno()),
        }
    }
    Ok(())
}
