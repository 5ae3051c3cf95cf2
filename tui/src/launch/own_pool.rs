//! Programs that have the pool in themselves, by `#[global_allocator]`: they need no library to be preloaded, and one
//! that is preloaded nevertheless is a second pool beside theirs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The note of the pool's static probes.
const SECTION: &[u8] = b".note.stapsdt";
const PROBE: &[u8] = b"otel_memory\0alloc\0";
/// A setting, by which it is this pool and not another one with such probes.
const SETTING: &[u8] = b"POOLSCOPE_LEAK_CHECK";
/// Bytes of sections that are read, at most.
const MOST: u64 = 16 << 20;

/// Whether the executable of a command has the pool in itself. It says no of what it can't read.
pub(crate) fn has_pool(program: &OsStr) -> bool {
    let Some(path) = executable(program) else { return false };
    let notes = File::open(&path).ok().and_then(|file| section(&file, SECTION));
    notes.is_some_and(|notes| contains(&notes, PROBE)) && fs::read(&path).is_ok_and(|file| contains(&file, SETTING))
}

/// The file that the command is, as `execvp` finds it.
fn executable(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The bytes of a section of an ELF file of 64 bits.
fn section(file: &File, name: &[u8]) -> Option<Vec<u8>> {
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
    fn sections_are_read_and_what_is_no_program_has_no_pool() {
        let own = File::open("/proc/self/exe").expect("is there");
        assert!(section(&own, b".shstrtab").is_some_and(|names| contains(&names, b".text\0")));
        assert_eq!(section(&own, b".text.none"), None);
        for none in ["/etc/passwd", "/nowhere", "sh", "/usr", "no-such-command"] {
            assert!(!has_pool(OsStr::new(none)), "{none}");
        }
        // It has the names of settings, and no probes.
        assert!(!has_pool(OsStr::new("/proc/self/exe")));
    }
}
