//! Where a command's result goes: standard output, or a file that is complete or not there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use color_eyre::eyre::{Report, Result, WrapErr};

/// Whether what went wrong is only that nobody reads standard output any more, as in `poolscope list | head -1`.
pub(crate) fn is_broken_pipe(report: &Report) -> bool {
    report.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).wrap_err(STANDARD_OUTPUT)
}

const STANDARD_OUTPUT: &str = "cannot write to standard output";

/// Says something on standard error; nobody can be told that this failed.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "poolscope: {message}");
}

/// Writes to a path; `-` is standard output. A file appears under its name only once it is complete.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    if path == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        return write(&mut out).and_then(|()| out.flush()).wrap_err(STANDARD_OUTPUT);
    }
    let failed = || format!("cannot write {}", path.display());
    // A device or a pipe cannot be replaced by a rename.
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        let mut out = BufWriter::new(File::create(path).wrap_err_with(failed)?);
        write(&mut out).and_then(|()| out.flush()).wrap_err_with(failed)?;
        return Ok(());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let unfinished = path.with_file_name(name);
    let done = File::create(&unfinished)
        .and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&mut out)?;
            out.flush()
        })
        .and_then(|()| std::fs::rename(&unfinished, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    done.wrap_err_with(failed)
}
