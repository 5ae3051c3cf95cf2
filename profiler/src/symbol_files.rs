//! Which files on this machine have the symbols of a module.
//!
//! A file is only used if it has the build id that the process saw: the one that it loaded, wherever it is now, or one of
//! separate debug information. Such a file lies in a folder of debug files under the module's build id
//! (`DIR/.build-id/ab/cdef.debug`), where distributions and debuginfod put it; what a debug link names, blazesym finds, and
//! checks its checksum.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::build_id::BuildIds;
use crate::snapshot::{Module, ProcessInfo, ProcessState};
use crate::symbolize::SymbolWarning;

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
    if !path.starts_with('/') {
        return Ok(Vec::new());
    }
    let mut found: Vec<PathBuf> = debug_file(module, debug_dirs).into_iter().collect();
    let mut first_problem = None;
    for candidate in candidates(process, module, path) {
        match check(&candidate, process, module) {
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

/// Where the file that the process loaded may be found, the likeliest first.
fn candidates(process: &ProcessInfo, module: &Module, path: &str) -> Vec<PathBuf> {
    let mut candidates = vec![PathBuf::from(path)];
    if process.state == ProcessState::Running {
        let pid = process.pid;
        // A process in a container has another root.
        candidates.push(PathBuf::from(format!("/proc/{pid}/root{path}")));
        if process.exe.strip_suffix(DELETED).unwrap_or(&process.exe) == path {
            candidates.push(PathBuf::from(format!("/proc/{pid}/exe")));
        }
        // A library that was replaced on disk.
        candidates.extend(mapped_file(pid, module.start));
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

/// Whether a file is the one that the process loaded.
pub(crate) fn check(path: &Path, process: &ProcessInfo, module: &Module) -> Result<(), SymbolWarning> {
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
    let started = UNIX_EPOCH + Duration::from_nanos(process.start_realtime_ns);
    match metadata.modified() {
        Ok(modified) if modified > started => replaced("it is newer than the process and has no build id"),
        _ => Ok(()),
    }
}
