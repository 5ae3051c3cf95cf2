//! Which frames are the pool's own: they lie between `malloc` and the sampler and would be the leaf of every stack.
//!
//! One table; the builder drops what matches from the leaf side of each stack, and pprof gets the C and C++ part of
//! it as `drop_frames`.

use crate::pattern;
use crate::profile::Frame;
use crate::snapshot::Module;

/// File names of modules that are nothing but the pool.
const POOL_MODULES: &[&str] = &["^libpoolscope.so", "^libpoolscope_preload.so", "^libpoolscope_gpu.so"];

/// Functions by which C and C++ programs allocate. Whole names; `operator new` with any parameters.
const C_FAMILY: &[&str] = &[
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

/// Patterns of the functions through which C++ and Rust get to the pool, and of the pool's crates where they are
/// linked into the program.
const PATTERNS: &[&str] = &[
    "^operator new",
    "^operator delete",
    "^poolscope::memory_resource::",
    "^poolscope::data_ptr::",
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
    "^poolscope_cpu::",
    "^<poolscope_cpu::",
    "^<* as poolscope_cpu::",
    "^poolscope_capture::",
    "^<poolscope_capture::",
    "^poolscope_alloc::",
    "^<poolscope_alloc::",
    "^poolscope_preload::",
    "^<poolscope_preload::",
    "^poolscope_wire::",
    "^<poolscope_wire::",
];

/// Sources of the same functions. Debug information of lines alone (`debug = "line-tables-only"`) has `alloc` for
/// `<Poolscope as GlobalAlloc>::alloc`, and only the file says whose it is.
const FILES: &[&str] = &[
    "/alloc/cpu/src/",
    "/alloc/capture/src/",
    "/alloc/src/lib.rs$",
    "/alloc/src/allocator.rs$",
    "/alloc/src/data_ptr.rs$",
    "/library/alloc/src/alloc.rs$",
];

/// The same of the device pool: its patterns and its sources. Host memory that it allocates for itself is its own; what counts
/// as the caller's is device memory.
const DEVICE_PATTERNS: &[&str] = &["^poolscope_gpu::", "^<poolscope_gpu::", "^<* as poolscope_gpu::"];
const DEVICE_FILES: &[&str] = &["/alloc/gpu/src/", "/alloc/src/gpu.rs$"];

/// The module is the pool's library.
pub(crate) fn is_pool_module(module: &Module) -> bool {
    POOL_MODULES.iter().any(|pattern| pattern::matches(pattern, module.name()))
}

/// The frame is the pool's, or only hands the request on to it.
pub(crate) fn is_pool_frame(frame: &Frame) -> bool {
    if is_pool_function(&frame.name) {
        return true;
    }
    is_in(frame, FILES)
}

/// The frame is the device pool's, or the host pool's.
pub(crate) fn is_device_pool_frame(frame: &Frame) -> bool {
    let named = DEVICE_PATTERNS.iter().any(|pattern| pattern::matches(pattern, &frame.name));
    named || is_in(frame, DEVICE_FILES) || is_pool_frame(frame)
}

/// The frame's name has no path, and its source is one of these.
fn is_in(frame: &Frame, files: &[&str]) -> bool {
    // A name with its path speaks for itself; what is between angle brackets is not the function's path.
    let has_path = frame.name.starts_with('<') || frame.name.split('<').next().is_some_and(|name| name.contains("::"));
    let file = frame.file.as_deref().filter(|_| !has_path);
    file.is_some_and(|file| files.iter().any(|pattern| pattern::matches(pattern, file)))
}

/// The function is the pool's, or only hands the request on to it.
fn is_pool_function(name: &str) -> bool {
    // A symbol's version (`malloc@@GLIBC_2.2.5`) is no part of its name.
    let plain = name.split('@').next().unwrap_or(name);
    C_FAMILY.contains(&plain) || PATTERNS.iter().any(|pattern| pattern::matches(pattern, name))
}

/// The regular expression for pprof, which must match a whole name. Rust's names are left out: they are dropped here
/// already, and a frame that matches hides everything inside it.
pub(crate) fn drop_frames() -> String {
    format!("{}|operator new|operator new\\[\\]", C_FAMILY.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(is_pool_function(name), "{name}");
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
            assert!(!is_pool_function(name), "{name}");
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
