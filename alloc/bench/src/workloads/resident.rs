//! The resident memory of this process, read without an allocation.

use std::ffi::CStr;

/// The largest it has been, in bytes (`VmHWM`). Unlike `getrusage`'s,
/// it does not begin with what the parent had at `exec`.
pub fn peak() -> u64 {
    field(c"/proc/self/status", b"VmHWM:")
}

/// As it is now, in bytes. `smaps_rollup` walks the page tables, where `statm` may lag by some pages for each thread.
pub fn now() -> u64 {
    field(c"/proc/self/smaps_rollup", b"Rss:")
}

/// The figure in KiB behind `name` at the start of a line, in bytes.
fn field(path: &CStr, name: &[u8]) -> u64 {
    let mut text = [0_u8; 4096];
    // SAFETY: the path ends with a null, and no more is read than `text` holds.
    let read = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        let read = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        read
    };
    let text = &text[..usize::try_from(read).unwrap_or(0)];
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name));
    let digits =
        line.unwrap_or_else(|| panic!("{path:?} has no such line")).iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')) * 1024
}
