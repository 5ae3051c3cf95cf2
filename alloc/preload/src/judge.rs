//! A check that the program asks for: the pool searches, and the command `poolscope` reads what it found, finds names
//! for it, leaves out what is suppressed, and writes the report.
//!
//! Nothing here allocates.

use core::ffi::{CStr, c_char, c_int};
use core::ptr::null;

use poolscope_cpu::leaks::{self, Searched};
use poolscope_cpu::{Message, decimal};

use crate::command::{Text, run};
use crate::lsan;

/// What came of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing leaked, or it is suppressed.
    Clean,
    /// Something leaked.
    Leaked,
    /// Nobody knows.
    NotChecked,
}

/// Exit codes of the command.
const LEAKED: c_int = 23;
const NOT_CHECKED: c_int = 24;
/// Searches, and reports. What the search found, if it was made, and what is thought of it. `frame` is where the
/// program's stack begins ([`leaks::with_callers`]).
pub fn check(frame: *const usize) -> (Option<Searched>, Judgement) {
    let searched = leaks::search(frame);
    let Some(found) = searched else {
        Message::new("no leak check: this process has no segment of its own").print();
        return (None, Judgement::NotChecked);
    };
    if let Some(why) = found.failed {
        Message::new("no leak check: ").text(why).print();
        return (None, Judgement::NotChecked);
    }
    let (threads, stopped) = found.threads;
    if found.leaks == 0 {
        if stopped < threads {
            Message::new("no leaks are known, but not all threads could be stopped").print();
            return (searched, Judgement::NotChecked);
        }
        return (searched, Judgement::Clean);
    }
    let judgement = match report() {
        Some(0) => Judgement::Clean,
        Some(LEAKED) => Judgement::Leaked,
        Some(NOT_CHECKED) => Judgement::NotChecked,
        ended => {
            let leaked = Message::new("leaked: ").number(found.bytes).text(" bytes in ").number(found.leaks);
            let leaked = leaked.text(if found.leaks == 1 { " block" } else { " blocks" });
            leaked
                .text(". The command poolscope, which would say where from, ")
                .text(if ended.is_some() { "could not report it." } else { "was not found." })
                .print();
            Judgement::Leaked
        }
    };
    (searched, judgement)
}

/// The file that reports of this process go to: `log_path` and its number. `None` for standard error, to which what was to
/// go to standard output goes as well.
fn log(pid: &Text) -> Option<Text> {
    let path = lsan::option(b"log_path").filter(|path| ![&b""[..], b"stderr", b"stdout"].contains(path))?;
    let file = Text::of(&[path, b".", pid.to_bytes()])?;
    // SAFETY: the text ends with zero, and the descriptor is this function's.
    let can_be_written = unsafe {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let fd = libc::openat(libc::AT_FDCWD, file.as_ptr(), flags, 0o644);
        fd >= 0 && libc::close(fd) == 0
    };
    if !can_be_written {
        Message::new("LSAN_OPTIONS: log_path can't be written to, so the report follows").print();
    }
    can_be_written.then_some(file)
}

/// Has the command report. Its exit code; `None` if there is none.
fn report() -> Option<c_int> {
    let mut digits = [0; 20];
    // SAFETY: no argument.
    let pid = Text::of(&[decimal(unsafe { libc::getpid() } as u64, &mut digits)])?;
    let mut digits = [0; 20];
    let most = Text::of(&[decimal(lsan::number(b"max_leaks").unwrap_or(0), &mut digits)])?;
    let file = lsan::option(b"suppressions").and_then(|file| Text::of(&[file]));
    let own = own_suppressions();
    let mut digits = [0; 20];
    let own_file = own.and_then(|fd| Text::of(&[b"/dev/fd/", decimal(fd as u64, &mut digits)]));

    let mut arguments = [null::<c_char>(); 16];
    let mut len = 0;
    let mut add = |argument: *const c_char| {
        arguments[len] = argument;
        len += 1;
    };
    [c"poolscope", c"leaks", c"--last"].into_iter().for_each(|word| add(word.as_ptr()));
    for file in [&file, &own_file].into_iter().flatten() {
        add(c"--suppressions".as_ptr());
        add(file.as_ptr());
    }
    if lsan::number(b"max_leaks").is_some_and(|most| most > 0) {
        add(c"--max-leaks".as_ptr());
        add(most.as_ptr());
    }
    if lsan::option(b"report_objects").is_some_and(|on| on == b"1" || on == b"true") {
        add(c"--objects".as_ptr());
    }
    add(pid.as_ptr());
    let code = run(&arguments, log(&pid).as_ref());
    if let Some(fd) = own {
        // SAFETY: the descriptor is this function's.
        unsafe { libc::close(fd) };
    }
    code
}

/// The program's own suppressions, in a file without a name that a child of this process inherits.
fn own_suppressions() -> Option<c_int> {
    let text = lsan::suppressions()?.to_bytes();
    // SAFETY: system calls on a new descriptor, and on a text.
    unsafe {
        let fd = libc::memfd_create(c"suppressions".as_ptr(), 0);
        if fd < 0 {
            return None;
        }
        let written = libc::pwrite64(fd, text.as_ptr().cast(), text.len(), 0);
        if written != text.len() as isize {
            libc::close(fd);
            return None;
        }
        Some(fd)
    }
}

/// Leaves the program's own suppressions beside its segment for `poolscope check`, which reads them when the program
/// has ended.
pub fn leave_suppressions() {
    let Some(text) = lsan::suppressions() else { return };
    // SAFETY: the C library keeps the texts; the file is this function's.
    unsafe {
        let (check, folder) = (libc::getenv(c"POOLSCOPE_LEAK_CHECK".as_ptr()), libc::getenv(c"POOLSCOPE_DIR".as_ptr()));
        if check.is_null() || folder.is_null() {
            return;
        }
        let mut digits = [0; 20];
        let pid = decimal(libc::getpid() as u64, &mut digits);
        let Some(path) = Text::of(&[CStr::from_ptr(folder).to_bytes(), b"/suppressions-", pid]) else { return };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let fd = libc::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
        if fd >= 0 {
            let text = text.to_bytes();
            libc::write(fd, text.as_ptr().cast(), text.len());
            libc::close(fd);
        }
    }
}
