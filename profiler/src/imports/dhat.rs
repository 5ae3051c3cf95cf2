//! Files of DHAT, version 2, in the mode `heap`: valgrind's `--tool=dhat`, and the crate dhat.

use serde_json::Value;

use crate::faces::dhat::{File, VERSION};
use crate::imports::sites::Sites;
use crate::imports::{ImportError, Imported};
use crate::model::memory::Place;
use crate::model::profile::Frame;
use crate::model::snapshot::Amount;
use crate::words::printable::printable_str;

const FORMAT: &str = "DHAT file";

/// Reads a file.
pub(super) fn read(bytes: &[u8]) -> Result<Imported, ImportError> {
    let damaged = |why: String| ImportError::Damaged { format: FORMAT, why };
    let file: File = serde_json::from_slice(bytes).map_err(|error| match serde_json::from_slice::<Value>(bytes) {
        Ok(json) if json.get("dhatFileVersion").is_none() => ImportError::OtherJson(from_firefox(&json)),
        _ => damaged(error.to_string()),
    })?;
    if file.version != VERSION {
        return Err(damaged(format!("it is of version {}, and version {VERSION} can be read", file.version)));
    }
    if file.mode != "heap" && file.mode != "rust-heap" {
        return Err(damaged(format!("it has a profile of the mode {:?}, not of the heap", file.mode)));
    }
    let mut sites = Sites::default();
    for point in &file.pps {
        let mut locations = Vec::with_capacity(point.fs.len());
        for &frame in &point.fs {
            let text = file.ftbl.get(frame).ok_or_else(|| damaged(format!("there is no frame {frame}")))?;
            locations.push(sites.location(parse(text)));
        }
        let at = sites.site(locations, Place::Host);
        let site = sites.at(at);
        site.allocated += amount(point.tbk, point.tb);
        site.peak += amount(point.gbk, point.gb);
        site.in_use += amount(point.ebk, point.eb);
    }
    let lacks = (!file.bklt).then_some("what is in use: only what was allocated");
    Ok(Imported { profile: sites.finish(printable_str(file.cmd)), format: FORMAT, lacks })
}

/// What to do with a profile for the Firefox Profiler, which `convert` and `dump` write.
fn from_firefox(json: &Value) -> &'static str {
    let is_firefox = json.get("meta").is_some_and(|meta| meta.get("preprocessedProfileVersion").is_some());
    if is_firefox { ". It is a profile for profiler.firefox.com: convert what it was made of instead" } else { "" }
}

fn amount(objects: u64, bytes: u64) -> Amount {
    Amount { objects: objects as f64, bytes: bytes as f64, samples: objects }
}

/// `0x401136: main (server.c:12)`, `0x48: malloc (in /lib/libc.so)`; anything else is a name.
fn parse(text: &str) -> Frame {
    let text = printable_str(text.to_owned());
    let rest = match text.split_once(": ") {
        Some((address, rest)) if address.starts_with("0x") => rest,
        _ => text.as_str(),
    };
    let (name, source) = match rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")) {
        Some((name, source)) if !source.starts_with("in ") => (name, Some(source)),
        Some((name, _)) => (name, None),
        None => (rest, None),
    };
    let (file, line) = match source.map(|source| (source, source.rsplit_once(':'))) {
        // dhat of Rust adds the column.
        Some((_, Some((before, last)))) if last.parse::<u32>().is_ok() => match before.rsplit_once(':') {
            Some((file, line)) if line.parse::<u32>().is_ok() => (Some(file), line.parse().ok()),
            _ => (Some(before), last.parse().ok()),
        },
        Some((source, _)) => (Some(source), None),
        None => (None, None),
    };
    Frame { name: name.to_owned(), file: file.map(str::to_owned), line, ..Frame::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_valgrind_and_of_rust_are_read() {
        let frame = |name: &str, file: Option<&str>, line| Frame {
            name: name.to_owned(),
            file: file.map(str::to_owned),
            line,
            ..Frame::default()
        };
        for (text, expected) in [
            ("0x109136: main (leak.c:12)", frame("main", Some("leak.c"), Some(12))),
            ("0x4841: malloc (in /usr/libexec/valgrind/x.so)", frame("malloc", None, None)),
            ("0x1: alloc::f<(u8)> (src/lib.rs:3:9)", frame("alloc::f<(u8)>", Some("src/lib.rs"), Some(3))),
            ("[root]", frame("[root]", None, None)),
            ("operator new(unsigned long)", frame("operator new(unsigned long)", None, None)),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, why) in [
            ("{}", "it is JSON, and not DHAT's"),
            (r#"{"meta":{"preprocessedProfileVersion":55}}"#, "profiler.firefox.com"),
            (r#"{"dhatFileVersion":2}"#, "missing field"),
            (
                r#"{"dhatFileVersion":3,"mode":"heap","verb":"A","bklt":true,"bkacc":false,"tu":"","Mtu":"","cmd":"","pid":1,"te":1,"pps":[],"ftbl":[]}"#,
                "version 3",
            ),
            (
                r#"{"dhatFileVersion":2,"mode":"copy","verb":"A","bklt":true,"bkacc":false,"tu":"","Mtu":"","cmd":"","pid":1,"te":1,"pps":[],"ftbl":[]}"#,
                "copy",
            ),
            (
                r#"{"dhatFileVersion":2,"mode":"heap","verb":"A","bklt":true,"bkacc":false,"tu":"","Mtu":"","cmd":"","pid":1,"te":1,"pps":[{"tb":1,"tbk":1,"fs":[7]}],"ftbl":[]}"#,
                "no frame 7",
            ),
        ] {
            let error = read(text.as_bytes()).expect_err("is damaged").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
