//! Other programs. This small process starts them and waits for them: the kernel counts the memory that the starting
//! process had at the time of `exec` into their peak.

use std::process::{Command, Stdio};

/// Runs a program with a library preloaded, if one is named, and returns the processor time that it took, in
/// nanoseconds, and its largest resident memory in bytes. `None` if it can't be started or fails.
pub fn run(library: &str, program: &str, args: &[&str]) -> Option<(f64, u64)> {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null());
    if !library.is_empty() {
        command.env("LD_PRELOAD", library);
    }
    let child = command.spawn().ok()?;
    let mut status = 0;
    // SAFETY: all zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and nobody else waits for it; both pointers are to locals.
    let waited = unsafe { libc::wait4(child.id().cast_signed(), &mut status, 0, &mut usage) };
    let nanoseconds = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
    (waited == child.id().cast_signed() && status == 0)
        .then(|| (nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime), usage.ru_maxrss as u64 * 1024))
}
