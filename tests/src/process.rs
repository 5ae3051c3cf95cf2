//! Running programs with a time limit, their output kept in files.
//!
//! Every program leads a process group of its own. A limit that runs out kills that group and nothing else; output goes
//! to files, so that a grandchild which keeps them open holds nobody up.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scratch;

/// A program to run.
#[derive(Debug)]
pub struct Program {
    command: Command,
    limit: Duration,
    input: Option<String>,
}

impl Program {
    /// A program by name or path, with a limit of two minutes.
    pub fn new(program: impl AsRef<OsStr>) -> Program {
        let mut command = Command::new(program);
        // What cargo sets for the test must not reach a cargo or a compiler that the test starts; and no setting of
        // the caller's pool may reach the test's.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let of_cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
            if of_cargo || name.starts_with("POOLSCOPE_") || name == "LD_LIBRARY_PATH" || name == "NO_COLOR" {
                command.env_remove(name);
            }
        }
        Program { command, limit: Duration::from_secs(120), input: None }
    }

    /// Adds arguments.
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Program {
        self.command.args(args);
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Program {
        self.command.arg(arg);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// Removes a variable.
    pub fn env_remove(mut self, name: &str) -> Program {
        self.command.env_remove(name);
        self
    }

    /// Sets the folder that the program starts in.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Program {
        self.command.current_dir(dir);
        self
    }

    /// Sets the limit.
    pub fn limit(mut self, seconds: u64) -> Program {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// What [`Program::run`] sends to standard input.
    pub fn input(mut self, text: impl Into<String>) -> Program {
        self.input = Some(text.into());
        self
    }

    /// Starts it; [`Running::finish`] waits for the end.
    pub fn start(mut self) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let files = Scratch::new();
        let stdout = files.join(format!("{number}.stdout"));
        let stderr = files.join(format!("{number}.stderr"));
        let create = |path: &Path| File::create(path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        self.command.stdin(Stdio::piped()).stdout(create(&stdout)).stderr(create(&stderr)).process_group(0);
        let mut child = spawn(&mut self.command).unwrap_or_else(|e| {
            panic!("cannot start {:?}: {e}; `make test` installs what the tests need", self.command.get_program())
        });
        let stdin = child.stdin.take();
        Running {
            name: shown(&self.command),
            child,
            stdin,
            stdout,
            stderr,
            files,
            deadline: Instant::now() + self.limit,
            status: None,
        }
    }

    /// `unshare`, which is to give the program of the arguments that follow mounts of its own.
    pub fn with_own_mounts() -> Program {
        // SAFETY: geteuid has no preconditions.
        let is_root = unsafe { libc::geteuid() } == 0;
        // Root needs no namespace of users, which containers often forbid.
        Program::new("unshare").arg(if is_root { "-m" } else { "-rm" })
    }

    /// Runs it to its end; standard input is [`Program::input`] or empty.
    pub fn run(mut self) -> Output {
        let input = self.input.take();
        let mut running = self.start();
        if let Some(input) = input {
            running.send(&input);
        }
        running.finish()
    }
}

/// The program and its arguments, each cut to a length that still says which it is.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| {
        let word = word.to_string_lossy();
        let line = word.trim_start().lines().next().unwrap_or_default();
        let mut cut: String = line.chars().take(80).collect();
        if cut.len() < word.trim().len() {
            cut += "...";
        }
        cut
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A program that was started. Dropped before its end, it is killed with its process group.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: PathBuf,
    stderr: PathBuf,
    files: Scratch,
    deadline: Instant,
    status: Option<ExitStatus>,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard output up to now.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// Standard error up to now.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Writes to standard input.
    pub fn send(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        // A program that ended early tells by its status, which the test looks at.
        let _ = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
    }

    /// Sends a line to a program that answers each with one, and waits for the answer.
    pub fn tell(&mut self, line: &str) {
        let said = self.stdout().lines().count();
        self.send(&format!("{line}\n"));
        self.wait_until("an answer", |running| (running.stdout().lines().count() > said).then_some(()));
    }

    /// Ends standard input.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Sends a signal to this process alone.
    pub fn signal(&self, signal: i32) {
        assert!(self.status.is_none(), "{} has ended", self.name);
        // SAFETY: the child was not waited for, so its id is still its own.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until `done` returns something for this program's state, which may be the last before its end.
    pub fn wait_until<T>(&mut self, what: &str, mut done: impl FnMut(&Running) -> Option<T>) -> T {
        loop {
            let ended = self.poll();
            if let Some(found) = done(self) {
                return found;
            }
            if ended {
                panic!("{} ended before {what}\n{}", self.name, self.report());
            }
            self.check_deadline(what);
            sleep(Duration::from_millis(5));
        }
    }

    /// Whether `is_up` holds within this time. False if the program ended before.
    pub fn started_within(&mut self, time: Duration, mut is_up: impl FnMut(&Running) -> bool) -> bool {
        let end = Instant::now() + time;
        while !is_up(self) {
            if self.poll() || Instant::now() > end {
                return false;
            }
            sleep(Duration::from_millis(20));
        }
        true
    }

    /// Fails if it has ended.
    #[track_caller]
    pub fn assert_runs(&mut self, after: &str) {
        assert!(!self.poll(), "{} ended: {after}\n{}", self.name, self.report());
    }

    /// Waits until a line of standard output begins with this; returns the line.
    pub fn wait_for_line(&mut self, beginning: &str) -> String {
        self.wait_until(&format!("it printed {beginning:?}"), |running| {
            let out = running.stdout();
            // Only whole lines count.
            let whole = out.rfind('\n').map_or("", |end| &out[..end]);
            whole.lines().find(|line| line.starts_with(beginning)).map(str::to_owned)
        })
    }

    /// Ends standard input and waits for the program's end.
    pub fn finish(mut self) -> Output {
        self.end_input();
        while !self.poll() {
            self.check_deadline("it ended");
            sleep(Duration::from_millis(2));
        }
        let status = self.status.expect("it has ended");
        Output { name: self.name.clone(), status, stdout: self.stdout(), stderr: self.stderr() }
    }

    fn poll(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child of this process can be waited for");
        }
        self.status.is_some()
    }

    fn check_deadline(&mut self, what: &str) {
        if Instant::now() > self.deadline {
            let stacks = self.kernel_state();
            self.kill();
            panic!("{}: time ran out before {what}\n{stacks}{}", self.name, self.report());
        }
    }

    /// What each thread of the program waits for: the first thing to know about a hang.
    fn kernel_state(&self) -> String {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut lines = String::new();
        for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            let one = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
            lines += &format!("thread {} ({}) in {}\n", task.file_name().display(), one("comm").trim(), one("wchan"));
        }
        lines
    }

    fn kill(&mut self) {
        if self.status.is_none() {
            // SAFETY: no memory is involved. The child leads its group and was not waited for, so the group is its own.
            unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
            self.status = self.child.wait().ok();
        }
    }

    fn report(&self) -> String {
        let status = self.status.map_or("running".to_owned(), |status| status.to_string());
        report(&status, &self.stdout(), &self.stderr())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = &self.files;
    }
}

