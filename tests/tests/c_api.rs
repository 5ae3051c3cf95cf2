//! The library for programs that know it: `poolscope.h`, the memory resource for C++, buffers between Rust and C; and
//! the names by which it takes the place of another allocator.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_ulong, c_void};
use std::path::Path;

use poolscope_alloc::DataPtr;
use poolscope_alloc::data_ptr::{Device, RawDataPtr};
use poolscope_e2e::{Pool, Program, Scratch, compiler, library};

/// Names that the library defines for others.
fn exports() -> BTreeSet<String> {
    let listed = Program::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library()).run();
    let lines = listed.silent_success().stdout;
    lines.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Functions that the headers declare: names before a parenthesis in what the preprocessor leaves of them.
fn declared() -> BTreeSet<String> {
    let header = |name: &str| compiler::headers().join(name);
    let headers =
        Program::new("gcc").args(["-E", "-P"]).arg(header("poolscope.h")).arg(header("poolscope_heapcheck.h"));
    let text = headers.run().silent_success().stdout;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("poolscope_") {
        let name: String = text[at..].chars().take_while(|c| is_part(*c)).collect();
        if !text[..at].ends_with(is_part) && text[at + name.len()..].starts_with('(') {
            names.insert(name);
        }
    }
    names
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let declared = declared();
    assert!(declared.contains("poolscope_malloc") && declared.contains("poolscope_data_ptr_free"), "{declared:?}");
    let mut exported: BTreeSet<String> = exports().into_iter().filter(|name| name.starts_with("poolscope_")).collect();
    // For libraries of this project only, and of the same build.
    assert!(exported.remove("poolscope_device_table"));
    let missing: Vec<_> = declared.difference(&exported).collect();
    let secret: Vec<_> = exported.difference(&declared).collect();
    assert!(missing.is_empty(), "poolscope.h declares what libpoolscope.so does not export: {missing:?}");
    assert!(secret.is_empty(), "libpoolscope.so exports what poolscope.h does not declare: {secret:?}");
}

/// What has to be there for the library to replace another allocator: with one name missing, its callers' blocks would
/// come from one allocator and be freed by the other.
#[test]
fn the_library_defines_every_name_of_the_allocator_that_it_replaces() {
    let family = "malloc free calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc cfree \
                  malloc_usable_size free_sized free_aligned_sized malloc_trim malloc_stats malloc_info mallinfo mallinfo2 mallopt \
                  __libc_malloc __libc_free __libc_cfree __libc_calloc __libc_realloc __libc_reallocarray \
                  __libc_memalign __libc_valloc __libc_pvalloc __posix_memalign";
    // operator new and delete, and those of arrays, by the forms of their arguments.
    let new = ["m", "mRKSt9nothrow_t", "mSt11align_val_t", "mSt11align_val_tRKSt9nothrow_t"];
    let delete =
        ["Pv", "Pvm", "PvRKSt9nothrow_t", "PvSt11align_val_t", "PvmSt11align_val_t", "PvSt11align_val_tRKSt9nothrow_t"];
    let operators = |names: [&str; 2], forms: &[&str]| {
        let of = |name: &str| forms.iter().map(|form| format!("_Z{name}{form}")).collect::<Vec<_>>();
        names.map(of).concat()
    };
    let needed = family.split_whitespace().map(str::to_owned);
    let needed = needed.chain(operators(["nw", "na"], &new)).chain(operators(["dl", "da"], &delete));
    let exports = exports();
    let missing: Vec<String> = needed.filter(|name| !exports.contains(name)).collect();
    assert!(missing.is_empty(), "libpoolscope.so does not define {missing:?}");
}

/// The list above against the C++ library of this machine: it knows which forms of the operators there are.
#[test]
fn every_form_of_new_and_delete_that_the_cpp_library_has_is_replaced() {
    let path = Program::new("g++").arg("-print-file-name=libstdc++.so.6").run().silent_success().stdout;
    let listed = Program::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(path.trim()).run();
    let listed = listed.silent_success().stdout;
    let names = listed.lines().filter_map(|line| line.split(['@', ' ']).next());
    let operators: BTreeSet<&str> =
        names.filter(|name| ["_Znw", "_Zna", "_Zdl", "_Zda"].iter().any(|start| name.starts_with(start))).collect();
    assert!(operators.len() >= 20, "{operators:?}");
    let exports = exports();
    let missing: Vec<_> = operators.iter().filter(|name| !exports.contains(**name)).collect();
    assert!(missing.is_empty(), "libpoolscope.so does not define {missing:?}");
}

