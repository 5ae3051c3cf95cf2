//! Heaps that serve nobody: what a thread's word points at while its fast path is closed.
//!
//! Their lists are empty and they own no slab, so every `malloc` and `free` finds nothing there and takes the slow
//! path. Which of them it is says why. Nobody writes to one, so they are the same zeroes in memory that can't be
//! written to, a line of the processor's caches apart: four heaps of their own would be 140 KiB that the kernel counts
//! as the program's data.

use crate::tiers::thread_cache::Heap;

#[cfg(not(miri))]
mod zeroes {
    use super::Heap;
    use core::arch::global_asm;

    /// Bytes from one to the next: what a heap is aligned to.
    const APART: usize = align_of::<Heap>();

    // The version suffix keeps two versions of this crate in one program apart.
    global_asm!(
        // No byte of the file: nothing of it is read in around what is, and what is read is the kernel's page of zeroes.
        ".section .bss.rel.ro.poolscope_heaps_0_1,\"aw\",@nobits",
        ".globl poolscope_empty_0_1, poolscope_dying_0_1, poolscope_busy_0_1, poolscope_detour_0_1",
        ".hidden poolscope_empty_0_1, poolscope_dying_0_1, poolscope_busy_0_1, poolscope_detour_0_1",
        ".balign {apart}",
        "poolscope_empty_0_1:",
        ".zero {apart}",
        "poolscope_dying_0_1:",
        ".zero {apart}",
        "poolscope_busy_0_1:",
        ".zero {apart}",
        "poolscope_detour_0_1:",
        ".zero {heap}",
        ".text",
        apart = const APART,
        heap = const size_of::<Heap>(),
    );

    // SAFETY: defined above, each with a heap's bytes behind it, all zero, which is an empty heap.
    #[expect(improper_ctypes, reason = "only Rust knows of them")]
    unsafe extern "C" {
        /// The heap of a thread that has not allocated yet.
        #[link_name = "poolscope_empty_0_1"]
        pub safe static EMPTY: Heap;
        /// The heap of a thread whose own was taken away at its exit.
        #[link_name = "poolscope_dying_0_1"]
        pub safe static DYING: Heap;
        /// The heap of a thread while it is in the slow path: a signal handler that allocates then finds empty lists
        /// and is served without locks (see [`crate::serve::reentrant`]).
        #[link_name = "poolscope_busy_0_1"]
        pub safe static BUSY: Heap;
        /// The heap of a thread whose every call is to take the slow path (see [`crate::threads::detour`]).
        #[link_name = "poolscope_detour_0_1"]
        pub safe static DETOUR: Heap;
    }
}

// Miri knows no assembly.
#[cfg(miri)]
mod zeroes {
    use super::Heap;

    pub static EMPTY: Heap = Heap::new();
    pub static DYING: Heap = Heap::new();
    pub static BUSY: Heap = Heap::new();
    pub static DETOUR: Heap = Heap::new();
}

pub use zeroes::{BUSY, DETOUR, DYING, EMPTY};
