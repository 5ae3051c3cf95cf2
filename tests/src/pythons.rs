//! The versions of CPython that a machine has.

use std::path::{Path, PathBuf};

use crate::Program;

/// The shared library of an interpreter, if it has one.
pub fn library(python: &Path) -> Option<PathBuf> {
    let place = "from sysconfig import get_config_var as of; print(of('LIBDIR') + '/' + of('INSTSONAME'))";
    let path = PathBuf::from(said(python, place));
    (path.exists() && path.to_string_lossy().contains(".so")).then_some(path)
}

/// What an interpreter's library has to be told (`PYTHONHOME`) where another program loads it.
pub fn home(python: &Path) -> String {
    said(python, "import sys; print(sys.base_prefix)")
}

/// Whether it runs without the interpreter's lock, and has its objects from no allocator but its own.
pub fn is_free_threaded(python: &Path) -> bool {
    said(python, "from sysconfig import get_config_var as of; print(of('Py_GIL_DISABLED'))") == "1"
}

fn said(python: &Path, script: &str) -> String {
    Program::new("sh").args(["-c", "exec \"$0\" -c \"$1\""]).arg(python).arg(script).run().stdout.trim().to_owned()
}

/// Interpreters of version 3.`from` and later: of the path, and of pyenv, which has its own beside it.
pub fn from_version(from: u32) -> Vec<PathBuf> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let versions = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten();
    let of_pyenv = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin/python3")));
    let of_path = (from..from + 9).map(|minor| PathBuf::from(format!("python3.{minor}")));
    let fits = format!("import sys; sys.exit(sys.version_info < (3, {from}))");
    let runs = |python: &PathBuf| {
        let is_there = python.is_relative() || python.exists();
        is_there && Program::new("sh").args(["-c", "exec \"$0\" -c \"$1\""]).arg(python).arg(&fits).run().code() == 0
    };
    let mut found: Vec<PathBuf> =
        of_path.chain(of_pyenv).chain([PathBuf::from("/usr/bin/python3")]).filter(runs).collect();
    found.sort();
    found
}
