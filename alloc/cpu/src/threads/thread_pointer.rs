//! The two words of thread-local storage: the heap that this thread's fast path uses,
//! and the heap that is the thread's.
//!
//! They are the same unless the fast path is closed: then the first is a static heap whose lists are empty and that
//! owns no slab, so that every `malloc` and every `free` takes the slow path. The slow path itself closes it while it
//! runs; hooks and the hardened mode close it for good; the garbage collector closes that of a thread that sleeps.
//!
//! An initial-exec TLS word costs one load from the thread pointer; `thread_local!` costs a call to
//! `__tls_get_addr` in a shared library, twice the price of the whole allocation. Stable Rust has no attribute for
//! the TLS model, so the word is declared and read in assembly. Its initial image points at a static empty heap:
//! a new thread's first allocation finds empty lists there and takes the slow path, with no test for
//! "initialised". Two words keep the library loadable by `dlopen`, for which glibc keeps little static TLS.

use crate::tiers::thread_cache::Heap;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod word {
    use super::Heap;
    use crate::tiers::static_heaps::EMPTY;
    use core::arch::{asm, global_asm};

    // The version suffix keeps two versions of this crate in one program apart.
    global_asm!(
        ".section .tdata.poolscope_heap_0_1,\"awT\",@progbits",
        ".globl poolscope_heap_0_1",
        ".hidden poolscope_heap_0_1",
        ".type poolscope_heap_0_1,@object",
        ".size poolscope_heap_0_1,16",
        ".p2align 4",
        "poolscope_heap_0_1:",
        ".quad {empty}",
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

    pub(super) fn address() -> *mut *mut Heap {
        let word: *mut *mut Heap;
        // SAFETY: adds the offset of the words declared above to the thread pointer, which fs:0 holds (ELF TLS, 3.4.6).
        unsafe {
            asm!(
                "mov {p}, qword ptr [rip + poolscope_heap_0_1@GOTTPOFF]",
                "add {p}, qword ptr fs:[0]",
                p = out(reg) word,
                options(nostack, readonly, pure)
            );
        }
        word
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod word {
    use super::Heap;
    use crate::tiers::static_heaps::EMPTY;
    use core::arch::{asm, global_asm};

    global_asm!(
        ".section .tdata.poolscope_heap_0_1,\"awT\",%progbits",
        ".globl poolscope_heap_0_1",
        ".hidden poolscope_heap_0_1",
        ".type poolscope_heap_0_1,%object",
        ".size poolscope_heap_0_1,16",
        ".p2align 4",
        "poolscope_heap_0_1:",
        ".xword {empty}",
        ".xword {empty}",
        ".text",
        empty = sym EMPTY,
    );

    /// Address of the first TLS word.
    #[inline(always)]
    pub(super) fn address() -> *mut *mut Heap {
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
    use crate::tiers::static_heaps::EMPTY;
    use core::cell::Cell;

    std::thread_local! {
        static HEAPS: [Cell<*mut Heap>; 2] = const { [const { Cell::new(&raw const EMPTY as *mut Heap) }; 2] };
    }

    pub(super) fn get() -> *mut Heap {
        HEAPS.with(|words| words[0].get())
    }
    pub(super) fn set(heap: *mut Heap) {
        HEAPS.with(|words| words[0].set(heap));
    }
    pub(super) fn address() -> *mut *mut Heap {
        HEAPS.with(|words| words[0].as_ptr())
    }
}

/// The heap that this thread's fast path uses: its own, or one of the static ones.
#[inline(always)]
pub fn get() -> *mut Heap {
    word::get()
}

/// Changes the heap that this thread's fast path uses.
#[inline(always)]
pub fn set(heap: *mut Heap) {
    word::set(heap);
}

/// The heap that is this thread's, whatever its fast path uses.
pub fn home() -> *mut Heap {
    // SAFETY: the second word follows the first.
    unsafe { word::address().add(1).read() }
}

/// Changes the heap that is this thread's.
pub fn set_home(heap: *mut Heap) {
    // SAFETY: as above.
    unsafe { word::address().add(1).write(heap) };
}

/// Address of the word that [`get`] reads, through which other threads close this one's fast path.
pub fn address() -> *mut *mut Heap {
    word::address()
}
