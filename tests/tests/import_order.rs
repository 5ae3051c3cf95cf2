//! The order of imports that ARCHITECTURE.md draws, held against what the manifests and the sources say.
//!
//! Facts of crates come from `cargo metadata`, so that a dependency counts however it is written, optional or for one
//! target only. Dependencies for tests do not: a test may look at both sides.
//! Facts of the folders in a crate come from its sources.

use std::collections::{BTreeMap, BTreeSet};

use poolscope_e2e::imports::{self, Import};
use poolscope_e2e::{Program, repository};
use serde_json::Value;

/// For each member of the workspace, the members it links.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let args = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata = Program::new("cargo").args(args).dir(repository()).run().success().stdout;
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let linked = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
        let normal = dependencies.filter(|dependency| dependency["kind"].as_str() != Some("dev"));
        normal.map(name).filter(|dependency| members.contains(dependency)).collect()
    };
    packages.iter().map(|package| (name(package), linked(package))).collect()
}

/// Everything that is reached from a member.
fn reached(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(member) = next.pop() {
        for dependency in arrows.get(&member).into_iter().flatten() {
            if found.insert(dependency.clone()) {
                next.push(dependency.clone());
            }
        }
    }
    found
}

/// What each member may link directly. A new member is a new line here, and in ARCHITECTURE.md.
const ALLOWED: &[(&str, &[&str])] = &[
    ("poolscope-wire", &[]),
    ("poolscope-capture", &[]),
    ("poolscope-cpu", &["poolscope-wire", "poolscope-capture"]),
    ("poolscope-gpu", &["poolscope-wire"]),
    ("poolscope-replay", &["poolscope-gpu"]),
    ("poolscope-alloc", &["poolscope-wire", "poolscope-capture", "poolscope-cpu", "poolscope-gpu"]),
    ("poolscope-preload", &["poolscope-wire", "poolscope-cpu"]),
    ("poolscope-plugin", &["poolscope-wire", "poolscope-gpu", "poolscope-alloc"]),
    ("poolscope-tensors", &["poolscope-gpu"]),
    ("poolscope-tensors-c", &["poolscope-tensors"]),
    ("poolscope-profiler", &["poolscope-wire"]),
    ("poolscope-heapcheck-macros", &[]),
    ("poolscope-heapcheck", &["poolscope-alloc", "poolscope-profiler", "poolscope-heapcheck-macros"]),
    (
        "poolscope-tui",
        &["poolscope-wire", "poolscope-profiler", "poolscope-gpu", "poolscope-replay", "poolscope-tensors"],
    ),
    ("poolscope-samples", &["poolscope-alloc", "poolscope-replay"]),
    ("poolscope-bench", &["poolscope-gpu", "poolscope-replay", "poolscope-alloc"]),
    ("poolscope-e2e", &["poolscope-wire"]),
];

const ALLOCATOR: &[&str] = &[
    "poolscope-capture",
    "poolscope-cpu",
    "poolscope-gpu",
    "poolscope-replay",
    "poolscope-alloc",
    "poolscope-preload",
    "poolscope-plugin",
];
const PROFILER: &[&str] = &["poolscope-profiler", "poolscope-tui"];

#[test]
fn every_member_links_only_what_stands_before_it() {
    for (member, links) in arrows() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member) else {
            panic!("{member} has no place in the order of imports: give it one here and in ARCHITECTURE.md");
        };
        for link in links {
            assert!(allowed.contains(&link.as_str()), "{member} must not link {link}");
        }
    }
}

#[test]
fn the_allocator_never_reaches_the_profiler() {
    let arrows = arrows();
    for member in ALLOCATOR {
        let reached = reached(&arrows, member);
        assert!(PROFILER.iter().all(|profiler| !reached.contains(*profiler)), "{member} reaches {reached:?}");
    }
}

/// The command replays traces on the device tiers, which link no other: it sees those, and no other tiers.
const DEVICE_TIERS: &[&str] = &["poolscope-gpu", "poolscope-replay"];
const COMMAND: &str = "poolscope-tui";

#[test]
fn the_profiler_never_reaches_the_allocators_tiers() {
    let arrows = arrows();
    for member in PROFILER {
        let reached = reached(&arrows, member);
        let forbidden = ALLOCATOR.iter().filter(|tiers| !(*member == COMMAND && DEVICE_TIERS.contains(tiers)));
        for tiers in forbidden {
            assert!(!reached.contains(*tiers), "{member} reaches {reached:?}");
        }
    }
}

