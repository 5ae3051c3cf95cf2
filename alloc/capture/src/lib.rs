//! The calling thread's stack, captured inside `malloc`.
//!
//! The sampler calls [`capture`] from the allocator's slow path, on whatever stack the program happens to be, with
//! whatever locks the program happens to hold. So a capture
//!
//! - takes no lock of libc or of the loader, waits for no other thread and leaves `errno` alone;
//! - allocates only when it meets a module for the first time, or needs one more of the few [`caches`]. That goes to
//!   the global allocator, which may be the one that is capturing: it must serve a nested allocation, and not capture
//!   it. No lock of this crate is held meanwhile but the cache's own;
//! - reads no byte of a stack that it does not know to be readable, and no byte of a module that the loader did not
//!   confirm during this capture. Only the [`fallback`] reads as it likes, and is kept to where that is safe;
//! - does not panic: all arithmetic is checked or wrapping, all access goes through `get` or a bounded reader.
//!
//! # How a stack is walked
//!
//! [`walk`] steps from frame to frame. For each return address
//!
//! 1. [`modules`] says which module it lies in: glibc's lock-free `_dl_find_object` ([`loader`]), and a table of what
//!    the module's own headers ([`elf`]) say;
//! 2. a module that keeps frame pointers ([`frame_pointers`]) is left by them;
//! 3. any other one by its unwind tables: framehop reads them ([`unwinder`]), and what it finds is kept ([`rules`]);
//! 4. [`stack`] reads the words that the step asks for.
//!
//! Code of no module, such as that of most JIT compilers, is stepped through by what it does next, if that is to return
//! ([`epilogue`]), else by frame pointers, and only believed if that leads back into a module. A signal's frame is recognised by its code, and its registers are the kernel's.
//!
//! Where frame pointers lead to something that cannot be, the walk starts again and goes by tables everywhere. Where
//! that ends early, libgcc's unwinder has a look ([`fallback`]).
//!
//! # Every call's stack
//!
//! A full trace captures a stack with every allocation. [`capture_quickly`] goes by [`rules`] alone, from the place where the
//! program called ([`Caller`]) to the outer frames that the thread's stack had before ([`Trail`]); it asks nobody anything, and
//! gives up at the first address without a rule. Rules are [`learn`]ed from captures as above.
//!
//! # What it is not for
//!
//! The walk recovers the stack pointer, the frame pointer and the return address, nothing else. It starts at a call,
//! not at an arbitrary instruction. It resolves no symbols.
//!
//! Without `_dl_find_object` (glibc before 2.35, other C libraries) no module is known, and all that is certain is the
//! first return address: the capture says that it is incomplete.
#![no_std]

#[cfg(test)]
extern crate std;

mod caches;
mod elf;
mod entry;
mod epilogue;
mod fallback;
mod frame_pointers;
mod loader;
mod modules;
mod quick;
mod reader;
mod rules;
mod stack;
mod system;
mod trail;
mod unwind_tables;
mod unwinder;
mod walk;

#[cfg(test)]
mod tests;

pub use entry::capture;
pub use modules::{MAX_MODULES, ModuleInfo, PATH_MAX, module, module_count, module_generation};
pub use quick::{Caller, Found, capture_quickly, complete, hash, learn};
pub use stack::ThreadState;
pub use trail::Trail;

/// Return addresses in one capture, at most.
pub const MAX_DEPTH: usize = 128;

/// What a capture found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Return addresses written, innermost first.
    pub depth: usize,
    /// There were more than [`MAX_DEPTH`].
    pub truncated: bool,
    /// The walk ended before the outermost function: code without unwind tables, or a damaged stack.
    pub incomplete: bool,
}

/// To be called before `fork`: no module is half written in the child.
pub fn fork_prepare() {
    modules::lock_for_fork();
}

/// To be called in the parent after [`fork_prepare`] and `fork`.
pub fn fork_parent() {
    modules::unlock_after_fork();
}

/// To be called in the child after [`fork_prepare`] and `fork`.
pub fn fork_child() {
    caches::reset_after_fork();
    modules::unlock_after_fork();
}

/// Forgets what is known of a thread's stack: the thread exits, or its state moves to another thread.
pub fn release(state: &mut ThreadState) {
    *state = ThreadState::new();
}
