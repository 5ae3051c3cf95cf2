//! The calling thread's stack, captured inside `malloc`.
//!
//! The sampler calls [`capture`] from the allocator's slow path, on whatever stack the program happens to be, with
//! whatever locks the program happens to hold. So a capture
//!
//! - allocates nothing, takes no lock of libc or of the loader, waits for no other thread and leaves `errno` alone;
//! - reads no byte of a stack that it does not know to be readable, and no byte of a module that the loader did not
//!   confirm during this capture;
//! - cannot panic: all arithmetic is checked or wrapping, all access goes through `get` or a bounded reader.
//!
//! It never executes the program's unwinder. libgcc's reads memory unchecked, takes the loader's lock before
//! glibc 2.35 and costs 1.6 µs. Linked dynamically, it makes `libgcc_s.so.1` a dependency of every preloaded program;
//! linked statically, `libgcc_eh.a` of a current gcc refers to `_dl_find_object` strongly, so that nothing loads on an
//! older glibc. And where a module has no tables, it ends as this one does.
//!
//! # How a stack is walked
//!
//! [`walk`] steps from frame to frame. For each return address
//!
//! 1. [`modules`] says which module it lies in: glibc's lock-free `_dl_find_object` ([`loader`]), and a table of what
//!    the module's own headers ([`elf`]) say;
//! 2. [`rule_cache`], one table for the whole process, says how to leave the function at this address;
//! 3. where it does not know yet, [`eh_frame`] finds the function's unwind table and [`cfi`] runs it; the outcome is
//!    a [`rule::Rule`], which fits 32 bits in nearly all cases;
//! 4. [`stack`] reads the two words that the rule asks for.
//!
//! Code without unwind tables, such as that of most JIT compilers, is stepped through by frame pointers, and only
//! believed if that leads back into a module.
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

mod cfi;
mod eh_frame;
mod elf;
mod entry;
mod loader;
mod modules;
mod reader;
mod rule;
mod rule_cache;
mod stack;
mod system;
mod walk;

#[cfg(test)]
mod tests;

pub use entry::capture;
pub use modules::{MAX_MODULES, ModuleInfo, PATH_MAX, module, module_count, module_generation};
pub use stack::ThreadState;

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
    modules::unlock_after_fork();
}

/// Forgets what is known of a thread's stack: the thread exits, or its state moves to another thread.
pub fn release(state: &mut ThreadState) {
    *state = ThreadState::new();
}
