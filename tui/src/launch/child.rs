//! A program that was started: its signals and its end.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::failure::Failure;
use crate::launch::out_of_memory::Kills;
use crate::words::Ended;

/// A program in a session of its own, so that the whole of it can be ended, and so that it can run on without us.
pub(crate) struct Program {
    pid: u32,
    end: Mutex<End>,
    ended: Condvar,
}

#[derive(Default)]
struct End {
    how: Option<Ended>,
    listeners: Vec<Listener>,
}

/// Who wants to know of the end.
type Listener = Box<dyn FnOnce(Ended) + Send>;

impl Program {
    /// Starts a program in a session of its own and waits for it in a thread.
    pub(crate) fn start(mut command: Command) -> Result<Arc<Program>, Failure> {
        // SAFETY: setsid is async-signal-safe (signal-safety(7)), and nothing else runs between fork and exec here.
        unsafe {
            command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
        }
        let kills = Kills::so_far();
        let child = spawn(&mut command)?;
        let program = Arc::new(Program { pid: child.id(), end: Mutex::default(), ended: Condvar::new() });
        let waiter = Arc::clone(&program);
        thread::Builder::new()
            .name("waiter".into())
            .spawn(move || waiter.wait_for(child, &kills))
            .map_err(|e| Failure::usage(format!("cannot start a thread: {e}")))?;
        Ok(program)
    }

    fn wait_for(&self, mut child: Child, kills: &Kills) {
        // Waits without taking the status, so that the number stays the program's until `how` is set.
        let waited = rustix::io::retry_on_intr(|| {
            rustix::process::waitid(WaitId::Pid(Pid::from_child(&child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        });
        debug_assert!(waited.is_ok(), "{waited:?}");
        let mut end = self.lock();
        let how = child.wait().map_or(Ended::Code(1), |status| kills.how_ended(status));
        end.how = Some(how);
        for listener in end.listeners.drain(..) {
            listener(how);
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

    /// Tells somebody of its end, also if that was before.
    pub(crate) fn at_end(&self, listener: impl FnOnce(Ended) + Send + 'static) {
        let mut end = self.lock();
        match end.how {
            Some(how) => listener(how),
            None => end.listeners.push(Box::new(listener)),
        }
    }

    /// Sends a signal to it and everything in its process group. Nothing once it has been waited for.
    pub(crate) fn signal(&self, signal: i32) {
        let end = self.lock();
        if end.how.is_none() {
            // The child is reaped under this lock only, so the number is still its own.
            send(self.pid, signal, rustix::process::kill_process_group);
        }
    }

    /// Waits for its end.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Ended> {
        let end = self.lock();
        let waited = self.ended.wait_timeout_while(end, patience, |e| e.how.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.how
    }
}

/// Sends a signal to a process, which must not have been reaped yet: another one could have its number.
pub(crate) fn signal(pid: u32, signal: i32) {
    send(pid, signal, rustix::process::kill_process);
}

/// Only a process that is gone by now, or that is another user's, gets no signal; nothing is to be done about it.
fn send(pid: u32, signal: i32, by: impl FnOnce(Pid, Signal) -> rustix::io::Result<()>) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid as i32), Signal::from_named_raw(signal)) {
        let _ = by(pid, signal);
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
