//! `make install`, and programs that are built against what it installed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, Scratch, artifacts, repository};

/// Runs `make install`, which has nothing to build.
fn install(prefix: &Path, destination: &str) {
    Program::new("make")
        .args(["install", &format!("PREFIX={}", prefix.display()), &format!("DESTDIR={destination}")])
        .dir(repository())
        .env("CARGO_TARGET_DIR", artifacts::release().parent().expect("the release folder lies in the target folder"))
        .run()
        .silent_success();
}

/// All files below a folder, by their paths in it.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![folder.to_owned()];
    while let Some(place) = next.pop() {
        for entry in std::fs::read_dir(&place).unwrap_or_else(|e| panic!("{}: {e}", place.display())) {
            let path = entry.expect("an entry is readable").path();
            if path.is_dir() {
                next.push(path);
            } else {
                let inside = path.strip_prefix(folder).expect("it lies in the folder");
                found.insert(inside.to_str().expect("the path is text").to_owned());
            }
        }
    }
    found
}

/// What is installed beside completions, manual pages and schemas.
const INSTALLED: [&str; 13] = [
    "bin/poolscope",
    "include/poolscope.h",
    "include/poolscope_data_ptr.h",
    "include/poolscope_gpu.h",
    "include/poolscope_heapcheck.h",
    "include/poolscope_memory_resource.hpp",
    "include/poolscope_tensors.h",
    "lib/libpoolscope.so",
    "lib/libpoolscope_gpu.so",
    "lib/libpoolscope_tensors.so",
    "lib/pkgconfig/poolscope.pc",
    "lib/pkgconfig/poolscope_gpu.pc",
    "lib/pkgconfig/poolscope_tensors.pc",
];

/// What pkg-config says of an installed tree.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> String {
    let output = Program::new("pkg-config")
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .args(arguments)
        .arg("poolscope")
        .run()
        .silent_success();
    output.stdout.trim().to_owned()
}

/// Compiles a sample as its first lines say, with what pkg-config answers.
fn compile(prefix: &Path, compiler: &[&str], source: &str, output: PathBuf) -> PathBuf {
    let flags = pkg_config(prefix, &["--cflags", "--libs"]);
    let run_path = format!("-Wl,-rpath,{}", pkg_config(prefix, &["--variable=libdir"]));
    Program::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-o"])
        .arg(&output)
        .arg(repository().join("samples/csrc").join(source))
        .args(flags.split_whitespace())
        .arg(run_path)
        .run()
        .silent_success();
    output
}

fn programs_and_headers(prefix: &Path) -> BTreeSet<String> {
    files(prefix).into_iter().filter(|file| !file.starts_with("share/")).collect()
}

