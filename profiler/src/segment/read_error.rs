//! What is said when a segment can't be read: of which file, what is wrong with it, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use poolscope_wire::{HeaderError, Region};

/// Why a segment could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be opened.
    #[error("cannot open the segment {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The path is a folder, a device or the like.
    #[error("{} is not a regular file, so it is no segment: name a file in the folder that `poolscope list` shows", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be read, or ended early.
    #[error("cannot read {len} bytes at {offset} of the segment {}: {source} (was the file cut off?)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// How many bytes were wanted.
        len: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The header is not one that can be read.
    #[error("cannot read the segment {}: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: HeaderError,
    },
    /// The program has not finished setting the segment up.
    #[error(
        "the segment {} is still being set up by process {pid}: try again in a moment; if that process is gone, it died while it started, and `poolscope gc` removes the file",
        path.display()
    )]
    Starting {
        /// The file.
        path: PathBuf,
        /// The process, if its number is known (0 otherwise).
        pid: u32,
    },
    /// A region claims more records than any real program has.
    #[error(
        "damaged segment {}: region {} counts {count} records, and no more than {limit} are read",
        path.display(), region.name()
    )]
    TooMany {
        /// The file.
        path: PathBuf,
        /// Which region.
        region: Region,
        /// What it claims.
        count: u64,
        /// What is allowed.
        limit: u64,
    },
    /// Between two readings the file became that of another program.
    #[error("the segment {} now belongs to another program: open it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl ReadError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            ReadError::Open { path, .. }
            | ReadError::NotAFile { path }
            | ReadError::Read { path, .. }
            | ReadError::Header { path, .. }
            | ReadError::Starting { path, .. }
            | ReadError::TooMany { path, .. }
            | ReadError::Changed { path } => path,
        }
    }
}
