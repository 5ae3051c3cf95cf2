//! A folder that runs the benchmark on a machine without Cargo, network and Debian: the programs, the allocators'
//! libraries and what these need beside glibc.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use poolscope_bench::Result;

use crate::peers::{self, Allocator};

/// Starts the benchmark in the folder. A library of the machine's own goes before the one that was brought.
const RUN: &str = r#"#!/bin/sh
# The pool beside its peers, from this folder alone; --help says what the arguments are.
set -eu
here=$(dirname "$(readlink -f "$0")")
PATH="$PATH:/sbin:/usr/sbin"
lacking=$(mktemp -d)
trap 'rm -rf "$lacking"' EXIT
for library in "$here"/needed/*; do
    ldconfig -p | grep -q "$(basename "$library") " || ln -s "$library" "$lacking"
done
LD_LIBRARY_PATH="$lacking${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/bin/bench-cpu" --libraries "$here/lib" "$@"
"#;

/// The parts of glibc, which must be the machine's own.
const GLIBC: [&str; 8] = ["linux-vdso", "ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libanl."];

/// Fills `folder` anew.
pub fn pack(folder: &Path, here: &Path, libraries: &Path, allocators: &[Allocator]) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| format!("{} can't be removed: {error}", folder.display()))?;
    }
    let [bin, lib, needed] = ["bin", "lib", "needed"].map(|name| folder.join(name));
    for folder in [&bin, &lib, &needed] {
        std::fs::create_dir_all(folder).map_err(|error| format!("{} can't be made: {error}", folder.display()))?;
    }
    let mut dependencies = BTreeSet::new();
    for program in ["bench-cpu", "workloads", "poolscope"] {
        take(&here.join(program), &bin, &mut dependencies)?;
    }
    let own: BTreeSet<&PathBuf> = allocators.iter().filter_map(|allocator| allocator.library.as_ref()).collect();
    for library in own {
        take(library, &lib, &mut dependencies)?;
    }
    for library in &dependencies {
        take(library, &needed, &mut BTreeSet::new())?;
    }
    peers::copy(&libraries.join(peers::LIST), &lib.join(peers::LIST))?;
    let run = folder.join("run");
    std::fs::write(&run, RUN)
        .and_then(|()| std::fs::set_permissions(&run, PermissionsExt::from_mode(0o755)))
        .map_err(|error| format!("{} can't be written: {error}", run.display()))?;
    println!(
        "{} holds the benchmark; {} starts it, on any machine with a glibc at least as new.",
        folder.display(),
        run.display()
    );
    Ok(())
}

/// Copies a program or library without its debug information, and notes what it needs.
fn take(file: &Path, folder: &Path, dependencies: &mut BTreeSet<PathBuf>) -> Result<()> {
    let name = file.file_name().ok_or(format!("{} has no name", file.display()))?;
    let copy = folder.join(name);
    peers::copy(file, &copy)?;
    let stripped = Command::new("strip").arg("--strip-debug").arg(&copy).status();
    if !stripped.is_ok_and(|status| status.success()) {
        println!("{} keeps its debug information: strip can't be run on it.", copy.display());
    }
    let ldd = Command::new("ldd").arg(file).output().map_err(|error| format!("ldd can't be run: {error}"))?;
    for line in String::from_utf8_lossy(&ldd.stdout).lines() {
        let (name, path) = line.trim().split_once(" => ").unwrap_or((line.trim(), ""));
        let Some((path, _)) = path.split_once(" (") else { continue };
        if !GLIBC.iter().any(|part| name.starts_with(part)) {
            dependencies.insert(path.into());
        }
    }
    Ok(())
}
