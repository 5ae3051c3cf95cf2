//! When a process started: what tells it from others that had its id.

use core::ffi::CStr;

use poolscope_wire::Header;

use crate::kernel::os;
use crate::kernel::system_call::system_call;

/// What tells a process from others that had its id before: from byte [`Start::OFFSET`] of a segment's header.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Start {
    /// Clock ticks after boot.
    pub ticks: u64,
    /// The boot.
    pub boot_id: [u8; 16],
}

/// In the files of `/proc`, on every machine that this runs on (`USER_HZ`).
const TICKS_PER_SECOND: i64 = 100;

impl Start {
    const OFFSET: libc::off_t = core::mem::offset_of!(Header, start_ticks) as libc::off_t;

    /// That of this process.
    pub fn of_this_process() -> Start {
        // The kernel has them as of the time namespace of who asks.
        let ahead = os::clocks_ahead().boottime / (1_000_000_000 / TICKS_PER_SECOND);
        Start { ticks: start_ticks().saturating_add_signed(-ahead), boot_id: boot_id() }
    }

    /// What a segment says of its process. `None` if it can't be read.
    ///
    /// # Safety
    /// `dir` is an open folder.
    pub(super) unsafe fn of_segment(dir: libc::c_int, name: &CStr) -> Option<Start> {
        let mut start = Start { ticks: 0, boot_id: [0; 16] };
        // SAFETY: the call writes to `start` at most its size, of which any bytes are a value. Not by the C library's
        // functions, at which a cancelled thread ends.
        let read = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let fd = system_call!(libc::SYS_openat, dir, name.as_ptr(), flags, 0) as libc::c_int;
            if fd < 0 {
                return None;
            }
            let read = system_call!(libc::SYS_pread64, fd, &raw mut start, size_of::<Start>(), Self::OFFSET);
            os::close(fd);
            read
        };
        (read == size_of::<Start>() as i64).then_some(start)
    }
}

const _: () = assert!(core::mem::offset_of!(Header, boot_id) == core::mem::offset_of!(Header, start_ticks) + 8);

/// Field 22 of `/proc/self/stat`; the second field is in parentheses and may contain spaces.
fn start_ticks() -> u64 {
    let mut buffer = [0u8; 1024];
    let len = os::read_file(c"/proc/self/stat", &mut buffer);
    let text = &buffer[..len];
    let Some(close) = text.iter().rposition(|&b| b == b')') else { return 0 };
    let field = text[close..].split(|&b| b == b' ').nth(20).unwrap_or(&[]);
    field.iter().fold(0, |n, &b| n * 10 + u64::from(b.wrapping_sub(b'0').min(9)))
}

fn boot_id() -> [u8; 16] {
    let mut buffer = [0u8; 64];
    let len = os::read_file(c"/proc/sys/kernel/random/boot_id", &mut buffer);
    let mut id = [0; 16];
    let digits = buffer[..len].iter().filter_map(|&b| (b as char).to_digit(16));
    for (i, digit) in digits.take(32).enumerate() {
        id[i / 2] = id[i / 2] << 4 | digit as u8;
    }
    id
}
