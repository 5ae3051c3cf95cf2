//! A strict reader of pprof profiles: every rule that `go tool pprof` has, and those where it goes wrong in silence.
//!
//! It takes the file apart by itself, with nothing of the profiler's, and fails on the first rule that is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use pprof::protos::{self, Message};

/// What a profile should be.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// Beginning of the file name of the main binary.
    pub main: &'a str,
    /// The sample type that is shown if nobody asks for another.
    pub shown: &'a str,
    /// A difference: it spans a time, and its figures may be negative.
    pub delta: bool,
}

/// Fails unless the file keeps all rules.
#[track_caller]
pub fn check(path: &Path, expected: &Expected<'_>) {
    let packed = std::fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    check_bytes(&packed, expected);
}

/// Fails unless these bytes, a file's contents, keep all rules.
#[track_caller]
pub fn check_bytes(packed: &[u8], expected: &Expected<'_>) {
    if let Err(broken) = broken_rule(packed, expected) {
        panic!("not as {expected:?} should be: {broken}");
    }
}

macro_rules! rule {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}

fn broken_rule(packed: &[u8], expected: &Expected<'_>) -> Result<(), String> {
    rule!(packed.starts_with(&[0x1f, 0x8b, 8]), "it is not gzipped");
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes).map_err(|e| format!("gzip: {e}"))?;
    let profile = protos::Profile::decode(bytes.as_slice()).map_err(|e| format!("protobuf: {e}"))?;
    strings(&profile)?;
    head(&profile, expected)?;
    mappings(&profile, expected)?;
    functions_and_locations(&profile)?;
    samples(&profile, expected)
}

fn text(profile: &protos::Profile, id: i64) -> Result<&str, String> {
    let at = usize::try_from(id).map_err(|_| format!("string {id} is negative"))?;
    profile.string_table.get(at).map(String::as_str).ok_or_else(|| format!("there is no string {id}"))
}

fn strings(profile: &protos::Profile) -> Result<(), String> {
    rule!(profile.string_table.first().is_some_and(String::is_empty), "the first string is not empty");
    let distinct: BTreeSet<&String> = profile.string_table.iter().collect();
    rule!(distinct.len() == profile.string_table.len(), "a string is there twice");
    Ok(())
}

fn head(profile: &protos::Profile, expected: &Expected<'_>) -> Result<(), String> {
    let mut types = Vec::new();
    for ty in &profile.sample_type {
        types.push(format!("{}/{}", text(profile, ty.ty)?, text(profile, ty.unit)?));
    }
    let go = ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"];
    rule!(types.len() >= 4 && types[..4] == go, "the sample types are {types:?}");
    let mut groups = types[4..].chunks(4);
    for prefix in ["gpu_", "pinned_"] {
        if types.iter().any(|name| name.starts_with(prefix)) {
            let expected = go.map(|name| format!("{prefix}{name}"));
            let group = groups.next().unwrap_or_default();
            rule!(group == expected, "the sample types of {prefix} are {group:?}");
        }
    }
    rule!(groups.next().is_none(), "there are sample types of nothing known: {types:?}");
    let shown = text(profile, profile.default_sample_type)?;
    rule!(shown == expected.shown, "the default sample type is {shown:?}");
    let period = profile.period_type.as_ref().ok_or("there is no period type")?;
    rule!(
        (text(profile, period.ty)?, text(profile, period.unit)?) == ("space", "bytes"),
        "the period is of other type"
    );
    rule!(profile.period >= 1, "the period is {}", profile.period);
    rule!(profile.time_nanos > 1_500_000_000_000_000_000, "the time is {}", profile.time_nanos);
    rule!((profile.duration_nanos > 0) == expected.delta, "the duration is {}", profile.duration_nanos);
    let drop = text(profile, profile.drop_frames)?;
    rule!(drop.contains("malloc"), "no frames are dropped: {drop:?}");
    regex::Regex::new(drop).map_err(|e| format!("drop_frames: {e}"))?;
    rule!(text(profile, profile.keep_frames)?.is_empty(), "keep_frames is set");
    rule!(!profile.comment.is_empty(), "there is no comment");
    for &comment in &profile.comment {
        rule!(!text(profile, comment)?.is_empty(), "a comment is empty");
    }
    Ok(())
}

