//! Where names come from, as the command line says.

use std::path::PathBuf;
use std::sync::OnceLock;

use poolscope_profiler::ProfileBuilder;

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

/// A builder of profiles that looks there.
pub(crate) fn profile_builder() -> ProfileBuilder {
    ProfileBuilder::with_debug_dirs(debug_dirs())
}
