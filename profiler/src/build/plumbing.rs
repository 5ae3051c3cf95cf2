//! Functions that allocate on behalf of their caller: of a language's library, or wrappers of `malloc`. The function
//! that asked for memory is the innermost one that is none of these; [`site_name`](crate::build::site_name) finds it.

use poolscope_wire::own_code::C_FUNCTIONS;

use crate::build::{python, ruby};
use crate::model::naming::Naming;
use crate::model::profile::Frame;
use crate::model::snapshot::Module;
use crate::symbols::function_name::path;
use crate::words::pattern;

/// Functions by their whole names, beside those of malloc's family ([`C_FUNCTIONS`]).
const FUNCTIONS: &[&str] = &[
    "strdup",
    "strndup",
    "__strdup",
    "__strndup",
    "asprintf",
    "vasprintf",
    // Where programs and threads begin: nobody's callers.
    "_start",
    "_dl_start_user",
    "clone3",
    "start_thread",
    // Redis and its kin.
    "zmalloc",
    "zcalloc",
    "zcalloc_num",
    "zrealloc",
    "zstrdup",
    "zmalloc_usable",
    "zcalloc_usable",
    "zrealloc_usable",
    "ztrymalloc",
    "ztrycalloc",
    "ztryrealloc",
    "ztrymalloc_usable",
    "ztrycalloc_usable",
    "ztryrealloc_usable",
    "ztrymalloc_usable_internal",
    "ztrycalloc_usable_internal",
    "ztryrealloc_usable_internal",
    // GLib.
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_realloc_n",
    "g_try_malloc",
    "g_try_realloc",
    "g_strdup",
    "g_strndup",
    "g_strdup_printf",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_slice_copy",
    // GNU's and git's.
    "xmalloc",
    "xcalloc",
    "xzalloc",
    "xrealloc",
    "xreallocarray",
    "xnmalloc",
    "xnrealloc",
    "x2realloc",
    "x2nrealloc",
    "xpalloc",
    "xmemdup",
    "xmallocz",
    "xstrdup",
    "xstrndup",
    // OpenSSL.
    "CRYPTO_malloc",
    "CRYPTO_zalloc",
    "CRYPTO_realloc",
    "CRYPTO_clear_realloc",
    "CRYPTO_strdup",
    "CRYPTO_strndup",
    "CRYPTO_memdup",
    // SQLite.
    "sqlite3_malloc",
    "sqlite3_malloc64",
    "sqlite3_realloc",
    "sqlite3_realloc64",
    "sqlite3Malloc",
    "sqlite3MallocZero",
    "sqlite3Realloc",
    "sqlite3DbMallocRaw",
    "sqlite3DbMallocRawNN",
    "sqlite3DbMallocZero",
    "sqlite3DbRealloc",
    "sqlite3DbReallocOrFree",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "mallocWithAlarm",
    "dbMallocRawFinish",
    "dbReallocFinish",
    // PostgreSQL: who fills a block of a memory context gets the next one.
    "palloc",
    "palloc0",
    "palloc_extended",
    "repalloc",
    "repalloc_extended",
    "repalloc_huge",
    "pstrdup",
    "pnstrdup",
    "psprintf",
    "MemoryContextAlloc",
    "MemoryContextAllocExtended",
    "MemoryContextAllocHuge",
    "MemoryContextAllocZero",
    "MemoryContextAllocZeroAligned",
    "AllocSetAlloc",
    "AllocSetAllocFromNewBlock",
    "AllocSetAllocLarge",
    "AllocSetRealloc",
    "AllocSetContextCreateInternal",
    // MariaDB and MySQL.
    "my_malloc",
    "my_realloc",
    "my_strdup",
    "my_strndup",
    "my_memdup",
    "my_raw_malloc",
    "my_multi_malloc",
    "my_multi_malloc_large",
    "my_large_malloc",
    "init_alloc_root",
    "alloc_root",
    "multi_alloc_root",
    "strdup_root",
    "strmake_root",
    "memdup_root",
    "init_sql_alloc",
    "MEM_ROOT::AllocSlow",
    "MEM_ROOT::AllocBlock",
    "mem_heap_create_block_func",
    "mem_heap_add_block",
    // PHP, where its own allocator is off.
    "__zend_malloc",
    "__zend_calloc",
    "__zend_realloc",
    "_emalloc",
    "_safe_emalloc",
    "_safe_malloc",
    "_safe_realloc",
    "_erealloc",
    "_ecalloc",
    "_estrdup",
    "_estrndup",
    "zend_strndup",
    // nginx.
    "ngx_alloc",
    "ngx_calloc",
    "ngx_palloc",
    "ngx_pnalloc",
    "ngx_pcalloc",
    "ngx_palloc_large",
    "ngx_palloc_block",
    "ngx_create_pool",
    // Intel's MKL.
    "mm_internal_malloc",
    "mkl_serv_allocate",
    "mkl_serv_malloc",
    "mkl_serv_calloc",
    "mkl_serv_realloc",
    // zlib.
    "deflateInit_",
    "deflateInit2_",
    "deflateCopy",
    "inflateInit_",
    "inflateInit2_",
    "inflateCopy",
    // Java's machine.
    "os::malloc",
    "os::realloc",
    "AllocateHeap",
    "ReallocateHeap",
    "resource_allocate_bytes",
    "ResourceObj::operator new",
    "AnyObj::operator new",
    "CHeapObjBase::operator new",
    "Chunk::operator new",
    "ChunkPool::allocate",
    "Arena::grow",
    "Arena::Amalloc",
    "Arena::Arealloc",
    // CPython's allocator, and what makes an object for its caller.
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyObject_New",
    "_PyObject_NewVar",
    "PyType_GenericAlloc",
    "_PyType_AllocNoTrack",
    "PyUnicode_New",
    "pymalloc_alloc",
    "gc_alloc",
];

