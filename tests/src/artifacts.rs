//! Where the built files lie.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

/// The folder of release binaries: `POOLSCOPE_BIN_DIR`, else `release` in the target folder.
pub fn release() -> PathBuf {
    if let Some(dir) = std::env::var_os("POOLSCOPE_BIN_DIR") {
        return PathBuf::from(dir);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    // A relative CARGO_TARGET_DIR counts from where cargo was called, which is the root of the repository.
    repository().join(target).join("release")
}

fn built(name: &str) -> PathBuf {
    let path = release().join(name);
    assert!(path.exists(), "{} is missing: run `make test`, which builds it first", path.display());
    path
}

/// The command.
pub fn poolscope() -> PathBuf {
    built("poolscope")
}

/// The library to preload.
pub fn library() -> PathBuf {
    built("libpoolscope.so")
}

/// The library with the device tiers.
pub fn gpu_library() -> PathBuf {
    built("libpoolscope_gpu.so")
}

/// The library of named tensors, for C and Python.
pub fn tensors_library() -> PathBuf {
    built("libpoolscope_tensors.so")
}

/// A program of `samples/`.
pub fn sample(name: &str) -> PathBuf {
    built(name)
}

/// Copies an executable by `cp`. A copy by this process could not be started at once: another test's thread may fork
/// while it is open for writing, and an executable that someone has open for writing is "text file busy".
pub fn copy(from: &Path, to: &Path) {
    crate::Program::new("cp").arg(from).arg(to).run().silent_success();
}
