//! Which build this is, what it reads, and which library it would start a program on.

use std::path::Path;

use poolscope_profiler::recording::file as recording;
use poolscope_wire::build_note;

use crate::failure::Failure;
use crate::launch::library;

/// The version of the command.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from.
const COMMIT: &str = build_note::commit(option_env!("POOLSCOPE_COMMIT"));

/// What `--version` says.
pub(crate) fn text() -> String {
    let library = match library::find() {
        Ok(path) => format!("{}: {}", path.display(), about_library(&path)),
        Err(_) => "none is found".to_owned(),
    };
    format!(
        "poolscope {VERSION}\n\
         commit      {COMMIT}\n\
         segments    reads {}\n\
         recordings  reads {}, writes {}\n\
         library     {library}\n",
        versions(poolscope_wire::OLDEST_VERSION, poolscope_wire::VERSION),
        versions(recording::OLDEST_VERSION, recording::VERSION),
        recording::VERSION,
    )
}

/// `version 8`, or `versions 6 to 8`.
fn versions(oldest: u32, newest: u32) -> String {
    if oldest == newest { format!("version {newest}") } else { format!("versions {oldest} to {newest}") }
}

fn about_library(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    match build_note::find(&bytes, library::NAME) {
        Some(note) => {
            format!("{}, commit {}, writes segments of version {}", note.version, note.commit, note.segment)
        }
        None => "it does not say its version".to_owned(),
    }
}

/// Refuses a library whose segments this command can't read. One that does not say what it writes is taken.
pub(crate) fn check_library(path: &Path) -> Result<(), Failure> {
    let bytes = std::fs::read(path).unwrap_or_default();
    check_note(path, build_note::find(&bytes, library::NAME))
}

fn check_note(path: &Path, note: Option<build_note::BuildNote<'_>>) -> Result<(), Failure> {
    let (oldest, newest) = (poolscope_wire::OLDEST_VERSION, poolscope_wire::VERSION);
    match note.filter(|note| !(oldest..=newest).contains(&note.segment)) {
        None => Ok(()),
        Some(note) => Err(Failure::usage(format!(
            "{} ({}, commit {}) writes segments of version {}, and this poolscope ({VERSION}, commit {COMMIT}) reads {}: \
             use a library and a command of one build; {} names another library",
            path.display(),
            note.version,
            note.commit,
            note.segment,
            versions(oldest, newest),
            library::VARIABLE,
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use build_note::BuildNote;

    #[test]
    fn a_library_whose_segments_cannot_be_read_is_refused_with_both_versions() {
        let note = |segment| Some(BuildNote { library: library::NAME, version: "9.9.9", commit: "0123abcd", segment });
        let path = Path::new("/opt/libpoolscope.so");
        for readable in [None, note(poolscope_wire::OLDEST_VERSION), note(poolscope_wire::VERSION)] {
            assert_eq!(check_note(path, readable), Ok(()), "{readable:?}");
        }
        for other in [poolscope_wire::OLDEST_VERSION - 1, poolscope_wire::VERSION + 1] {
            let failure = check_note(path, note(other)).expect_err("cannot be read");
            assert_eq!(failure.code, 2);
            for word in ["/opt/libpoolscope.so", "9.9.9", "0123abcd", &format!("version {other}"), VERSION] {
                assert!(failure.message.contains(word), "{word}: {}", failure.message);
            }
        }
    }
}