/// Beginnings of functions' paths.
const PATHS: &[&str] = &[
    "alloc::",
    "core::",
    "std::",
    "hashbrown::",
    "allocator_api2::",
    "__rust_",
    "__rustc",
    // Rust's newer mangling, of a function that can't be demangled.
    "_RN",
    "__gnu_cxx::",
    "operator new",
    "__libc_",
    "_PyMem_",
    "PyMem_",
    "_PyObject_GC_",
    // What PyTorch makes a tensor's memory with, for whoever wants the tensor.
    "torch::cuda::CUDAPluggableAllocator::",
    "c10::cuda::CUDACachingAllocator::",
    "c10::StorageImpl::",
    "at::detail::empty_",
    "at::detail::_empty_",
];

/// Parts of the paths of such functions' files: debug information gives inlined functions without their paths.
const FILES: &[&str] = &[
    "/rustc/*/library/alloc/src/",
    "/rustc/*/library/core/src/",
    "/rustc/*/library/std/src/",
    "/rustlib/src/rust/library/",
    "/hashbrown-*/src/",
    "/allocator-api2-*/src/",
    "/include/c++/",
    "/Objects/obmalloc.c$",
    "/sqlite3.c$",
];

/// Files that are nothing but a language's library, by their names, or a library whose functions say less than who asked
/// it to do something.
const MODULES: &[&str] =
    &["^libc.so", "^libc-2", "^libstdc++.so", "^libc++.so", "^libc++abi.so", "^ld-linux", "^libsqlite3.so"];

/// Whether a function, in a module if that is known, is one, or is called one by the rules of a person.
pub fn is_plumbing(frame: &Frame, module: Option<&Module>, naming: &Naming) -> bool {
    (!naming.is_empty() && naming.has(path(&frame.name), frame, module)) || is_plumbing_of_a_language(frame, module)
}

fn is_plumbing_of_a_language(frame: &Frame, module: Option<&Module>) -> bool {
    module.is_some_and(|module| MODULES.iter().any(|pattern| pattern::matches(pattern, module.name())))
        || frame
            .file
            .as_ref()
            .is_some_and(|file| FILES.iter().any(|pattern| pattern::matches(pattern, file)) || is_library(file))
        || is_plumbing_by_name(&frame.name)
}

/// Whether a file comes with the interpreter of its language.
fn is_library(file: &str) -> bool {
    python::is_library(file) || ruby::is_library(file)
}

fn is_plumbing_by_name(name: &str) -> bool {
    let owner = owner(name);
    let path = path(name);
    C_FUNCTIONS.contains(&path)
        || FUNCTIONS.contains(&path)
        || PATHS.iter().any(|beginning| owner.starts_with(beginning))
}

