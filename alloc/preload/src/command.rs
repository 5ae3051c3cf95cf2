//! The command `poolscope`, run by the program that it is to look at.
//!
//! It is looked for beside the library, as it was built, below the same prefix, as it was installed, and in `PATH`.
//! `POOLSCOPE_COMMAND` names another one. It runs without the library, and nothing here allocates.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null;

use poolscope_cpu as pool;

/// Bytes of a path.
const PATH: usize = 4096;
/// Bytes for the pointers to the environment's variables.
const ENVIRONMENT: usize = 1 << 20;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// A text with its end, put together from parts.
pub struct Text([u8; PATH]);

impl Text {
    /// `None` if it is too long.
    pub fn of(parts: &[&[u8]]) -> Option<Self> {
        let mut text = Text([0; PATH]);
        let mut len = 0;
        for part in parts {
            text.0.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        (len < PATH).then_some(text)
    }

    /// Without its end.
    pub fn to_bytes(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
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

/// Runs the command with its output on standard error, or at the end of a file, and waits for it. `None` if it does not
/// run.
pub fn run(arguments: &[*const c_char], file: Option<&Text>) -> Option<c_int> {
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
        if let Some(file) = file {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND;
            libc::posix_spawn_file_actions_addopen(&raw mut actions, 2, file.as_ptr(), flags, 0o644);
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
