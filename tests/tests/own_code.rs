//! The list of the pool's own code (`poolscope_wire::own_code`), held against the sources and the libraries that there
//! are: a file or a function that moves must not come to stand in profiles as the program's.

use std::collections::BTreeSet;
use std::path::Path;

use poolscope_e2e::{Program, gpu_library, library, repository};
use poolscope_wire::own_code::{C_FUNCTIONS, DEVICE_C_FUNCTIONS, LIBRARIES, OWN_CODE};
use serde_json::Value;

/// A library of the workspace.
struct Library {
    /// As the paths of its functions begin.
    name: String,
    /// The folder of its sources, below the repository.
    sources: String,
}

/// The libraries of the workspace of these kinds that lie below `alloc`, but for benchmarks.
fn libraries(of: &[&str]) -> Vec<Library> {
    let args = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata = Program::new("cargo").args(args).dir(repository()).run().success().stdout;
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let is_linked = |target: &&Value| {
        let kinds = target["kind"].as_array().expect("kinds");
        kinds.iter().any(|kind| of.contains(&kind.as_str().unwrap_or_default()))
    };
    let library = |package: &Value| {
        let target = package["targets"].as_array().expect("targets").iter().find(is_linked)?;
        let root = Path::new(target["src_path"].as_str()?);
        let sources = root.parent()?.strip_prefix(repository()).ok()?.to_str()?.to_owned();
        let name = target["name"].as_str()?.replace('-', "_");
        sources.starts_with("alloc/").then_some(Library { name, sources })
    };
    packages.filter_map(library).filter(|library| !library.sources.starts_with("alloc/bench/")).collect()
}

/// The Rust sources in a folder of the repository and below it, as paths from the root.
fn sources_in(folder: &str) -> Vec<String> {
    let args = [folder, "-name", "*.rs", "-type", "f"];
    let found = Program::new("find").args(args).dir(repository()).run().success().stdout;
    found.lines().map(str::to_owned).collect()
}

#[test]
fn every_line_names_sources_and_a_crate_that_there_are() {
    let libraries = libraries(&["lib", "cdylib"]);
    for own in OWN_CODE {
        match own.name.strip_prefix("poolscope::") {
            Some(class) => {
                let header = std::fs::read_to_string(repository().join(own.sources[0])).expect("a header");
                assert!(header.contains(&format!("\nclass {class} ")), "{} has no class {class}", own.sources[0]);
            }
            None => assert!(libraries.iter().any(|it| it.name == own.name), "no library has the name {}", own.name),
        }
        for source in own.sources {
            let path = repository().join(source);
            assert_eq!((path.is_dir(), path.is_file()), (source.ends_with('/'), !source.ends_with('/')), "{source}");
        }
    }
}

#[test]
fn every_source_that_a_program_on_the_pool_links_has_a_line() {
    for Library { name, sources } in libraries(&["lib"]) {
        let files = sources_in(&sources);
        assert!(!files.is_empty(), "{sources} is empty");
        for file in files {
            let mut own = OWN_CODE.iter().filter(|own| own.name == name);
            assert!(own.any(|own| own.has_source(&file)), "{file} has no line of {name} in poolscope_wire::own_code");
        }
    }
}

#[test]
fn the_libraries_of_the_list_are_those_that_are_built() {
    let built = [library(), gpu_library()].map(|path| path.file_name().expect("a name").to_owned());
    assert_eq!(built.each_ref().map(|name| name.to_str()), [Some(LIBRARIES[0]), Some(LIBRARIES[1])]);
    assert_eq!(LIBRARIES.len(), built.len());
}

/// What a library gives to programs.
fn exported(library: &Path) -> BTreeSet<String> {
    let symbols = Program::new("nm").args(["-D", "--defined-only"]).arg(library).run().success().stdout;
    symbols.lines().filter_map(|line| Some(line.split(' ').next_back()?.split('@').next()?.to_owned())).collect()
}

#[test]
fn every_function_by_which_programs_in_c_allocate_is_one_of_the_library() {
    let exported = exported(&library());
    for name in C_FUNCTIONS {
        assert!(exported.contains(*name), "libpoolscope.so has no {name}");
    }
}

#[test]
fn the_functions_of_the_device_library_are_those_that_begin_as_the_list_says() {
    let exported = exported(&gpu_library());
    for beginning in DEVICE_C_FUNCTIONS {
        assert!(exported.iter().any(|name| name.starts_with(beginning)), "no function begins with {beginning}");
    }
    for name in exported {
        assert!(DEVICE_C_FUNCTIONS.iter().any(|beginning| name.starts_with(beginning)), "{name} is in no line");
    }
}
