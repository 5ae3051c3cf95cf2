//! Where a recording goes: a file, which keeps what it has until there is something to record,
//! or what can only be written to.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::recording::file::append::{Continuation, write_version};
use poolscope_profiler::words::figures;
use rustix::fs::FlockOperation;

use crate::failure::Failure;
use crate::sink;

/// No file has room for the blocks that every recording has below this.
pub(super) const LEAST_LIMIT: u64 = 64 << 10;

/// Where the recording goes.
pub(super) struct Output {
    to: To,
    /// Where to go on, if it is gone on with.
    pub(super) before: Option<Continuation>,
    /// The recording has begun.
    begun: Cell<bool>,
}

enum To {
    StandardOutput,
    /// A file, locked: two recorders would write over each other.
    File {
        file: File,
        path: PathBuf,
        /// It was not there before.
        is_new: bool,
    },
    /// A device or a pipe.
    Stream {
        file: File,
        path: PathBuf,
    },
}

impl Output {
    /// Opens it, and leaves what is in it.
    pub(super) fn open(path: &Path, append: bool, limit: Option<u64>) -> Result<Self> {
        let begun = Cell::new(false);
        if path == Path::new("-") {
            if append {
                return Err(
                    Failure::usage("--append needs a file: nothing can be read back from standard output").into()
                );
            }
            if io::stdout().is_terminal() {
                let message = "a recording is not for a terminal: send standard output to a file or a program, or name a \
                               file by --output";
                return Err(Failure::usage(message).into());
            }
            return Ok(Self { to: To::StandardOutput, before: None, begun });
        }
        let failed = || format!("cannot write the recording to {}", path.display());
        let (file, is_new) = match File::options().write(true).create_new(true).open(path) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Not made anew if it has gone meanwhile, but where a link leads to nothing.
                let options = &mut File::options();
                (options.write(true).create(true).truncate(false).open(path).wrap_err_with(failed)?, false)
            }
            Err(error) => return Err(error).wrap_err_with(failed),
        };
        let metadata = file.metadata().wrap_err_with(failed)?;
        let path = path.to_owned();
        if !metadata.is_file() {
            return Ok(Self { to: To::Stream { file, path }, before: None, begun });
        }
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let message =
                format!("another `poolscope record` writes to {}: stop it, or name another file", path.display());
            return Err(Failure::usage(message).into());
        }
        let before = if append && metadata.len() > 0 { Some(continuation(&path, limit)?) } else { None };
        Ok(Self { to: To::File { file, path, is_new }, before, begun })
    }

    pub(super) fn is_standard_output(&self) -> bool {
        matches!(self.to, To::StandardOutput)
    }

    /// Whether a recording that has begun can be thrown away for another one.
    pub(super) fn can_begin_anew(&self) -> bool {
        matches!(self.to, To::File { .. })
    }

    /// Whether there was something to record.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// As people know it.
    pub(super) fn name(&self) -> String {
        match &self.to {
            To::StandardOutput => "standard output".to_owned(),
            To::File { path, .. } | To::Stream { path, .. } => path.display().to_string(),
        }
    }

    /// Bytes of the file.
    pub(super) fn len(&self) -> Option<u64> {
        let To::File { file, .. } = &self.to else { return None };
        file.metadata().ok().map(|file| file.len())
    }

    /// What writes to it, and leaves it as it is until then.
    pub(super) fn writer(&self) -> impl Write {
        OnceNeeded { output: self, begun: None }
    }

    /// The file, cut to where this recording begins: there is something to record. What it has behind that is an older
    /// recording, or that of a program that became another by `exec`, an index,
    /// or what a recorder that was killed has left of a block.
    fn begin(&self) -> io::Result<Box<dyn Write + '_>> {
        self.begun.set(true);
        let file = match &self.to {
            To::StandardOutput => return Ok(Box::new(io::stdout())),
            To::Stream { file, .. } => return Ok(Box::new(file)),
            To::File { file, .. } => file,
        };
        let offset = self.before.as_ref().map_or(0, |before| before.offset);
        file.set_len(offset)?;
        if self.before.is_some() {
            write_version(file)?;
        }
        let mut file = file;
        file.seek(SeekFrom::Start(offset))?;
        if let Some(torn) = self.before.as_ref().map(|before| before.torn).filter(|&torn| torn > 0) {
            let torn = figures::bytes(torn as f64);
            sink::say(&format!(
                "the end of the recording was missing: {torn} of a block that is not whole were cut off"
            ));
        }
        Ok(Box::new(file))
    }
}

struct OnceNeeded<'a> {
    output: &'a Output,
    begun: Option<Box<dyn Write + 'a>>,
}

impl Write for OnceNeeded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let out = match &mut self.begun {
            Some(out) => out,
            None => self.begun.insert(self.output.begin()?),
        };
        out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.begun.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // A file that was made for a recording that never began is for nobody.
        if let To::File { path, is_new: true, .. } = &self.to
            && !self.begun.get()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where to go on with the recording of a file.
fn continuation(path: &Path, limit: Option<u64>) -> Result<Continuation> {
    let before = Continuation::find(path).map_err(|error| Failure::usage(error.to_string()))?;
    if let Some(limit) = limit.filter(|&limit| before.offset + LEAST_LIMIT > limit) {
        let (has, limit) = (figures::bytes(before.offset as f64), figures::bytes(limit as f64));
        let message = format!("{} has {has} already, and --limit is {limit} for the whole file", path.display());
        return Err(Failure::usage(message).into());
    }
    Ok(before)
}
