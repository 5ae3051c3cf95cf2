//! Memory that is never freed and is no leak: what the C library and the runtimes keep on purpose, and what a user's
//! file of suppressions names.
//!
//! The default rules are a table with a reason for each. They are narrow: a rule never holds for memory that the
//! program's own code asked for, even if a runtime's function called that code (`main` itself is called by one).

use std::path::{Path, PathBuf};

use crate::build::plumbing::owner;
use crate::model::profile::{Frame, Profile, Site};
use crate::words::pattern;

/// A function or the module that it lies in, as a pattern (`*`, `^`, `$`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Function(&'static str),
    Module(&'static str),
    /// Rust's library, wherever it is linked: by whose the function is, or by its source where it is only known by its
    /// last name.
    RustLibrary,
}

/// Which frames of a stack a default rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// The innermost frame.
    Innermost(On),
    /// Some frame matches the second, and all frames inside it match one of the first.
    Through(&'static [On], On),
}

const LOADER: On = On::Module("^ld-linux");
const LIBC: &[On] = &[On::Module("^libc.so"), On::Module("^libc-2")];
const LIBSTDCXX: &[On] = &[On::Module("^libstdc++.so")];
const RUST_LIBRARY: &[On] = &[On::RustLibrary];
/// The crates of Rust's library, with those that it brings along for itself.
const RUST_CRATES: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "hashbrown::",
    "__rustc",
    "__rust_",
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

/// The default rules. Some functions of the C library get to their work by a jump, which leaves no frame of their own,
/// so the internal function is named too; its name is only known where the C library's symbols are installed.
const DEFAULTS: &[(Rule, &str)] = &[
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
];

/// What is not reported as a leak.
#[derive(Clone, Debug, Default)]
pub struct Suppressions {
    defaults: bool,
    user: Vec<String>,
}

/// A line that is no suppression.
#[derive(Debug, thiserror::Error)]
pub enum SuppressionError {
    /// The file cannot be read.
    #[error("cannot read the suppressions {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A line is of another kind.
    #[error(
        "{origin}:{line}: {text:?} is no suppression: write leak:PATTERN, with a part of a function's, module's or source file's name"
    )]
    Line {
        /// The file.
        origin: String,
        /// Line number from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

impl Suppressions {
    /// None at all: everything that was not freed is reported.
    pub fn none() -> Self {
        Self::default()
    }

    /// What the C library and the runtimes keep on purpose.
    pub fn defaults() -> Self {
        Self { defaults: true, user: Vec::new() }
    }

    /// Adds suppressions in LeakSanitizer's form: `leak:PATTERN` lines, `#` for comments. The pattern is looked for in
    /// the function, source file and module of every frame.
    ///
    /// `origin` is the file's name for messages.
    pub fn add(&mut self, text: &str, origin: &str) -> Result<(), SuppressionError> {
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.strip_prefix("leak:").map(str::trim) {
                Some(pattern) if !pattern.is_empty() => self.user.push(pattern.to_owned()),
                _ => {
                    let (origin, text) = (origin.to_owned(), line.to_owned());
                    return Err(SuppressionError::Line { origin, line: index + 1, text });
                }
            }
        }
        Ok(())
    }

    /// Adds the suppressions in a file.
    pub fn add_file(&mut self, path: &Path) -> Result<(), SuppressionError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| SuppressionError::Read { path: path.to_owned(), source })?;
        self.add(&text, &path.display().to_string())
    }

    /// Why a site is no leak: the reason of a default rule, or the user's pattern.
    pub fn reason(&self, profile: &Profile, site: &Site) -> Option<String> {
        let frames: Vec<(&Frame, &str, &str)> = site
            .locations
            .iter()
            .filter_map(|&index| profile.locations.get(index))
            .flat_map(|location| {
                let module = profile.module(location);
                let names = module.map_or(("", ""), |module| (module.name(), module.path.as_str()));
                location.frames.iter().map(move |frame| (frame, names.0, names.1))
            })
            .collect();
        let user = self.user.iter().find(|pattern| {
            frames.iter().any(|(frame, _, path)| {
                pattern::matches(pattern, &frame.name)
                    || pattern::matches(pattern, path)
                    || frame.file.as_ref().is_some_and(|file| pattern::matches(pattern, file))
            })
        });
        if let Some(pattern) = user {
            return Some(format!("leak:{pattern}"));
        }
        let frames: Vec<(&Frame, &str)> = frames.iter().map(|&(frame, name, _)| (frame, name)).collect();
        let defaults = if self.defaults { DEFAULTS } else { &[] };
        defaults.iter().find(|(rule, _)| rule.matches(&frames)).map(|&(_, reason)| reason.to_owned())
    }
}

impl On {
    fn matches(self, (function, module): (&Frame, &str)) -> bool {
        match self {
            On::Function(pattern) => pattern::matches(pattern, &function.name),
            On::Module(pattern) => pattern::matches(pattern, module),
            On::RustLibrary => {
                let is_source = |file: &String| RUST_SOURCES.iter().any(|pattern| pattern::matches(pattern, file));
                RUST_CRATES.iter().any(|name| owner(&function.name).starts_with(name))
                    || function.file.as_ref().is_some_and(is_source)
            }
        }
    }
}

impl Rule {
    /// `frames` are functions and the file names of their modules, innermost first.
    fn matches(self, frames: &[(&Frame, &str)]) -> bool {
        match self {
            Rule::Innermost(on) => frames.first().is_some_and(|&frame| on.matches(frame)),
            Rule::Through(inner, outer) => {
                for &frame in frames {
                    if outer.matches(frame) {
                        return true;
                    }
                    if !inner.iter().any(|on| on.matches(frame)) {
                        return false;
                    }
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `frames` are functions, with their files if they have one (`name /a/file.rs`), and modules.
    fn reason(frames: &[(&str, &str)]) -> Option<&'static str> {
        let frame = |text: &str| {
            let (name, file) =
                text.split_once(" /").map_or((text, None), |(name, file)| (name, Some(format!("/{file}"))));
            Frame { name: name.to_owned(), file, ..Frame::default() }
        };
        let named: Vec<(Frame, &str)> = frames.iter().map(|&(text, module)| (frame(text), module)).collect();
        let frames: Vec<(&Frame, &str)> = named.iter().map(|(frame, module)| (frame, *module)).collect();
        DEFAULTS.iter().find(|(rule, _)| rule.matches(&frames)).map(|&(_, reason)| reason)
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
            &[],
        ];
        for frames in leaks {
            assert_eq!(reason(frames), None, "{frames:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named_with_its_place() {
        let mut suppressions = Suppressions::none();
        suppressions.add("# known\n\nleak:^cache_*\n", "s.txt").expect("is fine");
        assert_eq!(suppressions.user, ["^cache_*"]);
        let error = suppressions.add("leak:a\nrace:b", "s.txt").expect_err("is not");
        assert_eq!(
            error.to_string(),
            "s.txt:2: \"race:b\" is no suppression: write leak:PATTERN, with a part of a function's, module's or source file's name"
        );
    }
}
