//! Made traces, as files: so that every contestant reads them as it reads recorded ones.

use std::path::PathBuf;

use poolscope_bench::Result;
use poolscope_replay::synthetic;

const SEED: u64 = 17;

fn names() -> impl Iterator<Item = String> {
    let mixes = synthetic::MIXES.iter().map(|mix| mix.name());
    synthetic::NAMES.iter().map(ToString::to_string).chain(mixes)
}

/// A folder with all made traces, which goes when this does.
pub struct Made(PathBuf);

impl Made {
    /// Writes them.
    pub fn write() -> Result<Made> {
        let folder = std::env::temp_dir().join(format!("poolscope-traces-{}", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let made = Made(folder.clone());
        for (name, path) in names().zip(made.files()) {
            let text = synthetic::make(&name, SEED).ok_or("no such made trace")?;
            std::fs::write(path, text).map_err(failed)?;
        }
        Ok(made)
    }

    /// Where they are.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        names().map(|name| self.0.join(format!("{name}.trace")))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // What can't be removed is the system's to remove.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
