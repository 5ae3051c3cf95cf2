//! A copy of the process with the calling thread alone, and memory that both share.

use core::ptr::null_mut;

use super::{clock_ns, errno, keep_errno, sleep_us};
use crate::kernel::system_call::system_call;

/// Maps `len` bytes of zeroed memory that a forked child shares; null on failure.
pub fn map_shared(len: usize) -> *mut u8 {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    keep_errno(|| {
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let p = unsafe { libc::mmap(null_mut(), len, access, kind | libc::MAP_NORESERVE, -1, 0) };
        if p == libc::MAP_FAILED { null_mut() } else { p.cast() }
    })
}

/// A copy of the process, as its parent sees it.
pub struct Copy(libc::c_long);

/// Microseconds between two looks whether a copy has ended.
const LOOK_US: u32 = 300;

impl Copy {
    /// Copies the process. `None` in the copy. No handler of the program's for forks runs, and its end sends no signal.
    ///
    /// # Safety
    /// The copy touches nothing that another thread may have been changing, and ends by [`end_copy`].
    pub unsafe fn make() -> Option<Copy> {
        // SAFETY: the copy goes on here, on its copy of this stack.
        let result = keep_errno(|| unsafe { system_call!(libc::SYS_clone, 0, 0, 0, 0, 0) });
        (result != 0).then_some(Copy(result))
    }

    /// Waits until the copy has ended, and ends it after `limit_ns`. False if it could not be made.
    pub fn wait(self, limit_ns: u64) -> bool {
        let Copy(pid) = self;
        if pid < 0 {
            return false;
        }
        let end = clock_ns(libc::CLOCK_MONOTONIC) + limit_ns;
        let mut killed = false;
        loop {
            let options = libc::WNOHANG | libc::__WALL;
            let (result, error) = keep_errno(|| {
                let none = null_mut::<libc::c_int>();
                // SAFETY: a child of this process's own, and nothing is written.
                (unsafe { system_call!(libc::SYS_wait4, pid, none, options, none) }, errno())
            });
            // The program itself may have waited for it.
            if result == pid || (result < 0 && error != libc::EINTR) {
                return true;
            }
            if !killed && clock_ns(libc::CLOCK_MONOTONIC) > end {
                killed = true;
                // SAFETY: as above.
                keep_errno(|| unsafe { system_call!(libc::SYS_kill, pid, libc::SIGKILL) });
            }
            sleep_us(LOOK_US);
        }
    }
}

/// Ends the copy.
pub fn end_copy() -> ! {
    loop {
        // SAFETY: ends the calling process, which has one thread.
        unsafe { system_call!(libc::SYS_exit_group, 0) };
    }
}
