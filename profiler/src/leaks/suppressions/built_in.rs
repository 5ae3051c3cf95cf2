//! The built-in rules: what the C library and the runtimes keep on purpose. They are a table with a reason for each,
//! and narrow: a rule never holds for memory that the program's own code asked for, even if a runtime's function called
//! that code (`main` itself is called by one).

use super::frames::Call;
use crate::build::plumbing::owner;
use crate::words::pattern;

/// A function or the module that it lies in, as a pattern (`*`, `^`, `$`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Function(&'static str),
    Module(&'static str),
    /// Rust's library, wherever it is linked: by whose the function is, or by its source where it is only known by its
    /// last name.
    RustLibrary,
}

/// Which frames of a stack a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The innermost frame.
    Innermost(On),
    /// Some frame matches the second, and all frames inside it match one of the first.
    Through(&'static [On], On),
}

/// What is said of strings that CPython has interned.
pub(in crate::leaks) const INTERNED: &str = "CPython's interned strings";

const LOADER: On = On::Module("^ld-linux");
const LIBC: &[On] = &[On::Module("^libc.so"), On::Module("^libc-2")];
const LIBSTDCXX: &[On] = &[On::Module("^libstdc++.so")];
const RUST_LIBRARY: &[On] = &[On::RustLibrary];
/// The interpreter, with its own library or without.
const CPYTHON: &[On] = &[On::Module("^python3"), On::Module("^libpython3"), On::Module("^libc.so")];
/// The crates of Rust's library, with those that it brings along for itself.
const RUST_CRATES: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "hashbrown::",
    "__rustc",
    "__rust_",
    // The test harness.
    "test::",
    "getopts::",
    // For backtraces.
    "addr2line::",
    "gimli::",
    "object::",
    "miniz_oxide::",
    "adler2::",
    "rustc_demangle::",
];
/// Where its source lies, as it was built, or as `rustup` installs it.
const RUST_SOURCES: &[&str] = &["^/rustc/*/library/", "^/rust/deps/", "/rustlib/src/rust/library/"];

/// The rules. Some functions of the C library get to their work by a jump, which leaves no frame of their own, so the
/// internal function is named too; its name is only known where the C library's symbols are installed.
pub(super) const RULES: &[(Rule, &str)] = &[
    (Rule::Innermost(LOADER), "the dynamic loader's lists of libraries and thread-local storage"),
    (Rule::Through(LIBSTDCXX, LOADER), "libstdc++'s emergency pool for exceptions and other start-up state"),
    (Rule::Innermost(On::Function("^_IO_file_doallocate$")), "buffers of standard streams"),
    (Rule::Through(LIBC, On::Function("^setlocale$")), "the C library's locales"),
    (Rule::Through(LIBC, On::Function("^_nl_find_locale$")), "the C library's locales"),
    (Rule::Through(LIBC, On::Function("^bindtextdomain$")), "the C library's translations"),
    (Rule::Through(LIBC, On::Function("^textdomain$")), "the C library's translations"),
    (Rule::Through(LIBC, On::Function("gettext$")), "the C library's translations"),
    (Rule::Through(LIBC, On::Function("^tzset$")), "the C library's time zone"),
    (Rule::Through(LIBC, On::Function("^localtime")), "the C library's time zone"),
    (Rule::Through(LIBC, On::Function("^mktime$")), "the C library's time zone"),
    (Rule::Through(LIBC, On::Function("^strftime")), "the C library's time zone"),
    (Rule::Through(LIBC, On::Function("^tzset_internal$")), "the C library's time zone"),
    (Rule::Through(LIBC, On::Function("^dlerror$")), "the C library's last error of dlopen"),
    (Rule::Through(LIBC, On::Function("^getaddrinfo$")), "the C library's resolver and name services"),
    (Rule::Through(LIBC, On::Function("^getpw")), "the C library's name services"),
    (Rule::Through(LIBC, On::Function("^getgr")), "the C library's name services"),
    (Rule::Through(LIBC, On::Function("^gethostby")), "the C library's resolver and name services"),
    (Rule::Through(LIBC, On::Function("^setenv$")), "the environment"),
    (Rule::Through(LIBC, On::Function("^putenv$")), "the environment"),
    (Rule::Through(LIBC, On::Function("^__add_to_environ$")), "the environment"),
    (Rule::Through(LIBC, On::Function("^__cxa_atexit$")), "the list of functions to call at exit"),
    (Rule::Through(LIBC, On::Function("^atexit$")), "the list of functions to call at exit"),
    (Rule::Through(LIBC, On::Function("^__cxa_thread_atexit_impl$")), "the list of functions to call at thread exit"),
    (Rule::Through(RUST_LIBRARY, On::Function("^std::rt::")), "the Rust runtime's record of the main thread"),
    (Rule::Through(RUST_LIBRARY, On::Function("^std::io::stdio::")), "buffers of Rust's standard streams"),
    (Rule::Through(RUST_LIBRARY, On::Function("^std::thread::current")), "the Rust runtime's record of a thread"),
    (Rule::Through(RUST_LIBRARY, On::Function("^std::sys::thread_local::")), "the Rust runtime's thread-local values"),
    (Rule::Through(RUST_LIBRARY, On::Function("^std::backtrace")), "the Rust runtime's symbols for backtraces"),
    (
        Rule::Through(RUST_LIBRARY, On::Function("^std::sys::pal::unix::stack_overflow::")),
        "the Rust runtime's guard against stack overflow",
    ),
    (Rule::Through(RUST_LIBRARY, On::Function("^test::")), "Rust's test harness"),
    (
        Rule::Through(RUST_LIBRARY, On::Function("^parking_lot_core::parking_lot::HashTable::new$")),
        "parking_lot's table of threads that wait, of which old ones stay: tokio's locks are parking_lot's",
    ),
    (Rule::Through(CPYTHON, On::Function("^PyUnicode_InternInPlace$")), INTERNED),
    (Rule::Through(CPYTHON, On::Function("^PyUnicode_InternFromString$")), INTERNED),
    (Rule::Through(CPYTHON, On::Function("^Py_InitializeFromConfig$")), "what CPython makes when it starts"),
];