#[test]
fn completions_manual_pages_and_schemas_are_installed() {
    let pool = Pool::new();
    let prefix = pool.files().join("usr");
    install(&prefix, "");
    let files = files(&prefix);
    for file in [
        "share/bash-completion/completions/poolscope",
        "share/zsh/site-functions/_poolscope",
        "share/fish/vendor_completions.d/poolscope.fish",
        "share/man/man1/poolscope.1",
        "share/man/man1/poolscope-record.1",
        "share/man/man7/poolscope-memory.7",
        "share/doc/poolscope/schemas/list.json",
    ] {
        assert!(files.contains(file), "{file} is not in {files:#?}");
    }
    // man(1) shows a page of each kind, and its formatter has nothing to warn of.
    for page in ["man1/poolscope-record.1", "man1/poolscope.1", "man7/poolscope-hunting.7"] {
        let page = prefix.join("share/man").join(page);
        let shown =
            Program::new("man").args(["--warnings", "-l"]).arg(&page).env("MANPAGER", "cat").env("MANWIDTH", "80");
        let shown = shown.run().silent_success().stdout;
        assert!(shown.contains("poolscope") && shown.contains("DESCRIPTION") || shown.contains("NAME"), "{shown}");
        // Lines of code stay lines.
        let line = match page.file_stem().and_then(|name| name.to_str()) {
            Some("poolscope-record") => "poolscope record 1234 --duration 30 -o app.rec && poolscope report app.rec\n",
            Some("poolscope-hunting") => "    fn parsing_frees_everything() {\n",
            _ => "NOTES\n",
        };
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let script = prefix.join("share/bash-completion/completions/poolscope");
    Program::new("bash").arg("-n").arg(script).run().silent_success();
    // fish's generator knows no values of arguments without a name.
    let script =
        std::fs::read_to_string(prefix.join("share/fish/vendor_completions.d/poolscope.fish")).expect("is text");
    let of_help = script.lines().filter(|line| line.contains("using_subcommand help\" -f -a"));
    let of_help: Vec<&str> = of_help.collect();
    assert!(matches!(&of_help[..], [line] if line.contains(" hunting") && line.contains("dump ")), "{of_help:?}");
}

#[test]
fn a_c_and_a_cpp_program_are_built_and_run_against_an_installed_tree() {
    let pool = Pool::new();
    let prefix = pool.files().join("usr");
    install(&prefix, "");
    assert_eq!(programs_and_headers(&prefix), INSTALLED.map(str::to_owned).into());
    assert_eq!(pkg_config(&prefix, &["--modversion"]), env!("CARGO_PKG_VERSION"));

    let tensors = compile(&prefix, &["gcc"], "tensors.c", pool.files().join("tensors"));
    let input = pool.files().write("input", "words of a file, words, and words\n");
    let output = pool.program(&tensors).env_remove("LD_PRELOAD").arg(&input).run().silent_success().stdout;
    // 40,000 bytes of each number below 64, and the bytes of the file.
    let bytes = std::fs::read(&input).expect("it was just written");
    let sum = (0..64).sum::<u64>() * 40_000 + bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    assert!(output.contains(&format!("the bytes' sum is {sum}\n")) && output.contains("was unmapped"), "{output}");
    pool.assert_ran("tensors");

    let words = compile(&prefix, &["g++", "-std=c++17"], "words.cpp", pool.files().join("words"));
    let program = pool.program(&words).env_remove("LD_PRELOAD").input("one two one\nthree one two\n");
    assert_eq!(program.run().silent_success().stdout, "3\tone\n2\ttwo\n1\tthree\n");
    pool.assert_ran("words");
}

#[test]
fn each_library_is_found_by_a_pkg_config_file_of_its_own() {
    let scratch = Scratch::new();
    let prefix = scratch.join("usr");
    install(&prefix, "");
    for (package, header, call) in [
        ("poolscope", "poolscope.h", "poolscope_build()"),
        ("poolscope_gpu", "poolscope_gpu.h", "poolscope_gpu_build()"),
        ("poolscope_tensors", "poolscope_tensors.h", "poolscope_tensors_error()"),
    ] {
        let flags = Program::new("pkg-config").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        let flags = flags.args(["--cflags", "--libs", package]).run().silent_success().stdout;
        let text = format!("#include <{header}>\nint main(void) {{ return {call} == (char *)1; }}\n");
        let source = scratch.join(format!("{package}.c"));
        std::fs::write(&source, text).expect("the folder is there");
        let program = scratch.join(package);
        let mut compiler = Program::new("gcc").args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
        compiler = compiler.args(flags.split_whitespace());
        compiler.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display())).run().silent_success();
        Program::new(&program).run().silent_success();
    }
}

/// Without running them: as packagers look, and who finds a core dump's library.
#[test]
fn every_library_says_what_it_is_on_a_line_of_its_own_and_the_command_by_version() {
    let version = env!("CARGO_PKG_VERSION");
    for library in ["libpoolscope.so", "libpoolscope_gpu.so", "libpoolscope_tensors.so"] {
        let said = Program::new("strings").arg(artifacts::release().join(library)).run().silent_success().stdout;
        let start = format!("@(#){library} {version} commit ");
        let line =
            said.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{library} has no {start}"));
        let segment = format!(" segment {}", poolscope_wire::VERSION);
        assert_eq!(line.ends_with(&segment), library != "libpoolscope_tensors.so", "{line}");
    }
    let command = Program::new(poolscope_e2e::poolscope()).arg("--version").run().silent_success().stdout;
    assert!(command.contains(&format!("poolscope {version}")) && command.contains("\ncommit"), "{command}");
    assert!(command.contains("\nsegments") && command.contains(&poolscope_wire::VERSION.to_string()), "{command}");
}

