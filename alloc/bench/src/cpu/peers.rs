//! The allocators, and where each library comes from: ours from this build, some from Debian, some compiled here from
//! the sources in their crates, as their own builds do for a library to preload. All of them lie in one folder in the
//! end, with a list of what they are, so that the folder can be carried to a machine that has neither.

use std::path::{Path, PathBuf};
use std::process::Command;

use poolscope_bench::Result;
use poolscope_bench::machine::glibc_version;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The list in the folder of libraries.
pub const LIST: &str = "peers.json";

/// How an allocator counts in the comparison.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The pool as it comes.
    Ours,
    /// The pool without sampling.
    SamplingOff,
    /// What ours is held against.
    Peer,
    /// Named on the command line, or the pool with other settings; shown, and held against nothing.
    Guest,
}

/// One allocator.
#[derive(Clone, Serialize, Deserialize)]
pub struct Allocator {
    pub name: String,
    pub role: Role,
    pub version: String,
    /// To preload; relative to the folder of the list. None: glibc's own.
    pub library: Option<PathBuf>,
    /// Set in the programs that run on it.
    pub environment: Vec<(String, String)>,
}

enum Origin {
    Debian { package: &'static str },
    Crate { package: &'static str, compile: fn(&Path) -> Command },
}

/// Name, the library to preload, and where it comes from.
const PEERS: [(&str, &str, Origin); 7] = [
    ("mimalloc3", "libmimalloc3.so", Origin::Crate { package: "rustfs-mimalloc-sys", compile: mimalloc }),
    ("mimalloc2", "libmimalloc.so.2.0", Origin::Debian { package: "libmimalloc2.0" }),
    ("jemalloc", "libjemalloc.so.2", Origin::Debian { package: "libjemalloc2" }),
    ("tcmalloc", "libtcmalloc_minimal.so.4", Origin::Debian { package: "libtcmalloc-minimal4" }),
    ("tbbmalloc", "libtbbmalloc_proxy.so.2", Origin::Debian { package: "libtbbmalloc2" }),
    ("snmalloc", "libsnmalloc.so", Origin::Crate { package: "snmalloc-sys", compile: snmalloc }),
    ("rpmalloc", "librpmalloc.so", Origin::Crate { package: "rpmalloc-sys", compile: rpmalloc }),
];

fn mimalloc(sources: &Path) -> Command {
    let sources = sources.join("c_src/mimalloc");
    let mut cc = Command::new("cc");
    cc.args(["-O3", "-DNDEBUG", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-DMI_MALLOC_OVERRIDE=1"]);
    cc.args(["-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc"]);
    cc.arg(format!("-I{}", sources.join("include").display())).arg(sources.join("src/static.c"));
    cc
}

fn snmalloc(sources: &Path) -> Command {
    let sources = sources.join("upstream/src");
    let mut cc = Command::new("c++");
    cc.args(["-std=c++20", "-O3", "-DNDEBUG", "-mcx16", "-fno-rtti", "-fomit-frame-pointer", "-ffunction-sections"]);
    cc.args(["-fvisibility=hidden", "-ftls-model=initial-exec", "-static-libstdc++", "-Wl,--exclude-libs,ALL"]);
    if cfg!(target_arch = "x86_64") {
        cc.arg("-mprfchw");
    }
    cc.args([
        "-DSNMALLOC_EXPORT=__attribute__((visibility(\"default\")))",
        "-DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT",
    ]);
    cc.args(["-DSNMALLOC_CHECK_LOADS=false", "-DSNMALLOC_PAGEID=false", "-DSNMALLOC_USE_WAIT_ON_ADDRESS=1"]);
    cc.args(["-DSNMALLOC_HAS_LINUX_FUTEX_H", "-DSNMALLOC_HAS_LINUX_RANDOM_H", "-DSNMALLOC_PLATFORM_HAS_GETENTROPY"]);
    cc.arg(format!("-I{}", sources.display()));
    cc.args(["malloc.cc", "new.cc"].map(|file| sources.join("snmalloc/override").join(file)));
    cc
}

fn rpmalloc(sources: &Path) -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O3", "-DNDEBUG", "-D_GNU_SOURCE", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1"]);
    cc.args(["-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-funroll-loops"]);
    cc.arg(sources.join("rpmalloc/rpmalloc/rpmalloc.c"));
    cc
}

/// Brings every library into `folder` and writes the list. A peer that can't be had is left out, and says so.
pub fn gather(folder: &Path, ours: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{} can't be made: {error}", folder.display()))?;
    let file = ours.file_name().ok_or("the library has no name")?;
    copy(ours, &folder.join(file))?;
    let version = version();
    let pool = |name: &str, role, environment| Allocator {
        name: name.to_owned(),
        role,
        version: version.clone(),
        library: Some(file.into()),
        environment,
    };
    // The longest period that there is: a sample for each TiB.
    let off = vec![("POOLSCOPE_PERIOD".to_owned(), "1024G".to_owned())];
    let goal = |goal: &str| vec![("POOLSCOPE_GOAL".to_owned(), goal.to_owned())];
    let mut allocators = vec![
        pool("poolscope", Role::Ours, Vec::new()),
        pool("unsampled", Role::SamplingOff, off),
        // As it comes, it is balanced.
        pool("for-memory", Role::Guest, goal("memory")),
        pool("for-speed", Role::Guest, goal("speed")),
    ];
    let crates = crates();
    for (name, library, origin) in &PEERS {
        let version = match origin {
            Origin::Debian { package } => debian(folder, package, library),
            Origin::Crate { package, compile } => compiled(folder, library, package, *compile, &crates),
        };
        match version {
            Ok(version) => allocators.push(Allocator {
                name: (*name).to_owned(),
                role: Role::Peer,
                version,
                library: Some(library.into()),
                environment: Vec::new(),
            }),
            Err(reason) => println!("{name} is left out: {reason}"),
        }
    }
    allocators.push(Allocator {
        name: "glibc".to_owned(),
        role: Role::Peer,
        version: glibc_version(),
        library: None,
        environment: Vec::new(),
    });
    let list = serde_json::to_string_pretty(&allocators).map_err(|error| error.to_string())?;
    std::fs::write(folder.join(LIST), list).map_err(|error| format!("{LIST} can't be written: {error}"))?;
    Ok(())
}

/// The allocators of a gathered folder, with absolute paths.
pub fn read(folder: &Path) -> Result<Vec<Allocator>> {
    let folder = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let list = folder.join(LIST);
    let text = std::fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let mut allocators: Vec<Allocator> =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", list.display()))?;
    for allocator in &mut allocators {
        if let Some(library) = &mut allocator.library {
            *library = folder.join(&*library);
        } else {
            // The machine's own.
            allocator.version = glibc_version();
        }
    }
    Ok(allocators)
}

/// Of the pool: with the commit, where there is one.
fn version() -> String {
    let commit = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let version = env!("CARGO_PKG_VERSION");
    commit.map_or(version.to_owned(), |commit| format!("{version} ({commit})"))
}

/// A library named on the command line.
pub fn guest(name: &str, library: &str) -> Result<Allocator> {
    let library = Path::new(library).canonicalize().map_err(|error| format!("{library}: {error}"))?;
    Ok(Allocator {
        name: name.to_owned(),
        role: Role::Guest,
        version: String::new(),
        library: Some(library),
        environment: Vec::new(),
    })
}

/// Copies a file over one that may be in use.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let beside = to.with_extension("new");
    std::fs::copy(from, &beside)
        .and_then(|_| std::fs::rename(&beside, to))
        .map_err(|error| format!("{} can't be copied to {}: {error}", from.display(), to.display()))
}

