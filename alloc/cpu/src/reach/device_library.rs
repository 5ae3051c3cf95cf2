//! The library whose pools record devices' memory: what it has of devices' addresses holds none of their blocks.
//!
//! A block of a device is in use if a pointer of the host's leads to it. The pools themselves know every address, so
//! their words must be told from the program's. That is known where they are in a library of their own: its variables
//! lie in its module, and what it allocates has its functions in the stack. In a program that has the pools in itself
//! it is not, and there the search does not look for blocks of devices.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::maps::Mapping;
use super::roots::Range;

/// How the library's file is named.
const NAME: &[u8] = b"libpoolscope_gpu.so";

/// An address in it; 0 if there is none.
static LIBRARY: AtomicUsize = AtomicUsize::new(0);

/// To be called with a function of those that record blocks of devices.
pub fn note_device_library(function: usize) {
    // SAFETY: looks an address up, and the loader keeps the name.
    let is_it = unsafe {
        let mut found: libc::Dl_info = core::mem::zeroed();
        let known = libc::dladdr(function as *const _, &raw mut found) != 0 && !found.dli_fname.is_null();
        known && is_named(CStr::from_ptr(found.dli_fname).to_bytes())
    };
    if is_it {
        LIBRARY.store(function, Ordering::Release);
    }
}

/// Whether a path is the library's, of whatever version.
fn is_named(path: &[u8]) -> bool {
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    path[start..].starts_with(NAME)
}

/// Where it lies. `None` if there is none.
pub fn range(mappings: &[Mapping]) -> Option<Range> {
    let function = LIBRARY.load(Ordering::Acquire);
    let at = mappings.iter().position(|mapping| (mapping.start..mapping.end).contains(&function))?;
    let inode = mappings[at].inode;
    let is_of_it = |mapping: &&Mapping| mapping.inode == inode && inode != 0;
    let start = mappings.iter().find(is_of_it)?.start;
    let last = mappings.iter().rposition(|mapping| is_of_it(&mapping))?;
    // What follows its data without a file is the rest of it (`.bss`).
    let rest = mappings.get(last + 1).filter(|rest| rest.inode == 0 && rest.start == mappings[last].end);
    Some((start, rest.map_or(mappings[last].end, |rest| rest.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_lies_from_its_first_mapping_to_the_end_of_its_variables() {
        for (path, expected) in [
            ("/usr/lib/libpoolscope_gpu.so", true),
            ("libpoolscope_gpu.so.0.1", true),
            ("/opt/libpoolscope_gpu.so/app", false),
            ("/usr/lib/libpoolscope.so", false),
        ] {
            assert_eq!(is_named(path.as_bytes()), expected, "{path}");
        }
        let mapping = |start, end, inode| Mapping {
            start,
            end,
            readable: true,
            writable: true,
            shared: false,
            ours: false,
            inode,
            is_stack: false,
        };
        let mappings =
            [mapping(1, 2, 7), mapping(10, 20, 5), mapping(20, 30, 5), mapping(30, 40, 0), mapping(50, 60, 0)];
        assert_eq!(range(&mappings), None);
        LIBRARY.store(15, Ordering::Release);
        assert_eq!(range(&mappings), Some((10, 40)));
    }
}
