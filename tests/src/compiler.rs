//! Compiles the programs of `samples/csrc`.

use std::path::PathBuf;

use crate::{Program, Scratch, repository};

/// Compiles one file into `scratch` under `name` with these flags on top of the warnings that we hold our own C to.
pub fn compile(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let input = repository().join("samples/csrc").join(source);
    let output = scratch.join(name);
    let (compiler, standard) = if source.ends_with(".cpp") { ("g++", "-std=c++17") } else { ("gcc", "-std=gnu11") };
    Program::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", standard, "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(&input)
        .args(["-ldl", "-lm"])
        .run()
        .silent_success();
    output
}

/// A shared library instead of a program.
pub fn compile_library(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let flags: Vec<&str> = flags.iter().copied().chain(["-fPIC", "-shared"]).collect();
    compile(scratch, source, name, &flags)
}