/// Copies the package's library. Returns its version.
fn debian(folder: &Path, package: &str, library: &str) -> Result<String> {
    let query = Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]).output();
    let query = query.map_err(|error| format!("dpkg-query can't be run: {error}"))?;
    let path = PathBuf::from(format!("/usr/lib/{}-linux-gnu/{library}", std::env::consts::ARCH));
    if !query.status.success() || !path.exists() {
        return Err(format!("the Debian package {package} is not installed"));
    }
    copy(&path, &folder.join(library))?;
    Ok(String::from_utf8_lossy(&query.stdout).into_owned())
}

/// What Cargo knows of the crates that bring sources.
fn crates() -> Result<Value> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let metadata = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--all-features", "--manifest-path", manifest])
        .output()
        .map_err(|error| format!("cargo can't be run: {error}"))?;
    if !metadata.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&metadata.stderr).trim()));
    }
    serde_json::from_slice(&metadata.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

/// Compiles the library if it is not there yet, or was compiled otherwise. Returns its crate and the crate's version.
fn compiled(
    folder: &Path,
    library: &str,
    package: &str,
    compile: fn(&Path) -> Command,
    crates: &Result<Value>,
) -> Result<String> {
    let crates = crates.as_ref().map_err(String::clone)?;
    let packages = crates["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let found = packages.iter().find(|found| found["name"] == package).ok_or(format!("no crate {package}"))?;
    let manifest = Path::new(found["manifest_path"].as_str().unwrap_or_default());
    let sources = manifest.parent().ok_or(format!("{package} has no folder"))?;

    let library = folder.join(library);
    let mut command = compile(sources);
    command.args(["-shared", "-fPIC", "-pthread", "-w", "-o"]).arg(&library);
    let stamp = library.with_extension("command");
    let line = format!("{command:?}");
    if !library.exists() || std::fs::read_to_string(&stamp).is_ok_and(|stamp| stamp != line) || !stamp.exists() {
        println!("compiling {package}");
        let output = command.output().map_err(|error| format!("the compiler can't be run: {error}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("it does not compile: {}", errors.lines().next().unwrap_or_default()));
        }
        std::fs::write(&stamp, line).map_err(|error| format!("{}: {error}", stamp.display()))?;
    }
    Ok(format!("({package} {})", found["version"].as_str().unwrap_or_default()))
}
