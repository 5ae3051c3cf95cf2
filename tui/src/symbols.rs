//! Where names come from, as the command line says.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use poolscope_profiler::ProfileBuilder;
use poolscope_profiler::model::naming::Naming;

use crate::failure::Failure;

static DEBUG_DIRS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Names the folders of separate debug information; once, before any command runs.
pub(crate) fn set_debug_dirs(dirs: Vec<PathBuf>) {
    // A second call would come from nowhere.
    let _ = DEBUG_DIRS.set(dirs);
}

/// Folders of separate debug information beside the system's.
pub(crate) fn debug_dirs() -> &'static [PathBuf] {
    DEBUG_DIRS.get().map_or(&[], Vec::as_slice)
}

static NAMING: OnceLock<Arc<Naming>> = OnceLock::new();

/// Says by which functions call sites are not to be named: those of the command line, and the rules of files. Once,
/// before any command runs.
pub(crate) fn set_naming(functions: &[String], files: &[PathBuf]) -> Result<(), Failure> {
    let mut naming = Naming::default();
    for function in functions {
        naming.add(function).map_err(|error| Failure::usage(error.to_string()))?;
    }
    for file in files {
        let failed = |why: String| Failure::usage(format!("{}: {why}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
        naming.add(&text).map_err(|error| failed(error.to_string()))?;
    }
    // A second call would come from nowhere.
    let _ = NAMING.set(Arc::new(naming));
    Ok(())
}

/// By which functions call sites are not to be named.
pub(crate) fn naming() -> Arc<Naming> {
    NAMING.get().cloned().unwrap_or_default()
}

/// Names the folder in which names of functions are kept from one run to the next; nothing for none.
const KEPT_IN: &str = "POOLSCOPE_SYMBOL_CACHE";

/// That folder: as the environment says, or that of the user's caches (XDG Base Directory Specification).
fn kept_in() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    if let Some(folder) = variable(KEPT_IN) {
        return Some(folder).filter(|folder| !folder.as_os_str().is_empty());
    }
    let caches = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    // A home that is not there is not made: that of a service is often /nonexistent, and meant.
    let home = variable("HOME").filter(|home| home.is_absolute() && home.is_dir());
    let caches = caches.or_else(|| Some(home?.join(".cache")))?;
    Some(caches.join("poolscope/symbols"))
}

/// A builder of profiles that looks there, and names call sites so.
pub(crate) fn profile_builder() -> ProfileBuilder {
    let builder = ProfileBuilder::with_debug_dirs(debug_dirs()).with_naming(naming());
    match kept_in() {
        Some(folder) => builder.with_names_kept_in(&folder),
        None => builder,
    }
}
