//! The one word of thread-local storage: this thread's heap.
//!
//! An initial-exec TLS word costs one load from the thread pointer; `thread_local!` costs a call to
//! `__tls_get_addr` in a shared library, twice the price of the whole allocation. Stable Rust has no attribute for
//! the TLS model, so the word is declared and read in assembly. Its initial image points at a static empty heap:
//! a new thread's first allocation finds empty lists there and takes the slow path, with no test for
//! "initialised". One word keeps the library loadable by `dlopen`, for which glibc keeps little static TLS.

use crate::thread_cache::Heap;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod word {
    use super::Heap;
    use crate::thread_cache::EMPTY;
    use core::arch::{asm, global_asm};

    // The version suffix keeps two versions of this crate in one program apart.
    global_asm!(
        ".section .tdata.poolscope_heap_0_1,\"awT\",@progbits",
        ".globl poolscope_heap_0_1",
        ".hidden poolscope_heap_0_1",
        ".type poolscope_heap_0_1,@object",
        ".size poolscope_heap_0_1,8",
        ".p2align 3",
        "poolscope_heap_0_1:",
        ".quad {empty}",
        ".text",
        empty = sym EMPTY,
    );

    #[inline(always)]
    pub(super) fn get() -> *mut Heap {
        let heap: *mut Heap;
        // SAFETY: reads the TLS word declared above through its GOT entry (which a linker may relax).
        unsafe {
            asm!(
                "mov {p}, qword ptr [rip + poolscope_heap_0_1@GOTTPOFF]",
                "mov {p}, qword ptr fs:[{p}]",
                p = out(reg) heap,
                options(nostack, preserves_flags, readonly, pure)
            );
        }
        heap
    }

    #[inline(always)]
    pub(super) fn set(heap: *mut Heap) {
        // SAFETY: writes the TLS word declared above.
        unsafe {
            asm!(
                "mov {p}, qword ptr [rip + poolscope_heap_0_1@GOTTPOFF]",
                "mov qword ptr fs:[{p}], {heap}",
                p = out(reg) _,
                heap = in(reg) heap,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod word {
    use super::Heap;
    use crate::thread_cache::EMPTY;
    use core::arch::{asm, global_asm};

    global_asm!(
        ".section .tdata.poolscope_heap_0_1,\"awT\",%progbits",
        ".globl poolscope_heap_0_1",
        ".hidden poolscope_heap_0_1",
        ".type poolscope_heap_0_1,%object",
        ".size poolscope_heap_0_1,8",
        ".p2align 3",
        "poolscope_heap_0_1:",
        ".xword {empty}",
        ".text",
        empty = sym EMPTY,
    );

    /// Address of the TLS word.
    #[inline(always)]
    fn address() -> *mut *mut Heap {
        let word: *mut *mut Heap;
        // SAFETY: adds the word's offset, read from its GOT entry, to the thread pointer.
        unsafe {
            asm!(
                "mrs {p}, tpidr_el0",
                "adrp {o}, :gottprel:poolscope_heap_0_1",
                "ldr {o}, [{o}, :gottprel_lo12:poolscope_heap_0_1]",
                "add {p}, {p}, {o}",
                p = out(reg) word,
                o = out(reg) _,
                options(nostack, preserves_flags, readonly, pure)
            );
        }
        word
    }

    #[inline(always)]
    pub(super) fn get() -> *mut Heap {
        // SAFETY: the word is this thread's.
        unsafe { address().read() }
    }

    #[inline(always)]
    pub(super) fn set(heap: *mut Heap) {
        // SAFETY: as above.
        unsafe { address().write(heap) }
    }
}

// Miri knows no assembly; it runs with the standard library.
#[cfg(miri)]
mod word {
    use super::Heap;
    use crate::thread_cache::EMPTY;
    use core::cell::Cell;

    std::thread_local! {
        static HEAP: Cell<*mut Heap> = const { Cell::new(&raw const EMPTY as *mut Heap) };
    }

    pub(super) fn get() -> *mut Heap {
        HEAP.with(Cell::get)
    }
    pub(super) fn set(heap: *mut Heap) {
        HEAP.with(|word| word.set(heap));
    }
}

/// This thread's heap; the static empty one before the first allocation, the dying one after the last.
#[inline(always)]
pub fn get() -> *mut Heap {
    word::get()
}

/// Changes this thread's heap.
#[inline(always)]
pub fn set(heap: *mut Heap) {
    word::set(heap);
}