fn mappings(profile: &protos::Profile, expected: &Expected<'_>) -> Result<(), String> {
    let first = profile.mapping.first().ok_or("there is no mapping")?;
    let main = text(profile, first.filename)?;
    let name = main.rsplit('/').next().unwrap_or_default();
    rule!(name.starts_with(expected.main), "the first mapping is {main}, not the main binary");
    let mut ids = BTreeSet::new();
    for mapping in &profile.mapping {
        let name = text(profile, mapping.filename)?;
        rule!(mapping.id != 0 && ids.insert(mapping.id), "{name}: the id {} is zero or taken", mapping.id);
        rule!(!name.is_empty(), "mapping {} has no name", mapping.id);
        // A main binary that no frame is in has no addresses.
        let unused = profile.location.iter().all(|location| location.mapping_id != mapping.id);
        rule!(mapping.memory_start < mapping.memory_limit || unused, "{name} is empty");
        let id = text(profile, mapping.build_id)?;
        let hex = id.len() % 2 == 0 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        rule!(hex, "{name}: the build id {id:?} is not hexadecimal");
        // Otherwise pprof looks for symbols by itself, in a file whose build id it does not always check.
        rule!(mapping.has_functions, "{name} does not say that it has functions");
    }
    Ok(())
}

fn functions_and_locations(profile: &protos::Profile) -> Result<(), String> {
    let mut functions = BTreeSet::new();
    for function in &profile.function {
        rule!(function.id != 0 && functions.insert(function.id), "the function id {} is zero or taken", function.id);
        rule!(!text(profile, function.name)?.is_empty(), "function {} has no name", function.id);
        text(profile, function.system_name)?;
        text(profile, function.filename)?;
    }
    let mappings: BTreeMap<u64, &protos::Mapping> = profile.mapping.iter().map(|m| (m.id, m)).collect();
    let mut locations = BTreeSet::new();
    for location in &profile.location {
        let id = location.id;
        rule!(id != 0 && locations.insert(id), "the location id {id} is zero or taken");
        rule!(!location.line.is_empty(), "location {id} has no name, though its mapping says so");
        rule!(!location.is_folded, "location {id} is folded");
        for line in &location.line {
            rule!(functions.contains(&line.function_id), "location {id} has a line of no function");
            rule!(line.line >= 0, "location {id} is at line {}", line.line);
        }
        if location.mapping_id != 0 {
            let mapping = mappings.get(&location.mapping_id).ok_or(format!("location {id} has no such mapping"))?;
            let range = mapping.memory_start..mapping.memory_limit;
            rule!(range.contains(&location.address), "location {id} lies outside of its mapping");
        }
    }
    Ok(())
}

