//! Which frames are the pool's own: they lie between `malloc` and the sampler and would be the leaf of every stack.
//!
//! The pool's own code is listed in [`poolscope_wire::own_code`]; here stand the libraries of languages that hand
//! requests on to it. The builder drops what matches from the leaf side of each stack,
//! and pprof gets the C and C++ part as `drop_frames`.

use poolscope_wire::own_code::{C_FUNCTIONS, LIBRARIES, OWN_CODE, Serves};

use crate::model::profile::Frame;
use crate::model::snapshot::Module;
use crate::words::pattern;

/// Patterns of the functions of languages' libraries through which C++ and Rust get to the pool.
const PATTERNS: &[&str] = &[
    "^operator new",
    "^operator delete",
    "^_Znw",
    "^_Zna",
    "^__rust_alloc",
    "^__rust_realloc",
    "^__rg_",
    "^__rdl_",
    "^__rustc::__r",
    "^__rustc[*]::__r",
    "^alloc::alloc::",
    "^<alloc::alloc::Global as ",
    "^std::alloc::",
    "^<std::alloc::System as ",
];

/// Sources of the same functions, where debug information of lines alone has their names without the path.
const FILES: &[&str] = &["/library/alloc/src/alloc.rs$"];

/// The module is the pool's library.
pub(crate) fn is_pool_module(module: &Module) -> bool {
    LIBRARIES.iter().any(|library| module.name().starts_with(library))
}

/// The frame is the pool's, or only hands the request on to it.
pub(crate) fn is_pool_frame(frame: &Frame) -> bool {
    let source = source_that_tells(frame);
    let of_library = source.is_some_and(|file| FILES.iter().any(|pattern| pattern::matches(pattern, file)));
    of_library || is_pool_function(&frame.name) || is_own(frame, source, Serves::Host)
}

/// The frame is the device pool's, or the host pool's.
pub(crate) fn is_device_pool_frame(frame: &Frame) -> bool {
    is_own(frame, source_that_tells(frame), Serves::Device) || is_pool_frame(frame)
}

/// The frame is of the pool's own code that serves such requests.
fn is_own(frame: &Frame, source: Option<&str>, serves: Serves) -> bool {
    let mut own = OWN_CODE.iter().filter(|own| own.serves == serves);
    own.any(|own| own.has_function(&frame.name) || source.is_some_and(|file| own.has_source(file)))
}

/// The frame's source, if its name has no path. A name with its path speaks for itself.
fn source_that_tells(frame: &Frame) -> Option<&str> {
    // What is between angle brackets is not the function's path.
    let has_path = frame.name.starts_with('<') || frame.name.split('<').next().is_some_and(|name| name.contains("::"));
    frame.file.as_deref().filter(|_| !has_path)
}

/// The function is the pool's, or only hands the request on to it.
fn is_pool_function(name: &str) -> bool {
    // A symbol's version (`malloc@@GLIBC_2.2.5`) is no part of its name.
    let plain = name.split('@').next().unwrap_or(name);
    C_FUNCTIONS.contains(&plain) || PATTERNS.iter().any(|pattern| pattern::matches(pattern, name))
}

/// The regular expression for pprof, which must match a whole name. Rust's names are left out: they are dropped here
/// already, and a frame that matches hides everything inside it.
#[cfg(feature = "pprof")]
pub(crate) fn drop_frames() -> String {
    format!("{}|operator new|operator new\\[\\]", C_FUNCTIONS.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Frame {
        Frame { name: name.into(), ..Frame::default() }
    }

    #[test]
    fn allocation_functions_are_the_pools_and_their_callers_are_not() {
        for name in [
            "malloc",
            "malloc@@GLIBC_2.2.5",
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "poolscope::memory_resource::do_allocate(unsigned long, unsigned long)",
            "__rust_alloc",
            "__rustc::__rust_alloc_zeroed",
            "alloc::alloc::exchange_malloc",
            "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
            "<poolscope_alloc::Pool as core::alloc::global::GlobalAlloc>::alloc",
            "poolscope_cpu::thread_cache::refill",
        ] {
            assert!(is_pool_frame(&named(name)), "{name}");
        }
        for name in [
            "main",
            "xmalloc",
            "malloc_report",
            "strdup",
            "my::operator new",
            "alloc::raw_vec::RawVec<T,A>::grow_one",
            "poolscope_heapcheck::tests::leaks",
            "poolscope_samples::kv::serve",
        ] {
            assert!(!is_pool_frame(&named(name)), "{name}");
        }
    }

    #[test]
    fn a_name_without_its_path_is_told_by_its_file() {
        let frame = |name: &str, file: &str| Frame { name: name.into(), file: Some(file.into()), ..Frame::default() };
        for (name, file) in [
            ("capture", "/src/poolscope/alloc/capture/src/entry.rs"),
            ("sample_block", "/src/poolscope/alloc/cpu/src/sampler.rs"),
            ("alloc", "/src/poolscope/alloc/src/lib.rs"),
            ("allocate", "/src/poolscope/alloc/src/allocator.rs"),
            ("alloc_impl", "/rustc/5980/library/alloc/src/alloc.rs"),
            ("refill<kv::Store>", "/src/poolscope/alloc/cpu/src/thread_cache.rs"),
        ] {
            assert!(is_pool_frame(&frame(name, file)), "{name} in {file}");
        }
        for (name, file) in [
            ("new_uninit_in<u8>", "/rustc/5980/library/alloc/src/boxed.rs"),
            ("capture", "/src/camera/src/entry.rs"),
            ("camera::cpu::capture", "/src/camera/alloc/cpu/src/entry.rs"),
        ] {
            assert!(!is_pool_frame(&frame(name, file)), "{name} in {file}");
        }
        let of_device = frame("allocate<poolscope_gpu::simulated::Simulated>", "/src/poolscope/alloc/gpu/src/pool.rs");
        assert!(is_device_pool_frame(&of_device) && !is_pool_frame(&of_device));
    }
}
