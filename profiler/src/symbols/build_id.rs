//! The GNU build id of a file.
//!
//! A note counts only if `GNU` owns it: the probes of SystemTap (`stapsdt`) are notes of the same type, 3, and come
//! first in a library that `patchelf` has moved the build id of, as Python's wheels are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PT_NOTE: u32 = 4;
const SHT_NOTE: u32 = 7;
const NT_GNU_BUILD_ID: u32 = 3;

/// Headers of segments or sections that are looked at, and bytes of notes: no real file has more.
const MAX_HEADERS: u16 = 4096;
const MAX_NOTES: u64 = 1 << 20;

/// What a file says of its build id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildIds {
    /// By its program headers, as it is seen in a process that has loaded it.
    pub(crate) of_segments: Option<Vec<u8>>,
    /// By its section headers: files of debug information have no others.
    pub(crate) of_sections: Option<Vec<u8>>,
}

impl BuildIds {
    /// Reads them; none are no error, but a file that is no ELF file of this machine's kind is.
    pub(crate) fn of(path: &Path) -> io::Result<BuildIds> {
        let file = File::open(path)?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0)?;
        // 64 bits, little-endian.
        if header[..6] != *b"\x7fELF\x02\x01" {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no ELF file of 64 bits"));
        }
        let (segments, segment_len, segment_count) = (long(&header, 32), word16(&header, 54), word16(&header, 56));
        let (sections, section_len, section_count) = (long(&header, 40), word16(&header, 58), word16(&header, 60));
        // A segment: type at 0, offset at 8, length in the file at 32, alignment at 48.
        let of_segments = find(&file, segments, segment_len, segment_count, |header| {
            (word(header, 0) == PT_NOTE).then(|| (long(header, 8), long(header, 32), long(header, 48)))
        });
        // A section: type at 4, offset at 24, length at 32, alignment at 48.
        let of_sections = find(&file, sections, section_len, section_count, |header| {
            (word(header, 4) == SHT_NOTE).then(|| (long(header, 24), long(header, 32), long(header, 48)))
        });
        Ok(BuildIds { of_segments, of_sections })
    }

    /// Whether one of them is what a process saw; a record holds at most 32 bytes of it.
    pub(crate) fn has(&self, seen: &[u8]) -> bool {
        let is_same = |id: &Vec<u8>| id == seen || (seen.len() == 32 && id.starts_with(seen));
        !seen.is_empty() && [&self.of_segments, &self.of_sections].into_iter().flatten().any(is_same)
    }
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(word16(bytes, at)) | u32::from(word16(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// The build id in the notes that `notes` finds in a table of headers: their offset, length and alignment.
fn find(
    file: &File,
    table: u64,
    len: u16,
    count: u16,
    notes: impl Fn(&[u8]) -> Option<(u64, u64, u64)>,
) -> Option<Vec<u8>> {
    // Both kinds have 56 bytes that count.
    let mut header = [0; 56];
    (0..u64::from(count.min(MAX_HEADERS))).filter(|_| len >= 56).find_map(|index| {
        file.read_exact_at(&mut header, table.checked_add(index * u64::from(len))?).ok()?;
        let (offset, length, align) = notes(&header)?;
        let mut bytes = vec![0; length.min(MAX_NOTES) as usize];
        file.read_exact_at(&mut bytes, offset).ok()?;
        build_id(&bytes, if align == 8 { 8 } else { 4 })
    })
}

/// Looks among notes: each the lengths of its owner's name and its contents, its type, then both, aligned.
fn build_id(mut notes: &[u8], align: usize) -> Option<Vec<u8>> {
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let (name_len, len) = (word(head, 0) as usize, word(head, 4) as usize);
        let content = name_len.checked_add(12)?.checked_next_multiple_of(align)?.checked_sub(12)?;
        let end = content.checked_add(len)?;
        let id = rest.get(content..end)?;
        if word(head, 8) == NT_GNU_BUILD_ID && rest.get(..name_len)? == b"GNU\0" {
            return (!id.is_empty()).then(|| id.to_vec());
        }
        notes = rest.get(end.checked_add(12)?.checked_next_multiple_of(align)?.checked_sub(12)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &str, kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [owner.len() as u32 + 1, content.len() as u32, kind] {
            note.extend(number.to_le_bytes());
        }
        note.extend(owner.bytes().chain([0]));
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend(content);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn only_a_note_of_gnu_is_a_build_id() {
        let id = note("GNU", 3, b"01234567890123456789");
        let others = [note("stapsdt", 3, &[7; 41]), note("GNU", 5, &[1; 16]), note("Go", 3, b"x")].concat();
        assert_eq!(build_id(&[others.clone(), id].concat(), 4).as_deref(), Some(&b"01234567890123456789"[..]));
        assert_eq!(build_id(&others, 4), None);
        assert_eq!(build_id(&[0xff; 64], 4), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), flip in 0..200usize) {
            let _ = (build_id(&bytes, 4), build_id(&bytes, 8));
            let mut file = std::fs::read("/proc/self/exe").expect("is read")[..4096].to_vec();
            file[flip] ^= bytes.first().copied().unwrap_or(1);
            let folder = tempfile::tempdir().expect("is made");
            std::fs::write(folder.path().join("x"), file).expect("is written");
            let _ = BuildIds::of(&folder.path().join("x"));
        }
    }
}