#[test]
fn only_heapcheck_sees_both_sides() {
    let arrows = arrows();
    for member in arrows.keys().filter(|member| *member != "poolscope-heapcheck") {
        let mut reached = reached(&arrows, member);
        if member == COMMAND {
            reached.retain(|tiers| !DEVICE_TIERS.contains(&tiers.as_str()));
        }
        let one_of = |side: &[&str]| side.iter().any(|name| reached.contains(*name) || name == member);
        assert!(!(one_of(ALLOCATOR) && one_of(PROFILER)), "{member} sees both sides: {reached:?}");
    }
}

/// Traces, their player and the policies that the pool is compared with are for benchmarks. Neither a program on the
/// pool nor a library of it links them, or what unpacks traces.
#[test]
fn a_program_on_the_pool_links_no_player_of_traces() {
    let arrows = arrows();
    for member in ["poolscope-alloc", "poolscope-preload", "poolscope-plugin", "poolscope-heapcheck"] {
        assert!(!reached(&arrows, member).contains("poolscope-replay"), "{member}");
    }
    let args = ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--package", "poolscope-plugin"];
    let linked = Program::new("cargo").args(args).dir(repository()).run().success().stdout;
    assert!(linked.contains("poolscope-gpu") && !linked.contains("flate2"), "{linked}");
}

