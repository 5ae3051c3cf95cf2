//! The real `go tool pprof` reads what we write, without a word on standard error.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use poolscope_profiler::faces::pprof;
use poolscope_profiler::{Metric, Profile, ProfileBuilder};

use crate::profiles::snapshot;
use crate::segment::sample;

/// Runs `go tool pprof` on a profile and gives back its output; whatever it says on standard error is a failure.
fn go_pprof(profile: &Profile, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("heap.pb.gz");
    pprof::write_pprof(profile, Metric::InUseBytes, std::fs::File::create(&path).expect("is created"))
        .expect("is written");
    go_pprof_on(&path, arguments)
}

pub fn go_pprof_on(path: &Path, arguments: &[&str]) -> String {
    let output = Command::new("go")
        .args(["tool", "pprof"])
        .args(arguments)
        .arg(path)
        .env("PPROF_TMPDIR", path.parent().expect("has a folder"))
        .env("GOTOOLCHAIN", "local")
        .output()
        .unwrap_or_else(|error| {
            panic!("go: {error}: `make test` installs what the tests need (golang-go and graphviz)")
        });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert_eq!(errors, "", "{arguments:?} has something to say");
    String::from_utf8(output.stdout).expect("is text")
}

/// A profile with symbols: two functions, one with an inlined one.
fn named() -> Profile {
    let mut profile = ProfileBuilder::new().build(&snapshot(&sample()));
    let name = |profile: &mut Profile, address: &str, name: &str, line| {
        let frame = Arc::make_mut(&mut profile.locations).iter_mut().flat_map(|location| &mut location.frames);
        for frame in frame.filter(|frame| frame.name == format!("[sample+{address}]")) {
            frame.name = name.to_owned();
            frame.file = Some("/src/sample.c".to_owned());
            frame.line = Some(line);
        }
    };
    name(&mut profile, "0x2004", "parse", 20);
    name(&mut profile, "0x3004", "cache_insert", 30);
    name(&mut profile, "0x1004", "main", 10);
    for location in Arc::make_mut(&mut profile.locations) {
        if location.frames[0].name == "parse" {
            let mut inlined = location.frames[0].clone();
            inlined.name = "grow".to_owned();
            inlined.inlined = true;
            location.frames.insert(0, inlined);
        }
    }
    profile
}

#[test]
fn top_shows_each_function_with_its_bytes_in_use() {
    let top = go_pprof(&named(), &["-top", "-unit=B", "-nodefraction=0"]);
    assert!(top.starts_with("File: sample\nBuild ID: abababab"), "{top}");
    assert!(top.contains("Type: inuse_space"), "{top}");
    let row = |name: &str| -> Vec<&str> {
        let line =
            top.lines().find(|line| line.contains(&format!(" {name}"))).unwrap_or_else(|| panic!("{name}: {top}"));
        line.split_ascii_whitespace().collect()
    };
    assert_eq!(row("cache_insert")[..2], ["524288B", "96.13%"]);
    assert_eq!(row("grow")[0], "21000B");
    assert_eq!((row("grow")[5], row("grow")[6]), ("grow", "(inline)"));
    assert_eq!(row("main")[3], "545288B");
    assert_eq!(row("[unknown stack]")[0], "128B");
}

#[test]
fn every_sample_type_is_there_with_its_values() {
    for (kind, expected) in
        [("inuse_objects", "8B "), ("inuse_space", "524288B"), ("alloc_objects", "12B "), ("alloc_space", "528384B")]
    {
        let top = go_pprof(&named(), &["-top", "-unit=B", &format!("-sample_index={kind}")]);
        let line = top.lines().find(|line| line.contains("cache_insert")).expect("is shown");
        assert!(line.trim_start().starts_with(expected), "{kind}: {top}");
    }
}

#[test]
fn raw_shows_mappings_labels_and_lines() {
    let raw = go_pprof(&named(), &["-raw"]);
    for expected in [
        "PeriodType: space bytes",
        "Period: 524288",
        "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]",
        "bytes:[1000 bytes]",
        "grow /src/sample.c:20",
        "/usr/bin/sample abababab",
        "[FN][FL][LN][IN]",
    ] {
        assert!(raw.contains(expected), "{expected}: {raw}");
    }
}

#[test]
fn svg_is_drawn() {
    let svg = go_pprof(&named(), &["-svg"]);
    assert!(svg.contains("<svg") && svg.contains("cache_insert"), "{svg}");
}

#[test]
fn a_profile_without_symbols_modules_or_samples_is_accepted_too() {
    let unnamed = ProfileBuilder::new().build(&snapshot(&sample()));
    let mut without_modules = unnamed.clone();
    without_modules.modules.clear();
    Arc::make_mut(&mut without_modules.locations).iter_mut().for_each(|location| location.module = None);
    for profile in [unnamed, without_modules] {
        assert!(go_pprof(&profile, &["-top"]).contains("[sample+0x3004]"));
        go_pprof(&profile, &["-raw"]);
        go_pprof(&profile, &["-svg"]);
    }
    go_pprof(&Profile::default(), &["-raw"]);
    go_pprof(&Profile::default(), &["-top"]);
}

#[test]
fn frames_of_the_pool_that_are_in_a_profile_all_the_same_are_hidden_with_what_they_call() {
    let mut profile = named();
    let add = |profile: &mut Profile, name: &str| {
        let mut location = profile.locations[0].clone();
        location.frames.truncate(1);
        location.frames[0].name = name.to_owned();
        Arc::make_mut(&mut profile.locations).push(location);
        profile.locations.len() - 1
    };
    let (inside, malloc) = (add(&mut profile, "refill"), add(&mut profile, "operator new(unsigned long)"));
    let caller = profile.locations.iter().position(|location| location.frames[0].name == "cache_insert");
    let caller = caller.expect("is there");
    for site in profile.sites.iter_mut().filter(|site| site.locations[0] == caller) {
        site.locations = [inside, malloc].into_iter().chain(site.locations.iter().copied()).collect();
    }
    let top = go_pprof(&profile, &["-top", "-unit=B", "-nodefraction=0"]);
    assert!(!top.contains("operator new") && !top.contains("refill"), "{top}");
    let line = top.lines().find(|line| line.contains("cache_insert")).expect("is shown");
    assert!(line.trim_start().starts_with("524288B"), "{top}");
}