/// How a program ended and what it wrote.
#[derive(Debug)]
pub struct Output {
    name: String,
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// The exit code; fails for a program that a signal ended.
    pub fn code(&self) -> i32 {
        match self.status.code() {
            Some(code) => code,
            None => panic!("{} was ended by signal {:?}\n{}", self.name, self.status.signal(), self.report()),
        }
    }

    /// Fails unless the program ended with 0 and the pool had nothing to say on standard error.
    #[track_caller]
    pub fn success(self) -> Output {
        assert!(self.status.success(), "{} failed\n{}", self.name, self.report());
        assert!(!self.stderr.contains("poolscope:"), "{}: the pool spoke\n{}", self.name, self.report());
        self
    }

    /// Fails unless [`Output::success`] and standard error is empty.
    #[track_caller]
    pub fn silent_success(self) -> Output {
        let output = self.success();
        assert!(output.stderr.is_empty(), "{}: standard error is not empty\n{}", output.name, output.report());
        output
    }

    /// Everything, for a message.
    pub fn report(&self) -> String {
        report(&self.status.to_string(), &self.stdout, &self.stderr)
    }
}

fn report(status: &str, stdout: &str, stderr: &str) -> String {
    // The end says why; a megabyte of output before it does not help.
    let tail = |text: &str| match text.char_indices().rev().nth(6000) {
        Some((at, _)) => format!("[...]{}", &text[at..]),
        None => text.to_owned(),
    };
    format!("status: {status}\n--- stdout\n{}\n--- stderr\n{}\n---", tail(stdout), tail(stderr))
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Starts a command. A program that was just written may be open for writing still, in what another test forks.
fn spawn(command: &mut Command) -> io::Result<Child> {
    for _ in 0..100 {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    command.spawn()
}