#[test]
fn the_library_needs_the_c_library_alone() {
    let dynamic = Program::new("readelf").args(["-d", "--wide"]).arg(library()).run().silent_success().stdout;
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(matches!(needed[..], [libc] if libc.contains("[libc.so.6]")), "{needed:?}");
}

#[test]
fn the_headers_compile_without_a_warning_in_every_standard() {
    let cpp = "-x c++ -Wold-style-cast -Wzero-as-null-pointer-constant -Wnon-virtual-dtor";
    // Engines are built without exceptions and run-time types; a memory resource has to throw.
    let engine = format!("{cpp} -fno-exceptions -fno-rtti");
    let throwing = format!("{cpp} -fno-rtti");
    let cases = [
        ("poolscope.h", "-x c -Wstrict-prototypes", "c99 c11 c17 gnu11"),
        ("poolscope.h", cpp, "c++11 c++14 c++17 c++20"),
        ("poolscope.h", &engine, "c++11 c++20"),
        ("poolscope_heapcheck.h", "-x c -Wstrict-prototypes", "c99 c11 c17 gnu11"),
        ("poolscope_heapcheck.h", cpp, "c++11 c++20"),
        ("poolscope_memory_resource.hpp", cpp, "c++17 c++20"),
        ("poolscope_memory_resource.hpp", &throwing, "c++17"),
    ];
    let scratch = Scratch::new();
    for (header, flags, standards) in cases {
        // Twice: a header must bear being included from two others.
        let source = scratch.write("header", &format!("#include \"{header}\"\n#include \"{header}\"\nint unit;\n"));
        for standard in standards.split(' ') {
            for weak in ["-UPOOLSCOPE_WEAK", "-DPOOLSCOPE_WEAK"] {
                Program::new("gcc")
                    .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion"])
                    .args([weak, &format!("-std={standard}"), &format!("-I{}", compiler::headers().display())])
                    .args(flags.split(' '))
                    .arg(&source)
                    .run()
                    .silent_success();
            }
        }
    }
}

/// A program of `tests/csrc` in each way in which it can come to the pool, and the one in which it does not.
fn check_every_way(source: &str) {
    let pool = Pool::new();
    let path = format!("tests/csrc/{source}");
    let linked = compiler::compile_linked(pool.files(), &path, "linked", &["-O2"]);
    let weak = compiler::compile_with_headers(pool.files(), &path, "weak", &["-O2", "-DPOOLSCOPE_WEAK"]);
    let said = |program: Program| program.run().silent_success().stdout;
    assert_eq!(said(pool.program(&linked).env_remove("LD_PRELOAD")), "on the pool\n");
    pool.assert_ran("linked");
    // Linked and preloaded is loaded once.
    assert_eq!(said(pool.program(&linked)), "on the pool\n");
    assert_eq!(said(pool.program(&weak)), "on the pool\n");
    pool.assert_ran("weak");
    assert_eq!(said(pool.program(&weak).env_remove("LD_PRELOAD")), "no pool\n");
}

#[test]
fn the_c_interface_does_what_the_header_says() {
    check_every_way("c_api.c");
}

#[test]
fn cpp_containers_and_buffers_live_in_the_pool() {
    check_every_way("cpp_api.cpp");
}

/// Valgrind puts its own functions in the place of malloc and the operators, by their addresses: no two that it tells
/// apart may be one, and none of `poolscope.h` may be among them. Without a sample: capture probes the stack by system
/// calls that valgrind complains about.
#[test]
fn valgrind_finds_no_fault_with_a_cpp_program_on_the_pool() {
    let pool = Pool::new();
    let flags = ["-O1", "-g", "-DPOOLSCOPE_WEAK"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/cpp_api.cpp", "weak", &flags);
    let valgrind = pool.program("valgrind").args(["-q", "--error-exitcode=9"]).arg(program);
    let output = valgrind.env("POOLSCOPE_PERIOD", "1024G").run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "on the pool\n"), "{}", output.report());
}

#[test]
fn a_program_that_loads_the_library_late_has_both_allocators() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(
        pool.files(),
        "tests/csrc/by_name_alone.c",
        "late",
        &[
            "-O2",
            "-Wno-pedantic", // dlsym returns a data pointer
        ],
    );
    let output = pool.program(program).env_remove("LD_PRELOAD").arg(library()).run().silent_success();
    assert_eq!(output.stdout, "both allocators\n");
    pool.assert_ran("late");
}

