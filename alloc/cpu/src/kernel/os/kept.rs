//! Descriptors that stay open although the program knows nothing of them.
//!
//! It may close one, and have another file by its number. So each is used only if it still stands for the file that was
//! opened. Their numbers are high, where programs seldom look for theirs.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::limits::open_files_limit;
use super::{close, file_state, keep_errno};
use crate::kernel::system_call::system_call;

/// Numbers lie this many below the largest one that the process may have, or below the largest that is usual.
const BELOW_LIMIT: usize = 16;
const USUAL_LIMIT: usize = 1024;

/// A descriptor that is kept, or none. One thread at a time changes it.
pub struct Kept {
    /// Its number and one; 0 for none.
    number: AtomicU32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Kept {
    /// None.
    pub const fn none() -> Kept {
        Kept { number: AtomicU32::new(0), device: AtomicU64::new(0), inode: AtomicU64::new(0) }
    }

    /// Its number, if it still stands for what was opened.
    #[cold]
    #[inline(never)]
    pub fn number(&self) -> Option<c_int> {
        let number = self.number.load(Ordering::Relaxed).checked_sub(1)? as c_int;
        let known = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
        (identity(number)? == known).then_some(number)
    }

    /// Keeps what a descriptor stands for from now on, in the place of what was kept.
    pub fn keep(&self, opened: &Descriptor) {
        let from = open_files_limit().min(USUAL_LIMIT).saturating_sub(BELOW_LIMIT);
        // SAFETY: a system call on numbers.
        let number = keep_errno(|| unsafe {
            system_call!(libc::SYS_fcntl, opened.number, libc::F_DUPFD_CLOEXEC, from) as c_int
        });
        let Some((device, inode)) = identity(number) else { return };
        self.end();
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        self.number.store(number as u32 + 1, Ordering::Relaxed);
    }

    /// Keeps nothing any more.
    #[cold]
    #[inline(never)]
    pub fn end(&self) {
        if let Some(old) = self.number() {
            // SAFETY: the descriptor is this value's.
            keep_errno(|| unsafe { close(old) });
        }
        self.number.store(0, Ordering::Relaxed);
    }

    /// What is kept, to be used.
    #[cold]
    #[inline(never)]
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.number().map(|number| Descriptor { number, is_kept: true })
    }
}

/// What tells an open file from others.
fn identity(number: c_int) -> Option<(u64, u64)> {
    // SAFETY: the path ends with zero.
    let state = keep_errno(|| unsafe { file_state(number, c"".as_ptr()) });
    state.map(|state| (state.st_dev, state.st_ino))
}

/// An open file or folder. It is closed when this is dropped, unless it is a kept one.
pub struct Descriptor {
    number: c_int,
    is_kept: bool,
}

impl Descriptor {
    /// Opens what is at a path, from a folder on; `None` on failure, with errno changed.
    pub fn open_at(folder: c_int, path: &CStr, flags: c_int, mode: u32) -> Option<Descriptor> {
        // SAFETY: the path ends with zero.
        let number =
            unsafe { system_call!(libc::SYS_openat, folder, path.as_ptr(), flags | libc::O_CLOEXEC, mode) as c_int };
        (number >= 0).then_some(Descriptor { number, is_kept: false })
    }

    /// The same by its path alone.
    pub fn open(path: &CStr, flags: c_int) -> Option<Descriptor> {
        Self::open_at(libc::AT_FDCWD, path, flags, 0)
    }

    /// Its number.
    pub fn number(&self) -> c_int {
        self.number
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if !self.is_kept {
            // SAFETY: the descriptor is this value's.
            keep_errno(|| unsafe { close(self.number) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use libc::dup2;

    use super::*;

    #[test]
    fn what_is_kept_has_a_high_number_and_outlives_what_was_opened() {
        let kept = Kept::none();
        assert!(kept.descriptor().is_none());
        kept.keep(&Descriptor::open(c"/proc/self/maps", libc::O_RDONLY).expect("a file"));
        let number = kept.number().expect("it is kept");
        assert!(number >= 256, "{number}");
        drop(kept.descriptor());
        assert_eq!(kept.number(), Some(number));
        kept.end();
        assert!(kept.number().is_none() && identity(number).is_none());
    }

    #[test]
    fn a_number_that_stands_for_another_file_is_not_used_and_not_closed() {
        let kept = Kept::none();
        kept.keep(&Descriptor::open(c"/proc/self/maps", libc::O_RDONLY).expect("a file"));
        let number = kept.number().expect("it is kept");
        let pipe = std::io::pipe().expect("a pipe").0;
        // SAFETY: both are this process's, and nobody else uses the second.
        unsafe { dup2(pipe.as_raw_fd(), number) };
        assert!(kept.number().is_none() && kept.descriptor().is_none());
        kept.end();
        assert!(identity(number).is_some(), "it is the program's");
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
}