#[test]
fn the_installed_command_finds_the_installed_library() {
    let pool = Pool::new();
    let prefix = pool.files().join("usr");
    install(&prefix, "");
    let program = pool.program(prefix.join("bin/poolscope")).env_remove("LD_PRELOAD");
    let output = program.args(["run", "--headless", "--", "cat", "/proc/self/maps"]).run().silent_success();
    let library = prefix.join("lib/libpoolscope.so");
    assert!(output.stdout.contains(library.to_str().expect("the path is text")), "{}", output.stdout);
}

#[test]
fn a_packager_installs_below_a_folder_that_the_files_do_not_name() {
    let scratch = Scratch::new();
    let stage = scratch.join("stage");
    install(Path::new("/opt/pool"), stage.to_str().expect("the path is text"));
    assert_eq!(programs_and_headers(&stage.join("opt/pool")), INSTALLED.map(str::to_owned).into());
    assert!(files(&stage).iter().all(|file| file.starts_with("opt/pool/")));
    let package = std::fs::read_to_string(stage.join("opt/pool/lib/pkgconfig/poolscope.pc")).expect("it is there");
    assert!(package.contains("prefix=/opt/pool\n") && !package.contains("stage"), "{package}");
}

#[test]
fn a_relative_prefix_is_refused_with_the_full_path() {
    let output = Program::new("make").args(["install", "PREFIX=somewhere"]).dir(repository()).run();
    assert_ne!(output.code(), 0);
    let full = format!("PREFIX={}/somewhere", repository().display());
    assert!(output.stderr.contains(&full), "{}", output.report());
    assert!(!repository().join("somewhere").exists());
}

#[test]
fn a_crate_outside_the_workspace_depends_on_the_pool_as_the_guide_says() {
    let pool = Pool::new();
    let guide = std::fs::read_to_string(repository().join("docs/guide/embedding.md")).expect("is read");
    let lines = guide.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```")).expect("has the lines").0;
    let app = pool.files().join("app");
    std::fs::create_dir_all(app.join("src")).expect("is made");
    std::os::unix::fs::symlink(repository(), pool.files().join("poolscope")).expect("is linked");
    pool.files().write("app/Cargo.toml", &format!("[package]\nname = \"app\"\nedition = \"2024\"\n\n{lines}"));
    let main = "#[global_allocator]\nstatic POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;\n\n\
        fn main() {\n    let held: Vec<Vec<u8>> = (0..100).map(|_| vec![1; 1000]).collect();\n    println!(\"{}\", held.len());\n}\n";
    pool.files().write("app/src/main.rs", main);
    // The versions that the workspace is tested with.
    std::fs::copy(repository().join("Cargo.lock"), app.join("Cargo.lock")).expect("is copied");
    let cargo = Program::new("cargo").args(["run", "--offline", "--quiet"]).dir(&app).limit(600);
    let cargo =
        cargo.env("CARGO_TARGET_DIR", app.join("target")).env("POOLSCOPE_PERIOD", "1").env("POOLSCOPE_KEEP", "1");
    assert_eq!(cargo.env("POOLSCOPE_DIR", pool.segment_dir()).run().success().stdout, "100\n");
    let list = pool.poolscope().args(["list", "--json"]).run().success().stdout;
    let list: serde_json::Value = serde_json::from_str(&list).expect("is JSON");
    let programs = list["processes"].as_array().expect("processes").iter();
    assert!(programs.filter_map(|process| process["exe"].as_str()).any(|exe| exe.ends_with("/app")), "{list:#}");
}
