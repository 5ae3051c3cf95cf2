//! Which code is the pool's own, by the names of its functions and by its sources: the one list of it.
//!
//! Frames of this code lie between a program's call and the sampler. A profile leaves them out, and so does the message
//! of a device that has no memory left. A name is enough where it has its path. Debug information of lines alone knows
//! a function without its path (`alloc` for `<Poolscope as GlobalAlloc>::alloc`), so that only the source says whose it
//! is.
//!
//! `tests/tests/own_code.rs` walks the sources: each line of the list has to exist, and each source has to have a line.

/// Which requests the code serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// Those for host memory.
    Host,
    /// Those for device memory. Host memory that this code allocates is its own, and not its caller's.
    Device,
}

/// A row of the list: code of one crate of Rust, or of one class of C++.
#[derive(Debug)]
pub struct OwnCode {
    /// The crate or class, as the paths of its functions begin.
    pub name: &'static str,
    /// Its sources below the root of the repository: folders, which end with a slash, and files.
    pub sources: &'static [&'static str],
    /// Which requests it serves.
    pub serves: Serves,
}

/// The pool's code, where it is linked into programs; a library of its own is known by its file. What `alloc/src` has
/// is named file by file: the standard library has a folder of that name, too.
pub const OWN_CODE: &[OwnCode] = &[
    OwnCode { name: "poolscope_wire", sources: &["alloc/wire/src/"], serves: Serves::Host },
    OwnCode { name: "poolscope_capture", sources: &["alloc/capture/src/"], serves: Serves::Host },
    OwnCode { name: "poolscope_cpu", sources: &["alloc/cpu/src/"], serves: Serves::Host },
    OwnCode {
        name: "poolscope::memory_resource",
        sources: &["alloc/preload/include/poolscope_memory_resource.hpp"],
        serves: Serves::Host,
    },
    OwnCode { name: "poolscope::data_ptr", sources: &["alloc/preload/include/poolscope.h"], serves: Serves::Host },
    OwnCode {
        name: "poolscope_alloc",
        sources: &[
            "alloc/src/lib.rs",
            "alloc/src/allocator.rs",
            "alloc/src/config.rs",
            "alloc/src/data_ptr.rs",
            "alloc/src/dump.rs",
            "alloc/src/hooks.rs",
            "alloc/src/label.rs",
            "alloc/src/scope.rs",
            "alloc/src/stats.rs",
        ],
        serves: Serves::Host,
    },
    OwnCode { name: "poolscope_alloc", sources: &["alloc/src/gpu.rs", "alloc/src/gpu/"], serves: Serves::Device },
    OwnCode { name: "poolscope_gpu", sources: &["alloc/gpu/src/", "alloc/plugin/src/"], serves: Serves::Device },
    OwnCode { name: "poolscope_replay", sources: &["alloc/replay/src/"], serves: Serves::Device },
];

/// Libraries that are nothing but the pool, by the beginning of their file's name: versions may follow.
pub const LIBRARIES: &[&str] = &["libpoolscope.so", "libpoolscope_gpu.so"];

/// Functions by which programs in C allocate: whole names. They are those of `libpoolscope.so`.
pub const C_FUNCTIONS: &[&str] = &[
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "cfree",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_free",
];

/// How the names of the functions of `libpoolscope_gpu.so` begin.
pub const DEVICE_C_FUNCTIONS: &[&str] = &["poolscope_gpu_", "poolscope_torch_", "poolscope_cupy_"];

impl OwnCode {
    /// Whether a function of this path is of this code: `NAME::f`, `<NAME::T>::f` or `<T as NAME::Trait>::f`.
    pub fn has_function(&self, path: &str) -> bool {
        let begins = |path: &str| {
            let rest = path.trim_start_matches(['<', '&']).strip_prefix(self.name);
            rest.is_some_and(|rest| rest.starts_with("::"))
        };
        match path.strip_prefix('<') {
            Some(of) => begins(of) || of.match_indices(" as ").any(|(at, found)| begins(&of[at + found.len()..])),
            None => begins(path),
        }
    }

    /// Whether a source is one of these, wherever the repository lies.
    pub fn has_source(&self, file: &str) -> bool {
        let begins_a_part = |at: usize| at == 0 || file.as_bytes()[at - 1] == b'/';
        self.sources.iter().any(|source| match source.ends_with('/') {
            true => file.match_indices(source).any(|(at, _)| begins_a_part(at)),
            false => file.strip_suffix(source).is_some_and(|before| begins_a_part(before.len())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{OWN_CODE, OwnCode};

    fn one(name: &str) -> &'static OwnCode {
        OWN_CODE.iter().find(|own| own.name == name).unwrap()
    }

    #[test]
    fn a_function_is_of_the_crate_that_its_path_or_its_trait_begins_with() {
        let cpu = one("poolscope_cpu");
        for path in [
            "poolscope_cpu::refill",
            "<poolscope_cpu::Heap>::f",
            "<&poolscope_cpu::Heap as core::fmt::Debug>::fmt",
            "<kv::Store as poolscope_cpu::Trait>::f",
        ] {
            assert!(cpu.has_function(path), "{path}");
        }
        for path in ["poolscope_cpus::f", "kv::poolscope_cpu::f", "<kv::Store>::as", "poolscope_cpu"] {
            assert!(!cpu.has_function(path), "{path}");
        }
    }

    #[test]
    fn a_source_is_told_by_whole_parts_of_its_path() {
        let (cpu, facade) = (one("poolscope_cpu"), one("poolscope_alloc"));
        for file in ["alloc/cpu/src/a.rs", "/src/poolscope/alloc/cpu/src/tiers/a.rs"] {
            assert!(cpu.has_source(file), "{file}");
        }
        assert!(!cpu.has_source("/src/malloc/cpu/src/a.rs"));
        assert!(facade.has_source("/x/alloc/src/lib.rs"));
        assert!(!facade.has_source("/x/malloc/src/lib.rs") && !facade.has_source("/x/alloc/src/lib.rs/y"));
    }
}
