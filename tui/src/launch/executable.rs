//! The file that a command runs, and what its sections say.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of sections that are read, at most.
const MOST: u64 = 16 << 20;

/// The file that the command is, as `execvp` finds it.
pub(super) fn of(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
}

/// Whether some bytes are among others.
pub(super) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The bytes of a section of an ELF file of 64 bits.
pub(crate) fn section(path: &Path, name: &[u8]) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let read = |at: u64, len: u64| {
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= MOST)?];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    };
    let number = |bytes: &[u8], at: usize, len: usize| {
        let bytes = bytes.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    let header = read(0, 64).filter(|header| header.starts_with(b"\x7fELF\x02\x01"))?;
    let (table, size) = (number(&header, 0x28, 8)?, number(&header, 0x3a, 2)?);
    let (count, names) = (number(&header, 0x3c, 2)?, number(&header, 0x3e, 2)?);
    let sections = read(table, size * count)?;
    let entry = |index: u64| sections.get(usize::try_from(index * size).ok()?..);
    let bytes_of = |entry: &[u8]| read(number(entry, 0x18, 8)?, number(entry, 0x20, 8)?);
    let names = bytes_of(entry(names)?)?;
    let is_named = |entry: &&[u8]| {
        let at = number(entry, 0, 4).and_then(|at| names.get(at as usize..));
        at.is_some_and(|rest| rest.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)))
    };
    bytes_of((0..count).filter_map(entry).find(is_named)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_read_by_their_names() {
        let own = Path::new("/proc/self/exe");
        assert!(section(own, b".shstrtab").is_some_and(|names| contains(&names, b".text\0")));
        assert_eq!(section(own, b".text.none"), None);
        assert_eq!(section(Path::new("/etc/passwd"), b".text"), None);
    }
}
