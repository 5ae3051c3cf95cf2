//! A program that was started: its signals and its end.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::dashboard::event::Event;
use crate::dashboard::state::Ended;
use crate::failure::Failure;

/// A program in a session of its own, so that the whole of it can be ended, and so that it can run on without us.
#[derive(Debug)]
pub(crate) struct Program {
    pid: u32,
    end: Mutex<End>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct End {
    how: Option<Ended>,
    listeners: Vec<Sender<Event>>,
}

impl Program {
    /// Starts a program in a session of its own and waits for it in a thread.
    pub(crate) fn start(mut command: Command) -> Result<Arc<Program>, Failure> {
        // SAFETY: setsid is async-signal-safe (signal-safety(7)), and nothing else runs between fork and exec here.
        unsafe {
            command.pre_exec(|| if libc::setsid() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) });
        }
        let child = spawn(&mut command)?;
        let program = Arc::new(Program { pid: child.id(), end: Mutex::default(), ended: Condvar::new() });
        let waiter = Arc::clone(&program);
        thread::Builder::new()
            .name("waiter".into())
            .spawn(move || waiter.wait_for(child))
            .map_err(|e| Failure::usage(format!("cannot start a thread: {e}")))?;
        Ok(program)
    }

    fn wait_for(&self, mut child: Child) {
        // Waits without taking the status, so that the number stays the program's until `how` is set.
        // SAFETY: waitid fills the structure that it is given, for which zeros are valid.
        let waited = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            loop {
                let result = libc::waitid(libc::P_PID, self.pid, &mut info, libc::WEXITED | libc::WNOWAIT);
                if result == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                    break result;
                }
            }
        };
        debug_assert_eq!(waited, 0);
        let mut end = self.lock();
        let how = child.wait().map_or(Ended::Code(1), ended);
        end.how = Some(how);
        for listener in end.listeners.drain(..) {
            let _ = listener.send(Event::Ended(how));
        }
        self.ended.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends its end to a channel, also if that was before.
    pub(crate) fn notify(&self, to: Sender<Event>) {
        let mut end = self.lock();
        match end.how {
            Some(how) => drop(to.send(Event::Ended(how))),
            None => end.listeners.push(to),
        }
    }

    /// Sends a signal to it and everything in its process group. Nothing once it has been waited for.
    pub(crate) fn signal(&self, signal: i32) {
        let end = self.lock();
        if end.how.is_none() {
            // SAFETY: kill takes plain numbers. The child is reaped under this lock only,
            // so the number is still its own.
            unsafe { libc::kill(-(self.pid as i32), signal) };
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Ended> {
        let end = self.lock();
        let waited = self.ended.wait_timeout_while(end, patience, |e| e.how.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.how
    }
}

/// Starts a command; what keeps it from starting is the shell's 127 or 126.
pub(crate) fn spawn(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| cannot_start(command, &error))
}

/// Becomes a command; gives back only why that failed.
pub(crate) fn exec(command: &mut Command) -> Failure {
    let error = command.exec();
    cannot_start(command, &error)
}

fn cannot_start(command: &Command, error: &io::Error) -> Failure {
    let program = command.get_program();
    let name = program.to_string_lossy();
    let is_path = name.contains('/');
    match error.kind() {
        io::ErrorKind::NotFound if is_path && std::path::Path::new(program).exists() => {
            Failure::new(127, format!("cannot run {name}: the interpreter that its first line names is missing"))
        }
        io::ErrorKind::NotFound if is_path => Failure::new(127, format!("cannot run {name}: there is no such file")),
        io::ErrorKind::NotFound => Failure::new(127, format!("cannot run {name}: it is in no folder of PATH")),
        io::ErrorKind::PermissionDenied => {
            Failure::new(126, format!("cannot run {name}: it is not executable, or may not be executed here"))
        }
        _ => Failure::new(126, format!("cannot run {name}: {error}")),
    }
}

/// How a status reads.
pub(crate) fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, Some(signal)) => Ended::Signal(signal),
        (None, None) => Ended::Code(1),
    }
}

/// `SIGKILL` for 9.
pub(crate) fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(
        || match signal {
            libc::SIGKILL => "SIGKILL".into(),
            libc::SIGSTOP => "SIGSTOP".into(),
            libc::SIGSEGV => "SIGSEGV".into(),
            libc::SIGBUS => "SIGBUS".into(),
            libc::SIGFPE => "SIGFPE".into(),
            libc::SIGILL => "SIGILL".into(),
            libc::SIGABRT => "SIGABRT".into(),
            _ => format!("signal {signal}"),
        },
        str::to_owned,
    )
}
