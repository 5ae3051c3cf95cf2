//! The kernel's own library in every process, as a file.
//!
//! It is in no file system, but all processes of a running kernel have the same one, and so does this one: a copy of it
//! from this process's memory has the names, if its build id is that of the process.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

/// What the loader calls it.
const NAMES: [&str; 3] = ["linux-vdso.so.1", "linux-gate.so.1", "[vdso]"];

/// It is two pages today.
const LARGEST: u64 = 1 << 20;

/// A copy of this process's vDSO.
#[derive(Debug)]
pub(crate) struct Vdso {
    /// Keeps the path valid.
    _file: File,
    path: PathBuf,
}

impl Vdso {
    /// Whether a module of this path is the vDSO.
    pub(crate) fn is(path: &str) -> bool {
        NAMES.contains(&path)
    }

    /// Copies it; `None` on a kernel without one.
    pub(crate) fn copy() -> Option<Vdso> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (address(start)?, address(end)?);
        let length = end.checked_sub(start).filter(|&length| length <= LARGEST)?;
        let mut bytes = vec![0; length as usize];
        File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
        let mut file = File::from(memfd_create("vdso", MemfdFlags::CLOEXEC).ok()?);
        file.write_all(&bytes).ok()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Some(Vdso { _file: file, path })
    }

    /// The copy.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Module, ProcessInfo, ProcessState};
    use crate::symbols::symbolize::SymbolCache;
    use blazesym::helper::read_elf_build_id;

    #[test]
    fn functions_of_the_kernels_library_have_their_names() {
        let copy = Vdso::copy().expect("this kernel has one");
        let symbols = std::process::Command::new("readelf").args(["-sW", "--dyn-syms"]).arg(copied(&copy)).output();
        let symbols = String::from_utf8(symbols.expect("runs").stdout).expect("is text");
        let line = symbols.lines().find(|line| line.contains("__vdso_gettimeofday")).expect("every kernel has it");
        let address = u64::from_str_radix(line.split_whitespace().nth(1).expect("has an address"), 16).expect("is one");
        let build_id = read_elf_build_id(copy.path()).expect("is read").expect("has one").into_owned();
        let process = ProcessInfo {
            pid: std::process::id(),
            state: ProcessState::Killed,
            exe: String::new(),
            args: Vec::new(),
            start_realtime_ns: 1,
            start_monotonic_ns: 1,
            forked: false,
        };
        let (load_bias, path) = (0x7ffd_0000_0000, "linux-vdso.so.1".to_owned());
        let mut module =
            Module { start: load_bias, end: load_bias + 8192, load_bias, build_id, file: 0, path, stacks: 0..1 };
        let frames = SymbolCache::new().frames(&process, &module, load_bias + address + 1);
        assert!(frames[0].name.contains("gettimeofday"), "{frames:?}");

        // Another kernel's.
        module.build_id[0] ^= 1;
        let mut symbols = SymbolCache::new();
        assert!(symbols.frames(&process, &module, load_bias + address + 1)[0].is_placeholder());
        assert_eq!(symbols.take_warnings(), [], "nobody can help it");
    }

    /// Where another process finds the copy.
    fn copied(vdso: &Vdso) -> String {
        vdso.path().to_string_lossy().replace("/self/", &format!("/{}/", std::process::id()))
    }
}
