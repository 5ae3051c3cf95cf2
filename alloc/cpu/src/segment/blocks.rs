//! Blocks of a file, set aside before they are touched: where there is no room, that is an answer here, and would be
//! `SIGBUS` later.
//!
//! Two things make it more than one call:
//!
//! - **A limit of file size** (`RLIMIT_FSIZE`, `ulimit -f`). The kernel sends `SIGXFSZ` to a thread that passes it, and
//!   its default ends the program. So the limit is looked at before, and the signal is held back meanwhile, for another
//!   thread may lower the limit in between.
//! - **Any signal.** tmpfs gives up when one arrives (`EINTR`), which is no lack of room. All are held back.

use core::ffi::c_int;

use crate::kernel::os;
use crate::kernel::system_call::system_call;

/// Bytes that a file of this process may have.
fn size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the limit.
    match unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// Makes `len` bytes from `offset` on of a file exist. Those that did already keep what they hold only where the file
/// system can set blocks aside; elsewhere they are written with zeroes. Whether they exist; errno may change.
pub(super) fn allocate(fd: c_int, offset: u64, len: u64) -> bool {
    if offset.checked_add(len).is_none_or(|end| end > size_limit()) {
        return false;
    }
    let before = os::block_signals(u64::MAX);
    // SAFETY: system calls on a descriptor, of which it does not matter whose it is.
    let result = unsafe { system_call!(libc::SYS_fallocate, fd, 0, offset, len) };
    let done = result == 0 || (os::errno() == libc::EOPNOTSUPP && write_zeroes(fd, offset, len));
    if !done && os::errno() == libc::EFBIG {
        os::take_back_signal(libc::SIGXFSZ, before);
    }
    os::set_blocked_signals(before);
    done
}

/// What a file system does not do by itself. Not by `posix_fallocate`: a cancelled thread would end in there.
#[cold]
fn write_zeroes(fd: c_int, offset: u64, len: u64) -> bool {
    const ZEROES: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < len {
        let part = (len - done).min(ZEROES.len() as u64);
        // SAFETY: reads at most as many bytes as there are.
        let written = unsafe { system_call!(libc::SYS_pwrite64, fd, ZEROES.as_ptr(), part, offset + done) };
        if written <= 0 {
            return false;
        }
        done += written as u64;
    }
    true
}
