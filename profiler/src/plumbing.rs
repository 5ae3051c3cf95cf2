//! Functions that allocate on behalf of their caller: of a language's library, or wrappers of `malloc`. The function that
//! asked for memory is the innermost one that is none of these.

/// Prefixes of functions that allocate on behalf of their caller.
const PLUMBING: &[&str] = &[
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "std::",
    "<std::",
    "hashbrown::",
    "<hashbrown::",
    "allocator_api2::",
    "<allocator_api2::",
    "__rust_",
    "__rustc",
    "_RN",
    "__gnu_cxx::",
    "void std::",
    "operator new",
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "strdup",
    "strndup",
    "__strdup",
    "__libc_",
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
    "_PyMem_",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "PyMem_",
    "zmalloc",
    "zcalloc",
    "zrealloc",
    "ztrymalloc",
    "ztrycalloc",
    "g_malloc",
    "xmalloc",
    "xcalloc",
    "xrealloc",
];

/// Parts of the paths of such functions' files: debug information gives inlined functions without their paths.
const PLUMBING_FILES: &[&str] = &[
    "/library/alloc/src/",
    "/library/core/src/",
    "/library/std/src/",
    "/hashbrown-",
    "/allocator-api2-",
    "/include/c++/",
];

/// Whether a function with this name, and with this file if it is known, is one.
pub fn is_plumbing(name: &str, file: Option<&str>) -> bool {
    let file = file.unwrap_or_default();
    PLUMBING.iter().any(|prefix| name.starts_with(prefix)) || PLUMBING_FILES.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_plumbing_by_its_name_or_by_its_file() {
        assert!(is_plumbing("alloc::vec::Vec<T>::push", None));
        assert!(is_plumbing("grow_one", Some("/rustc/5980/library/alloc/src/raw_vec/mod.rs")));
        assert!(!is_plumbing("app::alloc::cache", Some("/home/me/app/src/alloc.rs")));
    }
}