/// The functions of `data_ptr_peer.c`, loaded with the library that they are linked with. This program has a pool of
/// its own beside it.
struct Peer {
    make: unsafe extern "C" fn(usize, *mut RawDataPtr) -> c_int,
    wrap: unsafe extern "C" fn() -> RawDataPtr,
    deleted: unsafe extern "C" fn() -> c_int,
    sum_and_free: unsafe extern "C" fn(RawDataPtr) -> c_ulong,
    double: unsafe extern "C" fn(RawDataPtr) -> RawDataPtr,
}

impl Peer {
    fn load(path: &Path) -> Peer {
        let path = CString::new(path.to_str().expect("the path is text")).expect("a path has no zero");
        // SAFETY: the library's initialisers are the pool's own.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        // SAFETY: the types are those of the C functions of these names.
        unsafe {
            Peer {
                make: function(library, c"peer_make"),
                wrap: function(library, c"peer_wrap"),
                deleted: function(library, c"peer_deleted"),
                sum_and_free: function(library, c"peer_sum_and_free"),
                double: function(library, c"peer_double"),
            }
        }
    }
}

/// A function of a loaded library.
///
/// # Safety
/// `F` is the type of a pointer to it.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is never unloaded; a function's address is its pointer (the caller's promise).
    unsafe {
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "{name:?} is not there");
        std::mem::transmute_copy(&found)
    }
}

#[test]
fn buffers_go_to_c_and_back() {
    let scratch = Scratch::new();
    let peer = compiler::compile_linked(&scratch, "tests/csrc/data_ptr_peer.c", "peer.so", &["-fPIC", "-shared"]);
    let peer = Peer::load(&peer);

    // Made in C from the library's pool, read and freed in Rust.
    let mut raw = RawDataPtr::EMPTY;
    // SAFETY: the functions of the peer have the types that `Peer` states; each buffer has one owner at a time.
    let made = unsafe {
        assert_eq!((peer.make)(1000, &raw mut raw), 0);
        DataPtr::from_raw_parts(raw)
    };
    assert_eq!((made.len(), made.device(), made.as_ptr().addr() % 256), (1000, Device::Host, 0));
    // SAFETY: the peer wrote all of it.
    let bytes = unsafe { made.as_slice::<u8>() }.expect("bytes of the host");
    assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == i as u8));
    std::thread::spawn(move || drop(made)).join().expect("a thread may free it");

    // Wrapped in C with a deleter of C, freed in Rust.
    // SAFETY: as above.
    let wrapped = unsafe { DataPtr::from_raw_parts((peer.wrap)()) };
    // SAFETY: as above.
    assert_eq!(unsafe { wrapped.as_slice::<u8>() }, Ok(&b"words\0"[..]));
    // SAFETY: as above.
    assert_eq!(unsafe { (peer.deleted)() }, 0);
    drop(wrapped);
    // SAFETY: as above.
    assert_eq!(unsafe { (peer.deleted)() }, 1);

    // Made in Rust: by this program's pool, by a vector, by a closure. Freed in C.
    let mut host = DataPtr::host(500, 64).expect("there is memory");
    // SAFETY: so many bytes are the buffer's.
    unsafe { host.as_mut_ptr().write_bytes(3, 500) };
    let (freed, waits) = std::sync::mpsc::channel();
    let bytes: &'static [u8] = &[10, 20, 30];
    let closure = move || freed.send(()).expect("the test waits");
    // SAFETY: nobody writes to a buffer that the peer only reads.
    let foreign = unsafe { DataPtr::from_foreign(bytes.as_ptr().cast_mut(), 3, Device::Host, closure) };
    let vector = DataPtr::from_owner(vec![0x0101_u16; 50]);
    for (buffer, sum) in [(host, 1500), (vector, 100), (foreign, 60)] {
        // SAFETY: as above.
        assert_eq!(unsafe { (peer.sum_and_free)(buffer.into_raw_parts()) }, sum);
    }
    waits.try_recv().expect("the closure ran in C");

    // There and back again.
    let numbers = DataPtr::from_owner(vec![1_u8, 2, 3]);
    // SAFETY: as above.
    let doubled = unsafe { DataPtr::from_raw_parts((peer.double)(numbers.into_raw_parts())) };
    // SAFETY: bytes of the vector.
    assert_eq!(unsafe { doubled.as_slice::<u8>() }, Ok(&[2, 4, 6][..]));
}
