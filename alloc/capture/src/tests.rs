use crate::{Caller, Captured, MAX_DEPTH, ThreadState, capture};
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::path::PathBuf;
use std::prelude::v1::*;
use std::process::Command;
use std::{env, fs, process};

mod chains;
mod quick;
mod replaced;
mod room;
mod unknown_code;
mod ways;

/// The stack as [`capture`] sees it from its caller.
#[inline(never)]
fn here() -> (Captured, Vec<u64>) {
    here_with(&mut ThreadState::new())
}

#[inline(never)]
fn here_with(state: &mut ThreadState) -> (Captured, Vec<u64>) {
    let mut frames = [0; MAX_DEPTH];
    let captured = capture(state, &Caller::here(), &mut frames);
    black_box(&frames);
    (captured, frames[..captured.depth].to_vec())
}

/// The names of the functions that the addresses lie in.
fn names(frames: &[u64]) -> Vec<String> {
    let mut names = Vec::new();
    for frame in frames {
        let mut name = String::new();
        backtrace::resolve((*frame - 1) as *mut _, |symbol| {
            if let Some(found) = symbol.name() {
                name = found.to_string();
            }
        });
        names.push(name);
    }
    names
}

/// Whether an emulator runs this that has no vDSO, as qemu-user before its version 8.1: handlers return to code of no
/// module then, and the emulator gives each mapping a place of its own.
fn has_no_vdso() -> bool {
    // SAFETY: looks a value up.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) == 0 }
}

/// A library made of the C text, in a folder of this process.
fn compile(name: &str, text: &str, options: &[&str]) -> PathBuf {
    let folder = env::temp_dir().join(std::format!("poolscope-capture-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join(std::format!("{name}.c")), folder.join(std::format!("{name}.so")));
    fs::write(&source, text).unwrap();
    let options = ["-O2", "-shared", "-fPIC"].iter().chain(options);
    // An emulator's user names one for the emulated machine.
    let compiler = env::var("CC").unwrap_or_else(|_| "gcc".into());
    let status = Command::new(compiler).args(options).arg("-o").arg(&library).arg(&source).status().unwrap();
    assert!(status.success());
    library
}

/// The function `descend` of a library that is compiled of the C text, and stays. Whoever loads one holds
/// [`replaced::LOADING`].
fn descend_of(name: &str, text: &str, options: &[&str]) -> *mut c_void {
    let library = compile(name, text, options);
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: a library of this test's own.
    let descend = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), c"descend".as_ptr()) };
    assert!(!descend.is_null());
    descend
}
