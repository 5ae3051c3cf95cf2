//! `libpoolscope.so`: preloaded into a program, or linked to it, it serves the whole malloc family from poolscope's
//! tiers.
//!
//! - [`api`], [`data_ptr`], [`settings`]: the functions of `poolscope.h`, for programs that know the library;
//! - [`c`]: the functions of C and POSIX, and glibc's own names for them;
//! - [`cpp`]: every form of C++'s operator new and delete;
//! - [`glibc`]: glibc's extensions that report or tune;
//! - [`report`]: the statistics, by glibc's names and by those of `poolscope.h`;
//! - [`limits`]: limits that the process sets itself;
//! - [`loader`]: libraries that would bind to another allocator;
//! - [`signals`]: what the program does on the one signal that the pool handles, too;
//! - [`credentials`]: users and groups that the process becomes, and namespaces that it enters;
//! - [`heapcheck`], [`lsan`], [`judge`]: leak checks inside a program, by `poolscope_heapcheck.h` and by
//!   LeakSanitizer's names;
//! - [`command`]: the command, run by the program that it is to look at;
//! - [`life`]: what runs when the library is loaded and when the process ends.
//!
//! It does not serve resolvers of indirect functions (`STT_GNU_IFUNC`): they run while the dynamic linker still
//! relocates, and a thread has its initial thread-local storage only after that.
//!
//! Without optimisation it has the standard library, which is what unwinds there (see the profiles in `Cargo.toml`).
#![cfg_attr(all(not(test), panic = "abort"), no_std)]

mod api;
mod buffer;
mod c;
mod command;
mod cpp;
mod credentials;
mod data_ptr;
mod glibc;
mod heapcheck;
mod interpreters;
mod judge;
mod life;
mod limits;
mod loader;
mod lsan;
mod replaced;
mod report;
// A test build, which only clippy makes, has the standard library.
#[cfg(not(test))]
mod reserve;
#[cfg(not(test))]
mod runtime;
mod settings;
mod signals;
mod symbol;
