//! A check that the program asks for: the pool searches, and the command `poolscope` reads what it found, finds names
//! for it, leaves out what is suppressed, and writes the report.
//!
//! The command is looked for beside the library, as it was built, below the same prefix, as it was installed, and in
//! `PATH`. `POOLSCOPE_COMMAND` names another one. It runs without the library, and nothing here allocates.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;

use poolscope_cpu as pool;
use poolscope_cpu::Message;
use poolscope_cpu::leaks::{self, Searched};

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
/// Bytes of a path.
const PATH: usize = 4096;
/// Bytes for the pointers to the environment's variables.
const ENVIRONMENT: usize = 1 << 20;

unsafe extern "C" {
    static environ: *const *const c_char;
}

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
        _ => {
            let leaked = Message::new("leaked: ").number(found.bytes).text(" bytes in ").number(found.leaks);
            leaked.text(" blocks. The command poolscope, which would say where from, was not found.").print();
            Judgement::Leaked
        }
    };
    (searched, judgement)
}

/// A text with its end, put together from parts.
struct Text([u8; PATH]);

impl Text {
    fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut text = Text([0; PATH]);
        let mut len = 0;
        for part in parts {
            text.0.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        (len < PATH).then_some(text)
    }

    fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[first..];
        }
    }
}

/// The environment without what loads the library.
struct Environment(*mut *const c_char);

impl Environment {
    fn new() -> Option<Self> {
        let list = pool::map_pages(ENVIRONMENT).cast::<*const c_char>();
        if list.is_null() {
            return None;
        }
        let most = ENVIRONMENT / size_of::<*const c_char>() - 1;
        let (mut from, mut len) = (0, 0);
        // SAFETY: the environment ends with null, and the list with zeroes.
        unsafe {
            while !environ.is_null() && !(*environ.add(from)).is_null() && len < most {
                let variable = *environ.add(from);
                from += 1;
                if !CStr::from_ptr(variable).to_bytes().starts_with(b"LD_PRELOAD=") {
                    list.add(len).write(variable);
                    len += 1;
                }
            }
        }
        Some(Environment(list))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's.
        unsafe { pool::unmap_pages(self.0.cast(), ENVIRONMENT) };
    }
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
    let code = run(&arguments);
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

/// Runs the command with its output on standard error, and waits for it.
fn run(arguments: &[*const c_char]) -> Option<c_int> {
    let environment = Environment::new()?;
    let known = named().into_iter().chain(beside(b"poolscope")).chain(beside(b"../bin/poolscope"));
    // SAFETY: reads a file's kind.
    let there = known.into_iter().find(|path| unsafe { libc::access(path.as_ptr(), libc::X_OK) } == 0);
    let path = there.as_ref().map_or(c"poolscope".as_ptr(), Text::as_ptr);
    // SAFETY: lists of texts that end with null, and actions that are made and taken down here.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = core::mem::zeroed();
        if libc::posix_spawn_file_actions_init(&raw mut actions) != 0 {
            return None;
        }
        libc::posix_spawn_file_actions_adddup2(&raw mut actions, 2, 1);
        let mut child = 0;
        let failed = libc::posix_spawnp(
            &raw mut child,
            path,
            &raw const actions,
            null(),
            arguments.as_ptr().cast::<*mut c_char>(),
            environment.0.cast::<*mut c_char>(),
        );
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        let mut status = 0;
        if failed != 0 {
            return None;
        }
        while libc::waitpid(child, &raw mut status, 0) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                // The program waits for all its children by itself.
                return None;
            }
        }
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
    }
}

/// The command that the environment names.
fn named() -> Option<Text> {
    // SAFETY: the C library keeps the text.
    let path = unsafe {
        let path = libc::getenv(c"POOLSCOPE_COMMAND".as_ptr());
        if path.is_null() {
            return None;
        }
        CStr::from_ptr(path)
    };
    Text::of(&[path.to_bytes()])
}

/// A file by its path from the library's folder.
fn beside(name: &[u8]) -> Option<Text> {
    // SAFETY: looks this function's own address up.
    let library = unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        if libc::dladdr(run as *const c_void, &raw mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(found.dli_fname)
    };
    let path = library.to_bytes();
    let folder = path.iter().rposition(|&byte| byte == b'/').map_or(&b"./"[..], |slash| &path[..=slash]);
    Text::of(&[folder, name])
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
