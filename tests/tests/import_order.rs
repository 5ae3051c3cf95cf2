//! The order of imports that ARCHITECTURE.md draws, held against what the manifests say.
//!
//! Facts come from `cargo metadata`, so that a dependency counts however it is written, optional or for one target only.
//! Dependencies for tests do not: a test may look at both sides.

use std::collections::{BTreeMap, BTreeSet};

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
    ("poolscope-capture", &["poolscope-wire"]),
    ("poolscope-cpu", &["poolscope-wire", "poolscope-capture"]),
    ("poolscope-gpu", &["poolscope-wire"]),
    ("poolscope-alloc", &["poolscope-wire", "poolscope-capture", "poolscope-cpu", "poolscope-gpu"]),
    ("poolscope-preload", &["poolscope-wire", "poolscope-capture", "poolscope-cpu"]),
    ("poolscope-plugin", &["poolscope-gpu", "poolscope-alloc"]),
    ("poolscope-profiler", &["poolscope-wire"]),
    ("poolscope-heapcheck", &["poolscope-wire", "poolscope-cpu", "poolscope-alloc", "poolscope-profiler"]),
    ("poolscope-tui", &["poolscope-wire", "poolscope-profiler", "poolscope-gpu"]),
    ("poolscope-samples", &["poolscope-alloc"]),
    ("poolscope-bench", &["poolscope-gpu", "poolscope-alloc"]),
    ("poolscope-e2e", &["poolscope-wire"]),
];

const ALLOCATOR: &[&str] = &[
    "poolscope-capture",
    "poolscope-cpu",
    "poolscope-gpu",
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
const DEVICE_TIERS: &str = "poolscope-gpu";
const COMMAND: &str = "poolscope-tui";

#[test]
fn the_profiler_never_reaches_the_allocators_tiers() {
    let arrows = arrows();
    for member in PROFILER {
        let reached = reached(&arrows, member);
        let forbidden = ALLOCATOR.iter().filter(|tiers| !(*member == COMMAND && **tiers == DEVICE_TIERS));
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
            reached.remove(DEVICE_TIERS);
        }
        let one_of = |side: &[&str]| side.iter().any(|name| reached.contains(*name) || name == member);
        assert!(!(one_of(ALLOCATOR) && one_of(PROFILER)), "{member} sees both sides: {reached:?}");
    }
}

/// The segment's crate links nothing at all: both sides can use it anywhere.
#[test]
fn wire_has_no_dependency() {
    let manifest = std::fs::read_to_string(repository().join("alloc/wire/Cargo.toml")).expect("it is there");
    let table = manifest.split("[dependencies]").nth(1).map(|rest| rest.split("\n[").next().unwrap_or_default());
    assert!(table.is_none_or(|table| table.trim().is_empty()), "{manifest}");
}
