//! Wakes a recorder that naps: when its program ends, and when it calls. Without the first, the end of every recording
//! would be waited for in vain; without the second, an idle program would be looked at hundreds of times a second, for
//! the sake of what it may do next.
//!
//! The kernel tells of the end by a file (`pidfd`), of a call by a word ([`Bell`]), and waits for one of the two only.
//! A program calls at a normal end: the file is looked at in steps, for the other ones. (A file that tells of calls,
//! `inotify`, takes the kernel seconds to close where all processors are busy.)

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::segment::bell::Bell;

/// The longest time between two looks whether the process has ended, of one that calls.
const STEP: Duration = Duration::from_millis(50);

/// Rings once when the process ends, and hears its calls.
#[derive(Debug)]
pub struct Alarm {
    /// `None` where the kernel does not tell, and after it has told.
    process: Option<OwnedFd>,
    rings: bool,
    calls: Calls,
}

/// What is heard of a program.
#[derive(Debug)]
struct Calls {
    /// `None` where nothing can be heard.
    bell: Option<Bell>,
    /// What it said last.
    heard: u32,
}

impl Calls {
    /// Whether there is one that was not heard.
    fn take(&mut self) -> bool {
        let rung = self.bell.as_ref().map(Bell::rung);
        match rung {
            Some(Ok(rung)) => std::mem::replace(&mut self.heard, rung) != rung,
            Some(Err(_)) | None => {
                self.bell = None;
                false
            }
        }
    }

    /// Sleeps until the next, for so long at most. False where nothing can be heard.
    fn sleep(&self, limit: Duration) -> bool {
        self.bell.as_ref().is_some_and(|bell| bell.sleep(self.heard, limit).is_ok())
    }
}

impl Alarm {
    /// Of a process; one that never rings if there is no such process, or no way to know (Linux before 5.3, a filter of
    /// system calls).
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { process, rings: false, calls: Calls { bell: None, heard: 0 } }
    }

    /// Hears the calls of a program from now on.
    #[must_use]
    pub fn hearing(mut self, bell: Option<Bell>) -> Self {
        self.calls = Calls { bell, heard: 0 };
        self.calls.take();
        self
    }

    /// Whether there are calls to be heard: a program of an earlier version has none.
    pub fn hears(&self) -> bool {
        self.calls.bell.is_some() && self.calls.heard != 0
    }

    /// Hears nothing any more: calls don't come.
    pub fn stop_hearing(&mut self) {
        self.calls.bell = None;
    }

    /// Sleeps for so long, or until the process ends or calls. Whether it has called.
    pub fn sleep(&mut self, nap: Duration) -> bool {
        let begun = Instant::now();
        loop {
            if self.calls.take() {
                return true;
            }
            let rest = nap.saturating_sub(begun.elapsed());
            self.wait_for_end(if self.calls.bell.is_none() { rest } else { Duration::ZERO });
            if self.rings || rest.is_zero() || !self.calls.sleep(rest.min(STEP)) {
                return false;
            }
        }
    }

    /// Waits so long for the end of the process.
    pub fn wait_for_end(&mut self, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos().into() };
        let mut files: Vec<PollFd<'_>> =
            self.process.iter().map(|file| PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)).collect();
        match poll(&mut files, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => {}
            // It has said all that it will ever say, or can't be asked.
            Ok(_) | Err(_) => {
                drop(files);
                (self.process, self.rings) = (None, true);
            }
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
    use poolscope_wire::Header;
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

    /// A segment as far as calls go, an alarm for them, and the program's end of the bell.
    fn program() -> (std::fs::File, Alarm, Bell) {
        let segment = tempfile::tempfile().unwrap();
        segment.set_len(size_of::<Header>() as u64).unwrap();
        let bell = || Bell::of(&segment, std::mem::offset_of!(Header, trace_calls)).unwrap();
        let (alarm, bell) = (Alarm::of(u32::MAX).hearing(Some(bell())), bell());
        (segment, alarm, bell)
    }

    #[test]
    fn it_wakes_who_sleeps_when_the_program_calls_and_tells_it_once() {
        let (_segment, mut alarm, bell) = program();
        assert!(!alarm.hears() && !alarm.sleep(Duration::from_millis(1)), "it has never called");
        let caller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            bell.ring().unwrap();
            bell
        });
        let begun = Instant::now();
        assert!(alarm.sleep(LONG) && begun.elapsed() < LONG && alarm.hears());
        let bell = caller.join().unwrap();
        assert!(!alarm.sleep(Duration::from_millis(1)), "it is told once");
        bell.ring().unwrap();
        bell.ring().unwrap();
        assert!(alarm.sleep(Duration::ZERO) && !alarm.sleep(Duration::ZERO), "two that came meanwhile are one");
    }

    #[test]
    fn calls_of_earlier_recordings_are_not_told_and_are_why_others_are_expected() {
        let (_segment, alarm, bell) = program();
        bell.ring().unwrap();
        let mut alarm = alarm.hearing(Some(bell));
        assert!(alarm.hears() && !alarm.sleep(Duration::from_millis(1)));
    }

    #[test]
    fn of_a_segment_that_is_cut_off_it_hears_nothing_and_sleeps_on() {
        let (segment, mut alarm, bell) = program();
        bell.ring().unwrap();
        assert!(alarm.sleep(Duration::ZERO));
        segment.set_len(0).unwrap();
        let begun = Instant::now();
        assert!(!alarm.sleep(Duration::from_millis(30)) && !alarm.hears());
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn of_a_process_that_is_none_it_never_rings() {
        let mut alarm = Alarm::of(u32::MAX);
        alarm.sleep(Duration::from_millis(1));
        assert!(!alarm.rings());
    }
}
