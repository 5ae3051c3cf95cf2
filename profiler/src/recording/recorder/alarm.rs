//! Wakes a recorder that naps: when its program ends, and when a ring of it fills up. Without the first, the end of
//! every recording would be waited for in vain; without the second, an idle program would be looked at hundreds of
//! times a second, for the sake of what it may do next.
//!
//! A program of which much waits opens the file of its rings, which `inotify` tells. So does a thread that gets a ring,
//! and the end of the recording, with which the file goes. Before there is that file, its folder is watched.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// What calls come by. The kernel closes it only when it has forgotten what was watched, which takes seconds on a
/// machine of which all processors are busy; a recorder that waited for that would not empty the rings meanwhile.
#[derive(Debug)]
struct Calls(Option<OwnedFd>);

impl AsFd for Calls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("is there until it is dropped").as_fd()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let file = self.0.take();
        // Without a thread it is closed here.
        let _ = std::thread::Builder::new().name("close".to_owned()).spawn(move || drop(file));
    }
}

/// Rings once when the process ends, and hears its calls.
#[derive(Debug)]
pub struct Alarm {
    /// `None` where the kernel does not tell, and after it has told.
    process: Option<OwnedFd>,
    rings: bool,
    /// `None` where nothing can be heard.
    calls: Option<Calls>,
}

impl Alarm {
    /// Of a process; one that never rings if there is no such process, or no way to know (Linux before 5.3, a filter of
    /// system calls).
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { process, rings: false, calls: None }
    }

    /// Hears the calls of a process that opens this file for them. It does not where the user has as many watchers as
    /// the system allows.
    pub fn listen(&mut self, file: &Path) {
        self.watch(file, WatchFlags::OPEN | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF);
    }

    /// Takes each new file of a folder for a call: the program may have made it, as it does for its rings.
    pub fn listen_for_files(&mut self, folder: &Path) {
        self.watch(folder, WatchFlags::CREATE);
    }

    fn watch(&mut self, path: &Path, what: WatchFlags) {
        let watched = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).and_then(|calls| {
            inotify::add_watch(&calls, path, what)?;
            Ok(calls)
        });
        self.calls = watched.ok().map(|calls| Calls(Some(calls)));
    }

    /// Whether calls are heard.
    pub fn listens(&self) -> bool {
        self.calls.is_some()
    }

    /// Hears nothing any more: calls don't come.
    pub fn stop_listening(&mut self) {
        self.calls = None;
    }

    /// Sleeps for so long, or until the process ends or calls. Whether it has called.
    pub fn sleep(&mut self, nap: Duration) -> bool {
        let limit = Timespec { tv_sec: nap.as_secs() as _, tv_nsec: nap.subsec_nanos().into() };
        let files = self.process.iter().map(AsFd::as_fd).chain(self.calls.iter().map(AsFd::as_fd));
        let mut files: Vec<PollFd<'_>> = files.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        match poll(&mut files, Some(&limit)) {
            Ok(0) | Err(Errno::INTR) => return false,
            Ok(_) => {}
            Err(_) => {
                drop(files);
                (self.process, self.calls, self.rings) = (None, None, true);
                return false;
            }
        }
        let ready: Vec<bool> = files.iter().map(|file| !file.revents().is_empty()).collect();
        drop(files);
        // It has said all that it will ever say.
        if self.process.is_some() && ready.first() == Some(&true) {
            (self.process, self.rings) = (None, true);
        }
        self.take_calls()
    }

    /// Whether the process has called since this was last asked.
    fn take_calls(&self) -> bool {
        let Some(calls) = &self.calls else { return false };
        let mut buffer = [const { MaybeUninit::uninit() }; 4096];
        let mut reader = inotify::Reader::new(calls.as_fd(), &mut buffer);
        let mut called = false;
        while reader.next().is_ok() {
            called = true;
        }
        called
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
    fn it_wakes_who_sleeps_when_the_file_is_opened_and_not_when_it_is_only_read_and_written() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rings");
        let file = std::fs::File::create(&path).unwrap();
        let mut alarm = Alarm::of(u32::MAX);
        alarm.listen(&path);
        assert!(alarm.listens());
        file.write_all_at(b"words", 0).unwrap();
        assert!(!alarm.sleep(Duration::from_millis(1)));
        let begun = Instant::now();
        let caller = std::thread::spawn(move || {
            for _ in 0..1000 {
                drop(std::fs::File::open(&path).unwrap());
            }
        });
        assert!(alarm.sleep(LONG) && begun.elapsed() < LONG && !alarm.rings());
        caller.join().unwrap();
        while alarm.sleep(Duration::from_millis(1)) {}
        assert!(!alarm.sleep(Duration::from_millis(1)), "calls are taken as they come");
    }

    #[test]
    fn it_wakes_who_sleeps_when_a_file_comes_into_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut alarm = Alarm::of(u32::MAX);
        alarm.listen_for_files(folder.path());
        assert!(alarm.listens() && !alarm.sleep(Duration::from_millis(1)));
        let path = folder.path().join("rings");
        let maker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(std::fs::File::create(&path).unwrap());
        });
        let begun = Instant::now();
        assert!(alarm.sleep(LONG) && begun.elapsed() < LONG);
        maker.join().unwrap();
    }

    #[test]
    fn of_a_process_that_is_none_it_never_rings() {
        let mut alarm = Alarm::of(u32::MAX);
        alarm.sleep(Duration::from_millis(1));
        assert!(!alarm.rings());
    }
}
