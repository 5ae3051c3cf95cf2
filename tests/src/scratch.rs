//! A folder of a test's own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder, removed when this is dropped, unless the test failed.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Makes the folder in the system's folder for temporary files. Its path is short: sockets lie in it.
    pub fn new() -> Scratch {
        Scratch::under(&std::env::temp_dir())
    }

    /// Makes the folder in `/dev/shm`, where segments lie.
    pub fn in_shared_memory() -> Scratch {
        Scratch::under(Path::new("/dev/shm"))
    }

    fn under(parent: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let path = parent.join(format!("psc-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
            match std::fs::create_dir(&path) {
                Ok(()) => return Scratch { path },
                // Of a test that failed, in a process that had the same number.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => panic!("cannot make {}: {e}", path.display()),
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, contents).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test's files are kept in {}", self.path.display());
        } else {
            // What cannot be removed stays in the folder for temporary files, which is no failure of the test.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
