//! Why names are missing.

use std::path::PathBuf;

/// Why frames of a module have no names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolWarning {
    /// The file is another one than the process loaded.
    #[error("no names for {module}: {} has changed since the process loaded it ({why}); its frames show as [{module}+OFFSET]", path.display())]
    Replaced {
        /// File name of the module.
        module: String,
        /// The file.
        path: PathBuf,
        /// How we know.
        why: &'static str,
    },
    /// Nobody knows where the file is.
    #[error(
        "no names for {module}: it was loaded as {path}, and from which folder is not known; its frames show as [{module}+OFFSET]"
    )]
    Relative {
        /// File name of the module.
        module: String,
        /// What the program called it.
        path: String,
    },
    /// The file is not there, or may not be read.
    #[error("no names for {module}: cannot read {}: {error}; its frames show as [{module}+OFFSET]", path.display())]
    Unreadable {
        /// File name of the module.
        module: String,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: String,
    },
}
