//! `libpoolscope.so`: preloaded into a program, or linked to it, it serves the whole malloc family from poolscope's
//! tiers.
//!
//! - [`c`]: the functions of C and POSIX, and glibc's own names for them;
//! - [`cpp`]: every form of C++'s operator new and delete;
//! - [`glibc`]: glibc's extensions that report or tune;
//! - [`life`]: what runs when the library is loaded and when the process ends.
#![cfg_attr(not(test), no_std)]

mod c;
mod cpp;
mod glibc;
mod life;
// A test build, which only clippy makes, has the standard library.
#[cfg(not(test))]
mod runtime;
