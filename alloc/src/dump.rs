//! A copy of what other processes see of the heap, in a file.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Writes a copy of the process's segment to a file, with the counters as of now: `poolscope dump FILE`,
/// `poolscope flamegraph FILE` and the like read it, here and elsewhere, now and later. A file that is there is
/// overwritten.
///
/// # Errors
///
/// Those of writing a file, and `ENODATA` where the process has no segment.
pub fn dump(path: impl AsRef<Path>) -> io::Result<()> {
    let path = CString::new(path.as_ref().as_os_str().as_bytes())?;
    poolscope_cpu::dump(&path).map_err(io::Error::from_raw_os_error)
}