/// What a leak check in a test costs to build: few crates, and no C compiler.
#[test]
fn heapcheck_brings_few_crates_and_needs_no_c_compiler() {
    let args = ["tree", "--offline", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"];
    let args = args.iter().chain(&["--format", "{p}", "--package", "poolscope-heapcheck"]);
    let tree = Program::new("cargo").args(args).dir(repository()).run().success().stdout;
    let crates: BTreeSet<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    assert!(crates.len() <= 40, "{} crates: {crates:#?}", crates.len());
    let compiles_c = |name: &str| name.starts_with("cc ") || name.starts_with("cmake ") || name.contains("-sys ");
    // This one has tables of the kernel's numbers, in Rust.
    let mut compiled = crates.iter().filter(|name| compiles_c(name) && !name.starts_with("linux-raw-sys "));
    assert_eq!(compiled.next(), None, "it needs a C compiler");
}

/// The order is what is drawn, and not looser: an arrow that nobody uses goes.
#[test]
fn every_allowed_import_is_one_that_somebody_makes() {
    let arrows = arrows();
    for (member, allowed) in ALLOWED {
        let made = arrows.get(*member).unwrap_or_else(|| panic!("{member} is no member"));
        for link in *allowed {
            assert!(
                made.contains(*link),
                "{member} does not link {link}: take the arrow out, here and in ARCHITECTURE.md"
            );
        }
    }
}

/// The order of the folders in a crate's sources: each may use those before it, and its own. A new folder is a new name
/// here, and in ARCHITECTURE.md; another crate is another line. A source that lies beside the folders counts as one.
const FOLDERS: &[(&str, &[&str])] = &[
    (
        "alloc/cpu/src",
        &[
            "kernel",
            "sync",
            "settings",
            "layout",
            "segment",
            "sampling",
            "script",
            "pages",
            "tiers",
            "threads",
            "census",
            "entry",
            "sampler",
            "tracer",
            "collector",
            "serve",
            "hardened",
            "hooks",
            "calls",
            "reach",
            "process",
            "api",
        ],
    ),
    ("alloc/gpu/src", &["delays", "device", "settings", "streams", "watch", "large", "small", "pool"]),
    ("alloc/replay/src", &["trace", "synthetic", "playback", "policies", "at_work", "trial"]),
    ("tensors/src", &["words", "identity", "wire", "books", "keeper", "owner", "client", "files"]),
    (
        "profiler/src",
        &[
            "words",
            "model",
            "process",
            "segment",
            "symbols",
            "build",
            "reading",
            "findings",
            "faces",
            "imports",
            "leaks",
            "recording",
            "http",
        ],
    ),
    (
        "tui/src",
        &[
            "words",
            "failure",
            "sink",
            "args",
            "symbols",
            "target",
            "remote",
            "launch",
            "version",
            "dashboard",
            "commands",
            "schemas",
            "cli",
        ],
    ),
];

/// The order inside of a folder that has folders of its own: the crate's sources, the folder, and what lies in it.
const INSIDE: &[(&str, &str, &[&str])] = &[(
    "tui/src",
    "dashboard",
    &[
        "theme",
        "input",
        "model",
        "lens",
        "events",
        "widgets",
        "panes",
        "state",
        "frame",
        "json",
        "export",
        "control",
        "everybody",
        "measure",
        "once",
        "options",
        "screens",
    ],
)];

/// The order of the files of a program that is too small for folders, and of what such programs share.
const FILES: &[(&str, &[&str])] = &[
    (
        "alloc/bench/src/shared",
        &[
            "error",
            "statistics",
            "machine",
            "goal",
            "results",
            "progress",
            "rounds",
            "table",
            "report",
            "page",
            "plot",
            "options",
            "harness",
        ],
    ),
    (
        "alloc/bench/src/cpu",
        &[
            "peers",
            "process",
            "redis",
            "catalogue",
            "measure",
            "instructions",
            "sampling",
            "attach",
            "pack",
            "comparison",
            "goals",
            "tables",
            "plot",
        ],
    ),
    (
        "alloc/bench/src/gpu",
        &[
            "made",
            "contestants",
            "rows",
            "processors",
            "loader",
            "peers",
            "plugin",
            "raw",
            "cupy",
            "worker",
            "about",
            "goals",
            "tables",
            "plot",
        ],
    ),
    ("alloc/bench/src/prof", &["programs", "tools", "run", "scrape", "about", "goals", "tables", "plot"]),
    (
        "alloc/bench/src/workloads",
        &[
            "calls",
            "numbers",
            "clock",
            "resident",
            "table",
            "single",
            "concurrent",
            "fixed",
            "random",
            "pairs",
            "exchange",
            "handover",
            "thread_churn",
            "large",
            "growing",
            "fragmentation",
            "phases",
            "suite",
            "by_name",
            "counted",
            "other_program",
            "busy",
        ],
    ),
];

/// Calls that go up: the sources, the file, and what it names. This list may only get shorter.
///
/// - A thread's first call enters the slow path like any other; there it makes what the thread needs, and the first
///   thread of a process what that needs. What these are, lies above.
const UP_CALLS: &[(&str, &str, &str)] = &[("alloc/cpu/src", "entry/mod.rs", "process::start::start_thread")];

#[test]
fn every_folder_of_a_crate_uses_only_those_before_it() {
    FOLDERS.iter().for_each(|(sources, order)| imports_follow(sources, None, order));
    INSIDE.iter().for_each(|(sources, folder, order)| imports_follow(sources, Some(folder), order));
}

#[test]
fn no_file_of_a_benchmark_uses_one_that_stands_after_it() {
    FILES.iter().for_each(|(sources, order)| imports_follow(sources, None, order));
}

/// Each of the sources that stand in a folder, or below a folder in it, uses only what does not stand after it. With
/// `inside`, of the sources in that folder, what it has of them.
fn imports_follow(sources: &str, inside: Option<&str>, order: &[&str]) {
    let (modules, imports) = imports::of_crate(&repository().join(sources));
    let below = |path: &[String]| match (inside, path.split_first()) {
        (None, _) => Some(path.to_vec()),
        (Some(folder), Some((first, rest))) if first == folder => Some(rest.to_vec()),
        (Some(_), _) => None,
    };
    let folders: BTreeSet<String> = modules.iter().filter_map(|module| below(module)?.into_iter().next()).collect();
    let expected = order.iter().map(|folder| (*folder).to_owned()).collect();
    assert_eq!(folders, expected, "the folders of {sources} {}, and their order", inside.unwrap_or_default());
    let place = |folder: &str| order.iter().position(|known| *known == folder);
    let mut up_calls: BTreeSet<_> = UP_CALLS.iter().filter(|(of, ..)| *of == sources && inside.is_none()).collect();
    for Import { file, module, path } in imports {
        let (Some(module), Some(path)) = (below(&module), below(&path)) else { continue };
        // The root hands on what is public, and may name all of them.
        let Some(own) = module.first() else { continue };
        let names = format!("{sources}/{} names {}", file.display(), path.join("::"));
        let Some(named) = path.first().and_then(|folder| place(folder)) else {
            panic!("{names}, which hides the folder that it comes from");
        };
        if Some(named) > place(own) {
            let known = UP_CALLS
                .iter()
                .find(|(of, from, to)| *of == sources && file.to_str() == Some(from) && path.join("::") == *to);
            let known = known.unwrap_or_else(|| panic!("{names}, and {own} stands before it"));
            up_calls.remove(known);
        }
    }
    assert!(up_calls.is_empty(), "nobody makes these calls any more: {up_calls:?}");
}

/// The first table under a crate's heading in ARCHITECTURE.md has the folders in its first column.
#[test]
fn the_map_has_the_folders_in_their_order() {
    let map = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).expect("it is there");
    for (sources, order) in FOLDERS {
        let heading = format!("\n## {}\n", sources.trim_end_matches("/src"));
        let section =
            map.split_once(&heading).unwrap_or_else(|| panic!("ARCHITECTURE.md has no section on {sources}")).1;
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let rows = rows.take_while(|line| line.starts_with('|'));
        let folders = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
        let folders: Vec<&str> = folders.map(|folder| folder.trim_end_matches('/')).collect();
        assert_eq!(folders, *order, "ARCHITECTURE.md, the table of {sources}");
    }
}

