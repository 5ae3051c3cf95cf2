//! Wakes a recorder that naps when its program ends: without it, the end of every recording would be waited for in vain.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Rings once, when the process ends.
#[derive(Debug)]
pub struct Alarm {
    /// `None` where the kernel does not tell, and after it has told.
    process: Option<OwnedFd>,
    rings: bool,
}

impl Alarm {
    /// Of a process; one that never rings if there is no such process, or no way to know (Linux before 5.3, a filter of
    /// system calls).
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self { process: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()), rings: false }
    }

    /// Sleeps for so long, or until the process ends.
    pub fn sleep(&mut self, nap: Duration) {
        let Some(process) = &self.process else { return std::thread::sleep(nap) };
        let limit = Timespec { tv_sec: nap.as_secs() as _, tv_nsec: nap.subsec_nanos().into() };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            // It has said all that it will ever say.
            Ok(_) | Err(_) => (self.process, self.rings) = (None, true),
        }
    }

    /// Whether the process has ended since this was last asked.
    pub fn rings(&mut self) -> bool {
        std::mem::take(&mut self.rings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn it_wakes_who_sleeps_when_the_process_ends_and_rings_once() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut alarm = Alarm::of(child.id());
        alarm.sleep(Duration::from_millis(1));
        assert!(!alarm.rings(), "it still runs");
        drop(child.stdin.take());
        let begun = Instant::now();
        alarm.sleep(LONG);
        assert!(begun.elapsed() < LONG);
        assert!(alarm.rings() && !alarm.rings());
        child.wait().unwrap();
    }

    #[test]
    fn of_a_process_that_is_none_it_never_rings() {
        let mut alarm = Alarm::of(u32::MAX);
        alarm.sleep(Duration::from_millis(1));
        assert!(!alarm.rings());
    }
}