impl On {
    fn matches(self, call: Call<'_>) -> bool {
        match self {
            On::Function(pattern) => pattern::matches(pattern, &call.frame.name),
            On::Module(pattern) => pattern::matches(pattern, call.module),
            On::RustLibrary => {
                let is_source = |file: &String| RUST_SOURCES.iter().any(|pattern| pattern::matches(pattern, file));
                RUST_CRATES.iter().any(|name| owner(&call.frame.name).starts_with(name))
                    || call.frame.file.as_ref().is_some_and(is_source)
            }
        }
    }

    fn describe(self) -> String {
        match self {
            On::Function(pattern) => format!("function {pattern}"),
            On::Module(pattern) => format!("module {pattern}"),
            On::RustLibrary => "Rust's library".into(),
        }
    }
}

impl Rule {
    /// `calls` are innermost first.
    pub(super) fn matches(self, calls: &[Call<'_>]) -> bool {
        match self {
            Rule::Innermost(on) => calls.first().is_some_and(|&call| on.matches(call)),
            Rule::Through(inner, outer) => {
                for &call in calls {
                    if outer.matches(call) {
                        return true;
                    }
                    if !inner.iter().any(|on| on.matches(call)) {
                        return false;
                    }
                }
                false
            }
        }
    }

    /// What it matches, in words.
    pub(super) fn describe(self) -> String {
        match self {
            Rule::Innermost(on) => format!("asked for in {}", on.describe()),
            Rule::Through(inner, outer) => {
                let inner: Vec<String> = inner.iter().map(|on| on.describe()).collect();
                format!("{} in the stack, and inside it only {}", outer.describe(), inner.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::Frame;

    /// `frames` are functions, with their files if they have one (`name /a/file.rs`), and modules.
    fn reason(frames: &[(&str, &str)]) -> Option<&'static str> {
        let frame = |text: &str| {
            let (name, file) =
                text.split_once(" /").map_or((text, None), |(name, file)| (name, Some(format!("/{file}"))));
            Frame { name: name.to_owned(), file, ..Frame::default() }
        };
        let named: Vec<(Frame, &str)> = frames.iter().map(|&(text, module)| (frame(text), module)).collect();
        let calls: Vec<Call<'_>> = named.iter().map(|(frame, module)| Call { frame, module, path: "" }).collect();
        RULES.iter().find(|(rule, _)| rule.matches(&calls)).map(|&(_, reason)| reason)
    }

    #[test]
    fn what_runtimes_keep_is_suppressed() {
        let kept: &[&[(&str, &str)]] = &[
            &[("allocate_dtv", "ld-linux-x86-64.so.2"), ("pthread_create", "libc.so.6"), ("main", "a")],
            &[("[libstdc++.so.6+0xa8]", "libstdc++.so.6.0.30"), ("call_init", "ld-linux-x86-64.so.2")],
            &[("_IO_file_doallocate", "libc.so.6"), ("puts", "libc.so.6"), ("main", "a")],
            &[("[libc.so.6+0x1]", "libc.so.6"), ("setlocale", "libc.so.6"), ("main", "a")],
            &[("alloc::sync::Arc<T>::new", "a"), ("std::thread::Thread::new", "a"), ("std::rt::init", "a")],
            &[("std::io::buffered::LineWriter<W>::new", "a"), ("std::io::stdio::stdout", "a"), ("app::main", "a")],
            &[
                ("<alloc::raw_vec::RawVec<gimli::read::abbrev::Abbreviation>>::grow_one", "a"),
                ("<gimli::read::abbrev::Abbreviations>::insert", "a"),
                ("<&mut <std::sync::once::Once> as core::ops::function::FnOnce<()>>::call_once", "a"),
                ("<[u8]>::to_vec", "a"),
                ("do_call<app::main::{closure_env#0}> /rustc/59807/library/std/src/panicking.rs", "a"),
                ("parse /rust/deps/addr2line-0.25.1/src/unit.rs", "a"),
                ("std::backtrace_rs::symbolize::gimli::resolve", "a"),
                ("app::main", "a"),
            ],
            &[("alloc::vec::Vec<T>::push", "a"), ("test::run_tests", "a"), ("test::test_main", "a")],
            &[
                ("alloc::vec::Vec<T>::with_capacity", "a"),
                ("parking_lot_core::parking_lot::HashTable::new", "a"),
                ("parking_lot_core::parking_lot::grow_hashtable", "a"),
                ("app::main", "a"),
            ],
            &[("PyUnicode_New", "python3.11"), ("PyUnicode_InternInPlace", "python3.11"), ("init", "spam.so")],
        ];
        for frames in kept {
            assert!(reason(frames).is_some(), "{frames:?}");
        }
    }

    #[test]
    fn the_programs_own_leaks_are_not_suppressed_whoever_called_it() {
        let leaks: &[&[(&str, &str)]] = &[
            &[("setup", "libfoo.so"), ("call_init", "ld-linux-x86-64.so.2")],
            &[("std::string::reserve", "libstdc++.so.6"), ("setup", "a"), ("call_init", "ld-linux-x86-64.so.2")],
            &[("alloc::vec::Vec<T>::push", "a"), ("app::main", "a"), ("std::rt::lang_start", "a")],
            &[("strdup", "libc.so.6"), ("main", "a"), ("__libc_start_main", "libc.so.6")],
            &[("app::show", "a"), ("core::fmt::write", "a"), ("std::io::stdio::_print", "a")],
            &[
                ("<app::Shown as core::fmt::Display>::fmt", "a"),
                ("core::fmt::write", "a"),
                ("std::io::stdio::_print", "a"),
            ],
            &[("gimli::parse /home/me/app/src/gimli.rs", "a"), ("app::main", "a"), ("std::rt::lang_start", "a")],
            &[("alloc::vec::Vec<T>::push", "a"), ("app::tests::works", "a"), ("test::run_test", "a")],
            &[
                ("spam_new", "spam.so"),
                ("_PyObject_MakeTpCall", "python3.11"),
                ("Py_InitializeFromConfig", "python3.11"),
            ],
            &[],
        ];
        for frames in leaks {
            assert_eq!(reason(frames), None, "{frames:?}");
        }
    }
}
