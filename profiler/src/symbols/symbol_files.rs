//! Which files on this machine have the symbols of a module.
//!
//! A file is only used if it has the build id that the process saw: the one that it loaded, wherever it is now, or one
//! of separate debug information. One without a build id is only used if it is the very file,
//! as it was when the process saw it.
//!
//! Separate debug information lies in a folder of debug files under the module's build id
//! (`DIR/.build-id/ab/cdef.debug`), where distributions and debuginfod put it; what a debug link names, blazesym finds,
//! and checks its checksum.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use poolscope_wire::file_number;

use crate::model::snapshot::{Module, ProcessInfo, ProcessState};
use crate::symbols::build_id::BuildIds;
use crate::symbols::warning::SymbolWarning;

/// How the kernel marks the path of a file that is no longer there.
const DELETED: &str = " (deleted)";

/// Where distributions put debug information.
pub(crate) const DEBUG_DIRS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// Files with the symbols of a module, the best first; none for what is no file (generated code).
pub(crate) fn find(
    process: &ProcessInfo,
    module: &Module,
    debug_dirs: &[PathBuf],
) -> Result<Vec<PathBuf>, SymbolWarning> {
    let path = module.path.strip_suffix(DELETED).unwrap_or(&module.path);
    // A name without a folder is no file's: of generated code, or of the kernel's library.
    if !path.contains('/') {
        return Ok(Vec::new());
    }
    let mut found: Vec<PathBuf> = debug_file(module, debug_dirs).into_iter().collect();
    let mut first_problem = (!path.starts_with('/'))
        .then(|| SymbolWarning::Relative { module: module.name().to_owned(), path: path.to_owned() });
    for (candidate, is_mapped) in candidates(process, module, path) {
        match check(&candidate, module, is_mapped) {
            Ok(()) => {
                found.push(candidate);
                break;
            }
            Err(problem) => first_problem.get_or_insert(problem),
        };
    }
    match first_problem {
        Some(problem) if found.is_empty() => Err(problem),
        _ => Ok(found),
    }
}

/// The separate debug information of a module.
fn debug_file(module: &Module, debug_dirs: &[PathBuf]) -> Option<PathBuf> {
    let id = module.build_id_hex();
    // The folder is the first byte, and no id of real programs is shorter than the hash of one.
    if module.build_id.len() < 8 {
        return None;
    }
    let name = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    let mut paths = debug_dirs.iter().map(|dir| dir.join(&name));
    paths.find(|path| BuildIds::of(path).is_ok_and(|found| found.has(&module.build_id)))
}

/// Where the file that the process loaded may be found, the likeliest first; and whether it is certainly that.
fn candidates(process: &ProcessInfo, module: &Module, path: &str) -> Vec<(PathBuf, bool)> {
    let mut candidates = Vec::new();
    if path.starts_with('/') {
        candidates.push((PathBuf::from(path), false));
    }
    if process.state == ProcessState::Running {
        let pid = process.pid;
        // A process in a container has another root.
        if path.starts_with('/') {
            candidates.push((PathBuf::from(format!("/proc/{pid}/root{path}")), false));
        }
        if process.exe.strip_suffix(DELETED).unwrap_or(&process.exe) == path {
            candidates.push((PathBuf::from(format!("/proc/{pid}/exe")), true));
        }
        // A library that was replaced on disk.
        candidates.extend(mapped_file(pid, module.start).map(|path| (path, true)));
    }
    candidates
}

/// The entry of `/proc/PID/map_files` of the mapping that begins at `start`. It opens the very file that is mapped,
/// deleted or not, but needs `CAP_CHECKPOINT_RESTORE` (proc(5)).
fn mapped_file(pid: u32, start: u64) -> Option<PathBuf> {
    let prefix = format!("{start:x}-");
    let entry = fs::read_dir(format!("/proc/{pid}/map_files"))
        .ok()?
        .flatten()
        .find(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))?;
    Some(entry.path())
}

/// Whether a file is the one that the process loaded. Of one that `is_mapped` in the process nobody doubts it, but
/// where there are build ids.
pub(crate) fn check(path: &Path, module: &Module, is_mapped: bool) -> Result<(), SymbolWarning> {
    let unreadable =
        |error: String| SymbolWarning::Unreadable { module: module.name().to_owned(), path: path.to_owned(), error };
    let replaced = |why| Err(SymbolWarning::Replaced { module: module.name().to_owned(), path: path.to_owned(), why });
    let metadata = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("not a regular file".to_owned()));
    }
    let on_disk = BuildIds::of(path).map_err(|error| unreadable(error.to_string()))?;
    if on_disk.has(&module.build_id) {
        return Ok(());
    }
    if !module.build_id.is_empty() || on_disk.of_segments.is_some() {
        return replaced("its build id differs");
    }
    if is_mapped {
        return Ok(());
    }
    let number = file_number(metadata.ino(), metadata.len(), (metadata.mtime(), metadata.mtime_nsec() as u64));
    match module.file {
        known if known == number => Ok(()),
        0 => replaced("for all that is known: neither has a build id"),
        _ => replaced("it is another file, or was written to; neither has a build id"),
    }
}
