//! Programs that have the pool in themselves, by `#[global_allocator]`: they need no library to be preloaded, and one
//! that is preloaded nevertheless is a second pool beside theirs.

use std::ffi::OsStr;
use std::fs;

use super::executable::{self, contains};

/// The note of the pool's static probes.
const SECTION: &[u8] = b".note.stapsdt";
const PROBE: &[u8] = b"otel_memory\0alloc\0";
/// A setting, by which it is this pool and not another one with such probes.
const SETTING: &[u8] = b"POOLSCOPE_LEAK_CHECK";

/// Whether the executable of a command has the pool in itself. It says no of what it can't read.
pub(crate) fn has_pool(program: &OsStr) -> bool {
    let Some(path) = executable::of(program) else { return false };
    let notes = executable::section(&path, SECTION);
    notes.is_some_and(|notes| contains(&notes, PROBE)) && fs::read(&path).is_ok_and(|file| contains(&file, SETTING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_has_no_pool() {
        for none in ["/etc/passwd", "/nowhere", "sh", "/usr", "no-such-command"] {
            assert!(!has_pool(OsStr::new(none)), "{none}");
        }
        // It has the names of settings, and no probes.
        assert!(!has_pool(OsStr::new("/proc/self/exe")));
    }
}
