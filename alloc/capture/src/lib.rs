//! The calling thread's stack, captured inside `malloc`.
//!
//! The sampler calls [`capture`] from the allocator's slow path, on whatever stack the program happens to be, with
//! whatever locks the program happens to hold. So a capture
//!
//! - takes no lock of libc or of the loader, waits for no other thread and leaves `errno` alone;
//! - allocates only when it meets a module for the first time, or needs one more of the few [`workbench`]es. That goes
//!   to the global allocator, which may be the one that is capturing: it must serve a nested allocation, and not
//!   capture it. No lock of this crate is held meanwhile but the bench's own;
//! - reads no byte of a stack that it does not know to be readable, and no byte of a module that may have been unloaded
//!   and that the loader did not confirm during this capture. Only the [`fallback`] reads as it likes,
//!   and is kept to where that is safe;
//! - does not panic: all arithmetic is checked or wrapping, all access goes through `get` or a bounded reader.
//!
//! # How a stack is walked
//!
//! Nearly all captures meet nothing new ([`capture_known`]). For each return address, a table that all threads share
//! ([`rules`]) says where the caller's registers are. A rule of a module that can be unloaded counts only if the loader
//! confirms the module. Such a capture reads the thread's own stack, whose bounds are known,
//! and takes some hundred bytes of it for itself.
//!
//! Anything else is for a walk that asks ([`walk`]). It runs on a stack of its own, with the thread's signals held back
//! ([`workbench`]): so it takes no more of the program's stack, which may be a coroutine's or a signal handler's. For
//! each return address
//!
//! 1. [`modules`] says which module it lies in: glibc's lock-free `_dl_find_object` ([`loader`]), and a table of what
//!    the module's own headers ([`elf`]) say;
//! 2. the rule is looked up, or learned from the module's unwind tables: framehop reads them ([`unwinder`]). Where
//!    there are none, frame pointers are the rule;
//! 3. [`stack`] reads the words that the step asks for;
//! 4. [`table_pages`] gives back the pages of tables that were read, in a small program.
//!
//! Code of no module, such as that of most JIT compilers, is stepped through by what it does next, if that is to return
//! ([`epilogue`]), else by frame pointers, and only believed if that leads back into a module. A signal's frame is
//! recognised by its code, and its registers are the kernel's. Where the walk ends early,
//! libgcc's unwinder has a look ([`fallback`]).
//!
//! # Every call's stack
//!
//! A full trace captures a stack with every allocation. Most stacks were walked before: [`Footprints`] know them again
//! by the words that such a walk reads. [`capture_quickly`] walks the others by [`rules`] alone, from the place where the
//! program called ([`Caller`]) to the outer frames that the thread's stack had before ([`Trail`]); it asks nobody
//! anything, and gives up at the first address without a rule. [`capture_anew`] then learns it.
//!
//! # What it is not for
//!
//! The walk recovers the stack pointer, the frame pointer and the return address, nothing else. It starts at a call,
//! not at an arbitrary instruction. It names no addresses; what a name means in a module can be asked ([`symbol`]).
//!
//! Without `_dl_find_object` (glibc before 2.35, other C libraries) no module is known, and all that is certain is the
//! first return address: the capture says that it is incomplete.
#![no_std]

#[cfg(test)]
extern crate std;

mod elf;
mod entry;
mod epilogue;
mod fallback;
mod footprints;
mod frame;
mod loader;
mod modules;
mod quick;
mod reader;
#[cfg(target_arch = "x86_64")]
mod realigned;
mod rules;
mod stack;
mod symbols;
mod system;
mod table_pages;
mod trail;
mod unwind_tables;
mod unwinder;
mod walk;
mod workbench;

#[cfg(test)]
mod tests;

pub use entry::{Caller, capture, capture_anew, capture_known};
pub use footprints::Footprints;
pub use modules::{
    MAX_MODULES, ModuleInfo, PATH_MAX, is_loaded, module, module_count, module_generation, on_module, symbol,
};
pub use quick::{Found, capture_quickly, complete, hash};
pub use stack::ThreadState;
pub use symbols::Symbol;
pub use system::FileState;
pub use trail::Trail;
pub use workbench::{aside, own_memory};

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

/// To be called before `fork`: no module is half written in the child. Another thread may have to go on first, for
/// which there is `give_way`, with the number of failed attempts.
pub fn fork_prepare(give_way: impl Fn(u32)) {
    modules::lock_for_fork(give_way);
}

/// To be called in the parent after [`fork_prepare`] and `fork`.
pub fn fork_parent() {
    modules::unlock_after_fork();
}

/// To be called in the child after [`fork_prepare`] and `fork`.
pub fn fork_child() {
    workbench::reset_after_fork();
    modules::unlock_after_fork();
}

/// Gives back half a mebibyte of what was learned of functions, if there is any: captures learn it anew.
///
/// # Safety
///
/// The process has one thread, which is in no capture.
pub unsafe fn forget_rules() {
    // SAFETY: the caller's promise.
    unsafe { rules::forget() };
}

/// Where the main thread's stack began, or a little above; `None` where neither the C library nor the kernel says so.
pub fn main_stack_end() -> Option<usize> {
    loader::main_stack_end()
}

/// The addresses that the loader mapped the module at which `address` lies in. Where the C library can't be asked (before
/// glibc 2.35) only the executable is known. Takes no lock.
pub fn module_range(address: usize) -> Option<core::ops::Range<usize>> {
    loader::find(address).map(|object| object.start..object.end)
}

/// Forgets what is known of a thread's stack: the thread exits, or its state moves to another thread.
pub fn release(state: &mut ThreadState) {
    *state = ThreadState::new();
}