fn samples(profile: &protos::Profile, expected: &Expected<'_>) -> Result<(), String> {
    let locations: BTreeSet<u64> = profile.location.iter().map(|location| location.id).collect();
    let mut seen = BTreeSet::new();
    let comments = profile.comment.iter().filter_map(|&comment| text(profile, comment).ok());
    let at_peak = comments.into_iter().any(|comment| comment.contains("at the peak, ") && !comment.ends_with("now"));
    for sample in &profile.sample {
        let values = &sample.value;
        rule!(values.len() == profile.sample_type.len(), "a sample has {} values", values.len());
        rule!(values.iter().any(|&value| value != 0), "a sample says nothing");
        rule!(expected.delta || values.iter().all(|&value| value >= 0), "a sample is negative: {values:?}");
        rule!(!sample.location_id.is_empty(), "a sample has no stack");
        for id in &sample.location_id {
            rule!(locations.contains(id), "a sample has no such location: {id}");
        }
        let mut labels = BTreeMap::new();
        for label in &sample.label {
            let (key, value) = (text(profile, label.key)?, text(profile, label.str)?);
            match key {
                "bytes" => {
                    rule!(value.is_empty() && label.num >= 0, "a size is {value:?} and {}", label.num);
                    rule!(text(profile, label.num_unit)? == "bytes", "a size has no unit");
                }
                "thread" => rule!(!value.is_empty() && label.num == 0, "a thread is {value:?}"),
                "device" => {
                    rule!(value.is_empty() && label.num >= 0, "a device is {value:?} and {}", label.num);
                    rule!(text(profile, label.num_unit)? == "count", "pprof drops a device 0 without a unit");
                }
                _ => return Err(format!("there is a label {key:?}")),
            }
            rule!(labels.insert(key, (value, label.num)).is_none(), "a sample has two labels {key}");
        }
        // What is in use is told by size and thread; what was allocated, and what was in use at the peak, is not.
        let groups: Vec<usize> = (0..values.len() / 4).filter(|at| values[4 * at..4 * at + 4] != [0; 4]).collect();
        rule!(groups.len() == 1, "a sample is of two kinds of memory: {values:?}");
        let in_use = values[4 * groups[0] + 2] != 0 || values[4 * groups[0] + 3] != 0;
        rule!(labels.contains_key("device") == (groups[0] > 0), "the label of a device on {values:?}: {labels:?}");
        let wanted = usize::from(groups[0] > 0) + if in_use && !at_peak { 2 } else { 0 };
        rule!(labels.len() == wanted, "labels {labels:?} of {values:?}");
        rule!(seen.insert((&sample.location_id, format!("{labels:?}"))), "a sample is there twice: {labels:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> protos::Profile {
        let table = [
            "",
            "alloc_objects",
            "count",
            "alloc_space",
            "bytes",
            "inuse_objects",
            "inuse_space",
            "space",
            "malloc|free",
            "a comment",
            "/bin/app",
            "abcd",
            "main",
        ];
        let ty = |ty, unit| protos::ValueType { ty, unit };
        let line = protos::Line { function_id: 1, line: 5 };
        protos::Profile {
            string_table: table.map(str::to_owned).into(),
            sample_type: vec![ty(1, 2), ty(3, 4), ty(5, 2), ty(6, 4)],
            default_sample_type: 6,
            period_type: Some(ty(7, 4)),
            period: 512,
            time_nanos: 1_700_000_000_000_000_000,
            drop_frames: 8,
            comment: vec![9],
            mapping: vec![protos::Mapping {
                id: 1,
                memory_start: 16,
                memory_limit: 32,
                filename: 10,
                build_id: 11,
                has_functions: true,
                ..Default::default()
            }],
            function: vec![protos::Function { id: 1, name: 12, ..Default::default() }],
            location: vec![protos::Location {
                id: 1,
                mapping_id: 1,
                address: 20,
                line: vec![line],
                ..Default::default()
            }],
            sample: vec![protos::Sample { location_id: vec![1], value: vec![1, 8, 0, 0], label: vec![] }],
            ..Default::default()
        }
    }

    fn verdict(profile: &protos::Profile) -> Result<(), String> {
        use std::io::Write;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&profile.encode_to_vec()).expect("is packed");
        let expected = Expected { main: "app", shown: "inuse_space", delta: false };
        broken_rule(&packed.finish().expect("is packed"), &expected)
    }

    #[test]
    fn each_broken_rule_is_found() {
        assert_eq!(verdict(&small()), Ok(()));
        type Break = fn(&mut protos::Profile);
        let breaks: [(&str, Break); 14] = [
            ("first string", |p| p.string_table[0] = "x".to_owned()),
            ("sample types", |p| p.sample_type.swap(0, 1)),
            ("default sample type", |p| p.default_sample_type = 1),
            ("period is 0", |p| p.period = 0),
            ("duration", |p| p.duration_nanos = 5),
            ("no frames are dropped", |p| p.drop_frames = 0),
            ("not the main binary", |p| p.mapping[0].filename = 12),
            ("has functions", |p| p.mapping[0].has_functions = false),
            ("line of no function", |p| p.location[0].line[0].function_id = 2),
            ("outside of its mapping", |p| p.location[0].address = 32),
            ("has 3 values", |p| p.sample[0].value.truncate(3)),
            ("no such location", |p| p.sample[0].location_id[0] = 7),
            ("is negative", |p| p.sample[0].value[1] = -8),
            ("there twice", |p| p.sample.push(p.sample[0].clone())),
        ];
        for (word, break_it) in breaks {
            let mut profile = small();
            break_it(&mut profile);
            let verdict = verdict(&profile).expect_err(word);
            assert!(verdict.contains(word), "{word}: {verdict}");
        }
    }
}
