//! How long is measured, and the time that this process has had.

use std::time::Duration;

/// One measurement.
#[derive(Clone, Copy)]
pub struct Stretch {
    /// What an allocator does only at first is not part of it.
    pub warm_up: Duration,
    /// What is measured then.
    pub duration: Duration,
}

/// The processor time of all threads, in user and kernel mode.
pub fn processor() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "Linux has had this clock since 2.6");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
