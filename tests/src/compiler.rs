//! Compiles the programs of `samples/csrc` and `tests/csrc`.

use std::path::{Path, PathBuf};

use crate::{Program, Scratch, gpu_library, library, repository};

/// Compiles one file of `samples/csrc` into `scratch` under `name` with these flags on top of the warnings that we hold
/// our own C to.
pub fn compile(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    build(scratch, &Path::new("samples/csrc").join(source), name, flags, &[])
}

/// A shared library instead of a program.
pub fn compile_library(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let flags: Vec<&str> = flags.iter().copied().chain(["-fPIC", "-shared"]).collect();
    compile(scratch, source, name, &flags)
}

/// Compiles a file, named from the root of the repository, that includes the pool's headers.
pub fn compile_with_headers(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let include = format!("-I{}", headers().display());
    let flags: Vec<&str> = [include.as_str(), "-pedantic"].into_iter().chain(flags.iter().copied()).collect();
    build(scratch, Path::new(source), name, &flags, &[])
}

/// The same, linked with the library as `-lpoolscope`, and found at run time where it was built.
pub fn compile_linked(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let folder = library().parent().expect("the library lies in a folder").to_owned();
    let include = format!("-I{}", headers().display());
    let flags: Vec<&str> = [include.as_str(), "-pedantic"].into_iter().chain(flags.iter().copied()).collect();
    let (find, run) = (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
    build(scratch, Path::new(source), name, &flags, &[&find, &run, "-lpoolscope"])
}

/// The folder of `poolscope.h`.
pub fn headers() -> PathBuf {
    repository().join("alloc/preload/include")
}

fn build(scratch: &Scratch, source: &Path, name: &str, flags: &[&str], libraries: &[&str]) -> PathBuf {
    let output = scratch.join(name);
    compile_into(&output, source, flags, libraries);
    output
}

/// Compiles a file, named from the root of the repository, into `output`.
pub fn compile_into(output: &Path, source: &Path, flags: &[&str], libraries: &[&str]) {
    let cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let (compiler, standard) = if cpp { ("g++", "-std=c++17") } else { ("gcc", "-std=gnu11") };
    Program::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", standard, "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(output)
        .arg(repository().join(source))
        .args(libraries)
        .args(["-ldl", "-lm"])
        .run()
        .silent_success();
}

/// Compiles a Rust program of one file, named from the root of the repository, optimised.
pub fn compile_rust(scratch: &Scratch, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let output = scratch.join(name);
    Program::new("rustc")
        .args(["--edition=2024", "-Copt-level=2", "--crate-name", name])
        .args(flags)
        .arg("-o")
        .arg(&output)
        .arg(repository().join(source))
        .run()
        .silent_success();
    output
}

/// Compiles a program of `tests/csrc` into `output` that is linked with the library of device memory, and finds it at
/// run time where it was built.
pub fn compile_with_gpu(output: &Path, source: &str, flags: &[&str]) {
    let library = gpu_library();
    let folder = library.parent().expect("the library lies in a folder").display();
    let include = format!("-I{}", repository().join("alloc/plugin/include").display());
    let (find, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let shared = format!("-I{}", headers().display());
    let flags: Vec<&str> = [&include, &shared, "-pedantic"].into_iter().chain(flags.iter().copied()).collect();
    compile_into(output, &Path::new("tests/csrc").join(source), &flags, &[&find, &run, "-lpoolscope_gpu"]);
}
