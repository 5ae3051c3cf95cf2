//! Profiles and segments made by hand, for the tests of this crate.

use std::sync::Arc;

use crate::model::profile::{Frame, Held, Location, Profile, Site};
use crate::model::snapshot::{Amount, Module};

/// A module of which only the file counts.
pub(crate) fn module(path: &str) -> Module {
    Module { start: 0, end: 1, load_bias: 0, build_id: Vec::new(), file: 0, path: path.to_owned(), stacks: 0..1 }
}

/// A profile whose stacks are written as folded lines, outermost function first, with the bytes in use of each; as
/// many bytes again were allocated and freed.
pub(crate) fn profile(stacks: &[(&str, f64)]) -> Profile {
    let mut profile = Profile {
        period_bytes: 524_288,
        time_realtime_ns: 1_700_000_000_000_000_000,
        modules: vec![Module {
            start: 0x1000,
            end: 0x10_0000,
            load_bias: 0x1000,
            build_id: vec![0xab, 0xcd],
            file: 0,
            path: "/usr/bin/sample".to_owned(),
            stacks: 0..u32::MAX,
        }],
        ..Profile::default()
    };
    for &(stack, bytes) in stacks {
        let locations = stack.split(';').rev().map(|name| location(&mut profile, name)).collect();
        let in_use = Amount { objects: bytes / 10.0, bytes, samples: 1 };
        let allocated = Amount { objects: bytes / 5.0, bytes: bytes * 2.0, samples: 2 };
        let held = vec![Held { size: 10, tid: 42, amount: in_use }];
        profile.sites.push(Site { locations, allocated, in_use, held: held.into(), ..Site::default() });
    }
    profile
}

/// Makes functions that are called `name (file.py)` Python's, as its perf map has them.
pub(crate) fn name_python(profile: &mut Profile) {
    for location in Arc::make_mut(&mut profile.locations) {
        let frame = &mut location.frames[0];
        if let Some((_, file)) = frame.name.split_once(" (").filter(|(_, file)| file.ends_with(".py)")) {
            frame.file = Some(format!("/srv/{}", file.trim_end_matches(')')));
            (frame.line, location.module) = (None, None);
        }
    }
}

fn location(profile: &mut Profile, name: &str) -> usize {
    if let Some(known) = profile.locations.iter().position(|location| location.frames[0].name == name) {
        return known;
    }
    let line = profile.locations.len() as u32 + 1;
    let file = Some(format!("/src/{name}.c"));
    let frame = Frame { name: name.to_owned(), file, line: Some(line), ..Frame::default() };
    Arc::make_mut(&mut profile.locations).push(Location {
        address: 0x2000 + u64::from(line),
        module: Some(0),
        frames: vec![frame],
    });
    profile.locations.len() - 1
}
