//! The environment of a program on the pool.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The command with the library preloaded, before what is preloaded already.
pub(crate) fn command(program: &[OsString], library: &Path, period: Option<u64>) -> Command {
    let mut command = without_library(program, period);
    command.env("LD_PRELOAD", preload(library, std::env::var_os("LD_PRELOAD").as_deref()));
    command
}

/// The command of a program that has the pool in itself.
pub(crate) fn without_library(program: &[OsString], period: Option<u64>) -> Command {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    if let Some(period) = period {
        command.env("POOLSCOPE_PERIOD", period.to_string());
    }
    command
}

fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        value.push(":");
        value.push(before);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_before_what_is_preloaded_already() {
        let library = Path::new("/lib/libpoolscope.so");
        assert_eq!(preload(library, None), "/lib/libpoolscope.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/lib/libpoolscope.so");
        assert_eq!(preload(library, Some(OsStr::new("a.so b.so"))), "/lib/libpoolscope.so:a.so b.so");
    }
}