/// The path that says whose a function is: its own, or that of the type that it belongs to, or of the trait.
pub(crate) fn owner(name: &str) -> &str {
    let path = path(name);
    match path.strip_prefix('<').and_then(|path| path.split_once(" as ")) {
        // `<TYPE as TRAIT>::function`: a type without a path, such as `T` or `[u8]`, says nothing.
        Some((of_type, of_trait)) => without_signs(if of_type.contains("::") { of_type } else { of_trait }),
        // Only the library itself can give such types functions of their own.
        None if path.starts_with("<[") || path.starts_with("<str>") => "core::",
        None => without_signs(path),
    }
}

/// A type without what stands before its path: `&mut <Store>` begins with `Store`.
fn without_signs(mut of_type: &str) -> &str {
    loop {
        let rest = of_type.trim_start_matches(['<', '&', '[', '(', '*']);
        let rest = ["mut ", "const ", "dyn "].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
        if rest.len() == of_type.len() {
            return rest;
        }
        of_type = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::module;

    fn frame(name: &str, file: &str) -> Frame {
        let file = (!file.is_empty()).then(|| file.to_owned());
        Frame { name: name.to_owned(), file, ..Frame::default() }
    }

    #[test]
    fn a_function_is_plumbing_by_its_name() {
        for name in [
            "alloc::vec::Vec<T>::push",
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
            "<T as alloc::string::SpecToString>::spec_to_string",
            "<str as alloc::borrow::ToOwned>::to_owned",
            "<[T] as alloc::slice::hack::ConvertVec>::to_vec",
            "<[u8]>::to_vec",
            "<&mut <std::io::Stdout> as core::fmt::Write>::write_str",
            "<&dyn core::ops::function::Fn<(), Output = i32> as core::ops::function::FnOnce<()>>::call_once",
            "<alloc::alloc::Global>::grow_impl",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "void std::vector<app::A>::_M_realloc_insert<app::A const&>(app::A const&)",
            "std::_Rb_tree_iterator<int> std::_Rb_tree<int>::_M_emplace<int>(int)",
            "operator new(unsigned long)",
            "ztrymalloc_usable_internal",
            "CRYPTO_zalloc",
            "sqlite3DbMallocRawNN",
            "palloc0",
            "ngx_pcalloc",
            "my_malloc",
            "mkl_serv_allocate",
            "os::malloc(unsigned long, MEMFLAGS)",
            "Arena::grow(unsigned long, AllocFailStrategy::AllocFailEnum)",
            "__libc_start_call_main",
            "torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, int, CUstream_st*)",
            "at::detail::empty_strided_cuda(c10::ArrayRef<long>, c10::ArrayRef<long>, c10::TensorOptions const&)",
            "at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*)",
        ] {
            assert!(is_plumbing_of_a_language(&frame(name, ""), None), "{name}");
        }
        for name in [
            "app::alloc::cache",
            "<app::Store as core::clone::Clone>::clone",
            "<&app::Store as core::clone::Clone>::clone",
            "<&mut app::Store as core::fmt::Write>::write_str",
            "<dyn app::Job as core::ops::function::FnOnce<()>>::call_once",
            "std::vector<double> app::copy<double>(std::vector<double> const&)",
            "malloc_of_the_app",
            "xmalloc_stats",
            "main",
            "insert (cache.py)",
            "[app+0x1234]",
            "at::native::structured_sum_out::impl(at::Tensor const&, c10::ArrayRef<long>)",
        ] {
            assert!(!is_plumbing_of_a_language(&frame(name, ""), None), "{name}");
        }
    }

    #[test]
    fn a_function_is_plumbing_by_its_file_or_its_module() {
        assert!(is_plumbing_of_a_language(&frame("grow_one", "/rustc/5980/library/alloc/src/raw_vec/mod.rs"), None));
        assert!(is_plumbing_of_a_language(
            &frame("get", "/home/me/.cargo/registry/src/x/hashbrown-0.16.1/src/map.rs"),
            None
        ));
        // As cargo lays out what a manifest names by `git = "URL"`.
        assert!(is_plumbing_of_a_language(
            &frame("get", "/root/.cargo/git/checkouts/hashbrown-1f2e3d/a1b2c3d/src/map.rs"),
            None
        ));
        assert!(!is_plumbing_of_a_language(&frame("cache", "/home/me/app/library/core/src/cache.rs"), None));
        assert!(is_plumbing_of_a_language(
            &frame("[libstdc++.so.6+0x10]", ""),
            Some(&module("/usr/lib/libstdc++.so.6"))
        ));
        assert!(!is_plumbing_of_a_language(&frame("[libcache.so+0x10]", ""), Some(&module("/usr/lib/libcache.so"))));
    }
}