/// Who may make the proof that a thread is in the slow path, by constructor.
/// A lock of the pool is taken with that proof only.
const SLOW_PATHS: &[(&str, &[&str])] = &[
    ("entered", &["entry/mod.rs"]),
    ("in_handler", &["hardened/fault.rs", "hardened/mod.rs"]),
    ("own_thread", &["process/scavenger.rs"]),
    ("in_fork", &["process/fork.rs"]),
];

#[test]
fn the_slow_path_is_entered_in_the_named_places_only() {
    let sources = repository().join("alloc/cpu/src");
    let made = Program::new("grep").args(["-rnoE", r"SlowPath::[a-z_]+\(", "."]).dir(&sources).run().success().stdout;
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in made.lines() {
        let [file, _, call] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { panic!("grep says {line}") };
        let file = file.trim_start_matches("./");
        // The lock's own unit tests.
        if file != "sync/spin_lock.rs" {
            let constructor = call.trim_start_matches("SlowPath::").trim_end_matches('(');
            found.entry(constructor).or_default().insert(file);
        }
    }
    let expected = SLOW_PATHS.iter().map(|(constructor, files)| (*constructor, files.iter().copied().collect()));
    assert_eq!(found, expected.collect::<BTreeMap<_, BTreeSet<_>>>());
}

/// The segment's crate links nothing at all: both sides can use it anywhere.
#[test]
fn wire_has_no_dependency() {
    let manifest = std::fs::read_to_string(repository().join("alloc/wire/Cargo.toml")).expect("it is there");
    let table = manifest.split("[dependencies]").nth(1).map(|rest| rest.split("\n[").next().unwrap_or_default());
    assert!(table.is_none_or(|table| table.trim().is_empty()), "{manifest}");
}

/// What two members depend on has one version, in the workspace's table.
#[test]
fn a_dependency_that_two_members_share_stands_in_the_workspaces_table() {
    let members = arrows().into_keys().map(|member| member.trim_start_matches("poolscope-").to_owned());
    let manifests = Program::new("git").args(["ls-files", "*Cargo.toml"]).dir(repository()).run().success().stdout;
    let manifests: Vec<&str> = manifests.lines().filter(|path| *path != "Cargo.toml").collect();
    assert_eq!(manifests.len(), members.count(), "a manifest for each member");
    let mut own: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for path in manifests {
        let manifest = std::fs::read_to_string(repository().join(path)).expect("it is there");
        let mut names = BTreeSet::new();
        for table in manifest
            .split("\n[")
            .filter(|table| table.split(']').next().is_some_and(|head| head.ends_with("dependencies")))
        {
            let lines =
                table.lines().skip(1).filter(|line| !line.starts_with('#') && !line.contains("workspace = true"));
            names.extend(lines.filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned())));
        }
        names.into_iter().for_each(|name| own.entry(name).or_default().push(path));
    }
    assert!(own.len() > 10, "only {own:?} was read");
    for (name, manifests) in own {
        assert_eq!(manifests.len(), 1, "{name} stands in {manifests:?}: name its version in the workspace's table");
    }
}
