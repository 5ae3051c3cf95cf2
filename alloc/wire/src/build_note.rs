//! What a built library says of itself to those that look into its file: a line in its constants, which `what` and
//! `strings` find, and which the command reads before it starts a program on the library.
//!
//! ```text
//! @(#)libpoolscope.so 0.1.0 commit 15d0db6 segment 8
//! ```

use crate::VERSION;

/// What a note begins with, as those of `what`(1) do.
pub const MARK: &str = "@(#)";

/// Bytes of a note in a library, the zeros around it included.
pub const LEN: usize = 128;

/// Where the text behind the mark begins in a note.
pub const TEXT: usize = 1 + MARK.len();

/// What a library says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildNote<'a> {
    /// Name of the library's file.
    pub library: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The commit that it was built from; `unknown` outside a repository.
    pub commit: &'a str,
    /// The [`VERSION`] of the segments that it writes.
    pub segment: u32,
}

/// The commit that a build names by the variable `POOLSCOPE_COMMIT`; `unknown` where it names none.
pub const fn commit(named: Option<&'static str>) -> &'static str {
    match named {
        Some(commit) if !commit.is_empty() => commit,
        _ => "unknown",
    }
}

/// The note of a library, which ends with zeros. What finds no room is cut. A zero before it parts it from the constants
/// that the linker puts there, so that `strings` has it on a line of its own.
pub const fn note(library: &str, version: &str, commit: &str) -> [u8; LEN] {
    let mut out = [0; LEN];
    let mut at = 1;
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = VERSION;
    while rest > 0 {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let parts: [&[u8]; 8] = [
        MARK.as_bytes(),
        library.as_bytes(),
        b" ",
        version.as_bytes(),
        b" commit ",
        commit.as_bytes(),
        b" segment ",
        digits.split_at(first).1,
    ];
    let mut part = 0;
    while part < parts.len() {
        let mut byte = 0;
        // The last byte stays zero: C reads the note as text.
        while byte < parts[part].len() && at < LEN - 1 {
            out[at] = parts[part][byte];
            byte += 1;
            at += 1;
        }
        part += 1;
    }
    out
}

/// The note in the bytes of a file, if it has one of the library of this name.
pub fn find<'a>(bytes: &'a [u8], library: &str) -> Option<BuildNote<'a>> {
    let mark = MARK.as_bytes();
    let starts = bytes.windows(mark.len()).enumerate().filter(|(_, window)| *window == mark).map(|(at, _)| at);
    starts.map(|at| &bytes[at + mark.len()..]).find_map(|rest| parse(&rest[..rest.len().min(LEN)], library))
}

fn parse<'a>(bytes: &'a [u8], library: &str) -> Option<BuildNote<'a>> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let mut words = core::str::from_utf8(&bytes[..end]).ok()?.split(' ');
    let mut next = || words.next();
    let (name, version) = (next()?, next()?);
    let commit = next().filter(|&word| word == "commit").and_then(|_| next())?;
    let segment = next().filter(|&word| word == "segment").and_then(|_| next())?.parse().ok()?;
    (name == library && next().is_none()).then_some(BuildNote { library: name, version, commit, segment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_among_other_bytes() {
        let note = note("libpoolscope.so", "0.1.0", "15d0db6");
        let mut file = [7u8; 4 * LEN];
        file[..4].copy_from_slice(MARK.as_bytes());
        file[LEN + 3..2 * LEN + 3].copy_from_slice(&note);
        let found = BuildNote { library: "libpoolscope.so", version: "0.1.0", commit: "15d0db6", segment: VERSION };
        assert_eq!(find(&file, "libpoolscope.so"), Some(found));
        assert_eq!(find(&file, "libpoolscope_gpu.so"), None);
        assert_eq!(find(&file[..LEN + 20], "libpoolscope.so"), None, "it is cut off");
    }

    #[test]
    fn a_note_that_has_no_room_still_ends_with_zero() {
        let long = core::str::from_utf8(&[b'x'; 200]).unwrap();
        let note = note("libpoolscope.so", long, "15d0db6");
        assert_eq!(note[LEN - 1], 0);
        assert_eq!(find(&note, "libpoolscope.so"), None);
    }
}
